import numpy as np
import pytest
from PIL import Image

from imae.data import image_files
from imae.train import build_config
from imae.train.loop import plan


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(30):
            pixels = np.full((40, 40, 3), 4 * number, np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


def test_few_photos_are_read_and_no_features_are_extracted(photos, tmp_path, monkeypatch):
    read = []
    decode = image_files.decode
    monkeypatch.setattr(image_files, "decode", lambda *a, **b: read.append(a) or decode(*a, **b))
    monkeypatch.setenv("IMAE_DATA", str(tmp_path / "cache"))
    config = build_config(
        {
            "data": {
                "name": str(photos),
                "features": "efficientnet_lite0",
                "options": {"crop": 32},
            },
            "machine": {"threads": 1},
        }
    )
    planned = plan(config)
    assert planned.feature_seconds > 0
    assert planned.settings["model.name"] == "linear"
    assert len(read) < 10
    assert not (tmp_path / "cache").exists()


def test_frozen_features_are_suggested_for_photos(photos, monkeypatch):
    monkeypatch.setattr("imae.train.loop._LONG_RUN", 0.0)
    model = {"name": "small_cnn", "arguments": {"in_channels": 3}}
    data = {"name": str(photos), "options": {"crop": 32, "resize": 32}}
    config = build_config({"data": data, "model": model, "machine": {"threads": 1}})
    (hint,) = plan(config).hints
    assert "--features efficientnet_lite0" in hint


def test_it_says_what_would_run_and_writes_nothing(configure, tmp_path):
    before = set(tmp_path.rglob("*"))
    planned = plan(configure(machine={"devices": 2}))
    assert set(tmp_path.rglob("*")) == before
    assert planned.num_rows == 65
    assert planned.total_steps == 15
    assert planned.epoch_seconds > 0
    assert abs(planned.total_seconds - 3 * planned.epoch_seconds) < 1e-9
    assert planned.num_parameters > 1000
    assert planned.settings["model.name"] == "small_cnn"
    assert planned.settings["machine.devices"] == "2"
    assert "noise" not in planned.settings
