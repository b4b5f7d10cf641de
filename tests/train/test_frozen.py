from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from imae.data import ArrayImages, ImageFiles, Split, Table
from imae.errors import ArgumentError
from imae.models import Network
from imae.train import preparation
from imae.train.preparation import frozen_features, published_images


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
    with pytest.raises(ArgumentError, match="features must be one of resnet50"):
        frozen_features("mlp")
    with pytest.raises(ArgumentError, match="features must be one of resnet50"):
        published_images("mlp", Table(np.zeros((1, 3), np.float32)))
