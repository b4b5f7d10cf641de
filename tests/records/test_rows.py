import numpy as np
import pytest

from imae.errors import DataError
from imae.records import EpochDynamics, RunFolder, RunLabels

IDS = np.array(["a", "ü", "c"])
GIVEN = np.array([0, 1, 0])
NAMES = np.array(["x", "y"])


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


@pytest.mark.parametrize("clean", [None, np.array([1, 1, 0])])
def test_labels_are_read_back_without_pickles(folder, clean):
    assert not folder.has_labels()
    folder.write_labels(RunLabels(IDS, GIVEN, NAMES, clean))
    assert folder.has_labels()
    read = folder.labels()
    assert read.row_ids.tolist() == ["a", "ü", "c"]
    assert read.given.dtype == np.int64
    assert read.class_names.tolist() == ["x", "y"]
    assert (read.clean is None) == (clean is None)


def test_dynamics_keep_their_types(folder):
    half = np.full(3, 0.5, np.float32)
    folder.write_dynamics(12, EpochDynamics(half, np.full(3, 1, np.int32), half))
    assert (folder.path / "dynamics" / "epoch-00012.npz").exists()
    read = folder.dynamics(12)
    assert read.margin.dtype == read.weight.dtype == np.float32
    assert read.predicted.dtype == np.int32
    assert folder.epochs() == [12]


def test_epochs_are_listed_in_order_without_other_files(folder):
    (folder.path / "dynamics").mkdir()
    for name in ("epoch-00010.npz", "epoch-00002.npz", "epoch-123456.npz", "epoch-last.npz"):
        (folder.path / "dynamics" / name).touch()
    (folder.path / "dynamics" / ".epoch-00003.npz.x.tmp").touch()
    assert folder.epochs() == [2, 10, 123456]


FINE = {"row_ids": IDS, "given": GIVEN, "class_names": NAMES}
BAD_LABELS = {
    "no names": {"row_ids": IDS, "given": GIVEN},
    "floats": FINE | {"given": GIVEN * 1.0},
    "lengths": FINE | {"clean": GIVEN[:2]},
    "ids": FINE | {"row_ids": IDS[:2]},
    "dimensions": FINE | {"given": GIVEN[None]},
    "numbers for names": FINE | {"class_names": GIVEN},
}


@pytest.mark.parametrize("arrays", BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels_are_named(folder, arrays):
    np.savez(folder.path / "labels.npz", **FINE)
    assert len(folder.labels().given) == 3
    np.savez(folder.path / "labels.npz", **arrays)
    with pytest.raises(DataError, match=r"labels\.npz: ") as caught:
        folder.labels()
    assert "\n" not in str(caught.value)
