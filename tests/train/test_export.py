import json
import logging

import numpy as np
import pytest
import torch

from imae.data import load
from imae.errors import ArgumentError, DataError, ImaeError
from imae.losses import cap_logits
from imae.models import build
from imae.train import build_config, train
from imae.train.export import describe, export

FACTS = ("class_names", "input_shape", "model", "output", "preparation")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return train(
        build_config(
            {
                "data": {"name": "digits"},
                "model": {"name": "small_cnn"},
                "train": {"steps": 3},
                "machine": {"accelerator": "cpu", "threads": 1},
                "out": str(tmp_path_factory.mktemp("runs") / "digits"),
            }
        )
    )


@pytest.fixture
def small_run(tmp_path):
    """Trains two steps on a file."""

    def make(path, **data):
        config = {
            "data": {"name": str(path), **data},
            "train": {"steps": 2, "batch_size": 4},
            "machine": {"accelerator": "cpu", "threads": 1},
            "out": str(tmp_path / "run"),
        }
        return train(build_config(config))

    return make


@pytest.fixture
def rows():
    return load("digits").test.inputs.batch(np.arange(5), generator=None)


def expected_logits(run, rows):
    with torch.no_grad():
        return run.load_model()(rows)


def check_export_is_silent(digits_run, path, format, capfd, caplog):
    """No path of this machine is written, and nothing is said."""
    with caplog.at_level(logging.WARNING):
        export(digits_run, path, format=format)
    content = path.read_bytes()
    assert str(digits_run.path).encode() not in content
    assert b"imae/models/" not in content
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_onnx_gives_the_same_logits_for_any_number_of_rows(
    digits_run, rows, tmp_path, capfd, caplog
):
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "digits.onnx"
    check_export_is_silent(digits_run, path, "onnx", capfd, caplog)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for number in (1, 5):
        (logits,) = session.run(["logits"], {"x": rows[:number].numpy()})
        expected = expected_logits(digits_run, rows[:number]).numpy()
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["class_names"]) == list("0123456789")
    assert json.loads(facts["preparation"]) == {
        "kind": "images",
        "mean": [0.3053],
        "std": [0.3759],
        "shape": [1, 8, 8],
    }


def test_torch_gives_the_same_logits_for_any_number_of_rows(
    digits_run, rows, tmp_path, capfd, caplog
):
    path = tmp_path / "digits.pt2"
    check_export_is_silent(digits_run, path, "torch", capfd, caplog)
    path.unlink()
    export(digits_run.path, path, format="torch", which="best")
    texts = dict.fromkeys(FACTS, "")
    module = torch.export.load(path, extra_files=texts).module()
    with torch.no_grad():
        for number in (1, 5):
            expected = digits_run.load_model("best")(rows[:number])
            torch.testing.assert_close(module(rows[:number]), expected)
    assert json.loads(texts["input_shape"]) == [1, 8, 8]


def test_safetensors_rebuilds_the_network(digits_run, rows, tmp_path):
    from safetensors import safe_open

    path = tmp_path / "digits.safetensors"
    export(digits_run, path, format="safetensors")
    with safe_open(path, framework="pt") as file:
        facts = {name: json.loads(file.metadata()[name]) for name in FACTS}
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    network = build(facts["model"]["name"], num_classes=len(facts["class_names"]))
    network.load_state_dict(weights)
    with torch.no_grad():
        logits = cap_logits(network.eval()(rows), facts["output"]["cap"])
        assert logits.equal(expected_logits(digits_run, rows))


def test_a_table_is_described_by_its_columns_and_statistics(small_run, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("b,a,c,label\n" + "".join(f"{i},{i * i},7,{'xy'[i % 2]}\n" for i in range(9)))
    run = small_run(path)
    path.unlink()
    trained = run.folder.labels().row_ids.astype(int)  # the statistics are those of these rows
    facts = describe(run)
    preparation = facts["preparation"]
    assert facts["class_names"] == ["x", "y"]
    assert facts["input_shape"] == [3]
    assert (preparation["kind"], preparation["columns"]) == ("features", ["b", "a", "c"])
    raw = np.array([[i, i * i, 7] for i in range(9)])
    prepared = (raw - preparation["mean"]) / preparation["std"]
    np.testing.assert_allclose(prepared[trained].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(prepared[trained].std(0), [1, 1, 0], atol=1e-6)


def test_photos_are_described(small_run, tmp_path):
    from PIL import Image

    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 12)).save(path)
    run = small_run(tmp_path / "pets", options={"resize": 10, "crop": 8}, hold_out=0)
    preparation = describe(run)["preparation"]
    assert (preparation["resize"], preparation["crop"]) == (10, 8)
    assert len(preparation["mean"]) == len(preparation["std"]) == 3


def test_texts_are_described(small_run, tmp_path):
    path = tmp_path / "films.csv"
    path.write_text("text,label\n" + "good film,yes\nbad film,no\n" * 5)
    described = describe(small_run(path))["preparation"]
    assert (described["kind"], described["column"]) == ("texts", "text")
    assert len(described["weights"]) == described["num_features"] == 8192


def test_features_of_a_frozen_network_are_described(configure, arrays, monkeypatch, tmp_path):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["x"] = np.repeat(content["x"][:, None], 3, axis=1).repeat(6, 2).repeat(6, 3)
    np.savez(arrays, **content)
    weights = tmp_path / "lite0.pth"
    torch.save(build("efficientnet_lite0", num_classes=1000, seed=1).state_dict(), weights)
    monkeypatch.setenv("IMAE_DATA", str(tmp_path))
    monkeypatch.setattr("imae.train.preparation.pretrained_weights", lambda _: weights)
    features = {"features": "efficientnet_lite0"}
    run = train(configure(data=features, model={"name": "mlp"}, train={"epochs": 1}))
    arrays.unlink()
    facts = describe(run)
    assert facts["input_shape"] == [1280]
    assert facts["preparation"]["network"] == "efficientnet_lite0"
    assert facts["preparation"]["images"]["mean"] == pytest.approx([127 / 255] * 3)
    assert len(facts["preparation"]["mean"]) == len(facts["preparation"]["std"]) == 1280
    export(run, tmp_path / "head.safetensors", format="safetensors")


def test_what_is_refused(digits_run, tmp_path):
    with pytest.raises(ArgumentError, match="format must be one of onnx, torch, safetensors"):
        export(digits_run, tmp_path / "x", format="keras")
    with pytest.raises(ArgumentError, match="which must be one of"):
        export(digits_run, tmp_path / "x", which="last")
    with pytest.raises(DataError, match="is not a run"):
        export(tmp_path / "nowhere", tmp_path / "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ImaeError, match=r"folder: cannot be written \(Is a directory\)"):
        export(digits_run, tmp_path / "folder", format="safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_network_that_cannot_be_traced_is_one_line(digits_run, tmp_path, monkeypatch):
    network = digits_run.load_model()
    monkeypatch.setattr(type(network), "forward", lambda _, x: x if x.sum().item() > 0 else -x)
    with pytest.raises(ArgumentError, match="SmallCNN cannot be traced") as caught:
        export(digits_run, tmp_path / "x", format="torch")
    assert "\n" not in str(caught.value)
