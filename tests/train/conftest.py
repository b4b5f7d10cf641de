import numpy as np
import pytest
import torch

from imae.train import build_config, journal

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


@pytest.fixture
def configure(arrays, tmp_path):
    """A small configuration, with some settings replaced: configure(train={"epochs": 2})."""

    def build(**sections):
        content = {
            "data": {"name": str(arrays), "options": {"pad": 1}},
            "model": {"name": "small_cnn"},
            "train": {"epochs": 3, "batch_size": 16},
            "machine": {"threads": 1, "accelerator": "cpu"},
            "out": str(tmp_path / "run"),
            "seed": 5,
        }
        for name, value in sections.items():
            is_section = isinstance(value, dict)
            content[name] = {**content.get(name, {}), **value} if is_section else value
        return build_config(content)

    return build


@pytest.fixture(autouse=True)
def _every_epoch_is_saved(monkeypatch):
    monkeypatch.setattr(journal, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
