from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from imae.data import (
    ArrayImages,
    Data,
    ImageFiles,
    Split,
    Table,
    Unlabelled,
    load_unlabelled,
)
from imae.data.preparation import describe_preparation, without_rows
from imae.errors import ArgumentError
from imae.models import PUBLISHED_INPUTS, Network
from imae.train import preparation
from imae.train.config import ModelConfig
from imae.train.preparation import (
    frozen_features,
    published_images,
    published_pixels,
    with_start_pixels,
)


def test_files_are_cut_to_the_size_that_the_network_was_published_for():
    files = ImageFiles(Path(), ("a.png",), resize=100, crop=90)
    found = published_images("efficientnet_lite0", files)
    assert (found.resize, found.crop) == (224, 224)
    assert found.mean == pytest.approx((127 / 255,) * 3)
    wide = replace(files, resize=256)
    assert published_images("efficientnet_lite0", wide).resize == 256
    assert vars(published_images("efficientnet_lite0", found)) == vars(found)


def test_images_in_memory_keep_their_size():
    images = ArrayImages(np.zeros((1, 3, 8, 8), np.uint8), mean=(0.0,) * 3, std=(1.0,) * 3)
    found = published_images("resnet50", images)
    assert found.shape == (3, 8, 8)
    assert found.mean == pytest.approx((0.485, 0.456, 0.406), abs=1e-3)


class Recorder(Network):
    """Notes the size of the images that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    @property
    def classifier(self):
        raise NotImplementedError

    def features(self, x):
        self.seen.append((tuple(x.shape), self.training))
        return x.mean(dim=(2, 3))


@pytest.mark.parametrize(("size", "expected"), [(8, 112), (95, 112), (96, 96)])
def test_the_network_sees_small_images_enlarged(monkeypatch, tmp_path, size, expected):
    network = Recorder()
    monkeypatch.setattr(preparation, "build", lambda *_, **__: network)
    monkeypatch.setattr(preparation, "load_weights", lambda *_: None)
    monkeypatch.setattr(preparation, "pretrained_weights", lambda name: Path(name))
    monkeypatch.setattr(preparation, "data_root", lambda: tmp_path)
    pixels = np.full((2, 3, size, size), 255, np.uint8)
    images = ArrayImages(pixels, mean=(0.0,) * 3, std=(1.0,) * 3)
    rows = Split(images, np.array([0, 1]), np.array(["a", "b"]), ("x", "y"))
    found = frozen_features("efficientnet_lite0")(rows).inputs
    assert network.seen == [((2, 3, expected, expected), False)]
    np.testing.assert_allclose(found.values, np.ones((2, 3)), atol=0.01)  # (255 - 127) / 128


@pytest.mark.parametrize(
    "inputs",
    [
        Table(np.zeros((1, 3), np.float32)),
        ArrayImages(np.zeros((1, 1, 8, 8), np.uint8), mean=(0.0,), std=(1.0,)),
    ],
)
def test_other_rows_are_refused(inputs):
    with pytest.raises(ArgumentError, match="features of resnet50 are for colour images"):
        published_images("resnet50", inputs)


def test_other_networks_are_refused():
    with pytest.raises(ArgumentError, match="features must be one of efficientnet_lite0"):
        frozen_features("resnet50")  # no package holds its weights
    with pytest.raises(ArgumentError, match="features must be one of efficientnet_lite0"):
        frozen_features("mlp")
    with pytest.raises(ArgumentError, match="features must be one of efficientnet_lite0"):
        published_images("mlp", Table(np.zeros((1, 3), np.float32)))


PIXEL = np.array([10, 20, 30], np.uint8)  # red, green, blue


@pytest.fixture
def coloured(tmp_path):
    """One image of one colour, in memory and in a file."""
    Image.fromarray(np.tile(PIXEL, (32, 32, 1))).save(tmp_path / "a.png")
    pixels = np.tile(PIXEL[:, None, None], (1, 1, 32, 32)).reshape(1, 3, 32, 32)
    return {
        "memory": ArrayImages(pixels, mean=(0.5,) * 3, std=(0.5,) * 3),
        "file": ImageFiles(tmp_path, ("a.png",), resize=32, crop=32),
    }


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_bn_inception_gets_blue_green_red_pixels_of_0_to_255(coloured, kind):
    """As ``PublishedInput.normalise`` has it, also after the preparation was stored and read."""
    for inputs in (
        published_pixels("bn_inception", coloured[kind]),
        load_unlabelled(
            Unlabelled(coloured[kind], np.array(["a"])),
            like=without_rows(
                describe_preparation(published_pixels("bn_inception", coloured[kind]))
            ),
        ).inputs,
    ):
        row = inputs.batch(np.array([0]), generator=None)
        expected = PUBLISHED_INPUTS["bn_inception"].normalise(
            torch.from_numpy(np.tile(PIXEL[:, None, None], (1, 32, 32))[None])
        )
        torch.testing.assert_close(row, expected, atol=1e-3, rtol=1e-5)
        assert row[0, :, 0, 0].tolist() == pytest.approx([30 - 104, 20 - 117, 10 - 128], abs=1e-3)
    assert inputs.content_hash() != replace(inputs, blue_first=False).content_hash()


@pytest.mark.parametrize(
    ("model", "is_changed"),
    [
        ({"name": "bn_inception", "init": "weights.pth"}, True),
        ({"name": "bn_inception"}, False),
        ({"name": "resnet50", "init": "weights.pth"}, False),
    ],
)
def test_only_start_weights_of_bn_inception_change_the_pixels(coloured, model, is_changed):
    rows = Split(coloured["memory"], np.array([0]), np.array(["a"]), ("x",))
    data, is_scaled = with_start_pixels(ModelConfig(**model), Data("a", rows), is_scaled=False)
    assert data.train.inputs.blue_first is is_scaled is is_changed
