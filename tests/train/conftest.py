import shutil

import numpy as np
import pytest
import torch

from imae.train import Run, build_config, journal, train

SIDE = 6
NUM_CLASSES = 3


def make_arrays(path, rows=90):
    """Images whose brightness says their class, with a test part and the true labels."""
    generator = np.random.Generator(np.random.PCG64(7))
    clean = np.arange(rows) % NUM_CLASSES
    images = generator.integers(0, 90, (rows, SIDE, SIDE), dtype=np.uint8)
    images += (80 * clean).astype(np.uint8)[:, None, None]
    split = np.where(np.arange(rows) % 5 == 4, "test", "train")
    given = clean.copy()
    flipped = (np.arange(rows) % 7 == 0) & (split == "train")
    given[flipped] = (given[flipped] + 1) % NUM_CLASSES
    np.savez(path, x=images, y=given, clean_labels=clean, split=split)
    return path


@pytest.fixture
def arrays(tmp_path):
    return make_arrays(tmp_path / "set.npz")


def small_config(arrays, out, **sections):
    """A small configuration, with some settings replaced."""
    content = {
        "data": {"name": str(arrays), "options": {"pad": 1}},
        "model": {"name": "small_cnn"},
        "train": {"epochs": 3, "batch_size": 16},
        "machine": {"threads": 1, "accelerator": "cpu"},
        "out": str(out),
        "seed": 5,
    }
    for name, value in sections.items():
        is_section = isinstance(value, dict)
        content[name] = {**content.get(name, {}), **value} if is_section else value
    return build_config(content)


@pytest.fixture
def configure(arrays, tmp_path):
    """A small configuration: configure(train={"epochs": 2})."""

    def build(**sections):
        return small_config(arrays, **{"out": tmp_path / "run", **sections})

    return build


@pytest.fixture(scope="session")
def _trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    settings = {"train": {"epochs": 2, "checkpoint_every": 5}, "optimizer": {"name": "momentum"}}
    return train(small_config(make_arrays(folder / "set.npz"), folder / "run", **settings))


@pytest.fixture
def trained(_trained, tmp_path):
    """A finished run of two epochs with two checkpoints, to be damaged."""
    return Run(shutil.copytree(_trained.path, tmp_path / "trained"))


@pytest.fixture(autouse=True)
def _every_epoch_is_saved(monkeypatch):
    monkeypatch.setattr(journal, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
