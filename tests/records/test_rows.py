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
    "label above the classes": FINE | {"given": np.array([0, 1, 7])},
    "negative label": FINE | {"given": np.array([0, -1, 1])},
    "true label above the classes": FINE | {"clean": np.array([0, 1, 7])},
    "no classes": FINE | {"class_names": NAMES[:0]},
    "class twice": FINE | {"class_names": np.repeat(NAMES[:1], len(NAMES))},
    "row twice": FINE | {"row_ids": IDS[[0, 1, 1]]},
}


@pytest.mark.parametrize("arrays", BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels_are_named(folder, arrays):
    np.savez(folder.path / "labels.npz", **FINE)
    assert len(folder.labels().given) == 3
    np.savez(folder.path / "labels.npz", **arrays)
    with pytest.raises(DataError, match=r"labels\.npz: ") as caught:
        folder.labels()
    assert "\n" not in str(caught.value)


HELD = {"row_ids": np.array(["h1", "h2"]), "given": np.array([0, 1]), "class_names": NAMES}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (HELD | {"given": np.array([0, 9])}, "given of row 'h2' is 9, outside"),
        (HELD | {"given": np.array([0])}, "must have the same length"),
        (HELD | {"class_names": NAMES[::-1]}, "its classes are not those of labels.npz"),
        (HELD | {"row_ids": np.array([IDS[1], "h2"])}, f"row {str(IDS[1])!r} is held out and"),
    ],
)
def test_held_out_labels_that_contradict_the_others_are_named(folder, arrays, message):
    np.savez(folder.path / "labels.npz", **FINE)
    np.savez(folder.path / "held_labels.npz", **HELD)
    assert len(folder.held_labels().given) == 2
    np.savez(folder.path / "held_labels.npz", **arrays)
    with pytest.raises(DataError, match=rf"held_labels\.npz: .*{message}"):
        folder.held_labels()


def test_rows_with_a_planted_label_are_held_out_under_the_given_one(folder):
    planted = np.array([False, True, False])
    np.savez(folder.path / "labels.npz", **FINE, planted=planted)
    np.savez(folder.path / "held_labels.npz", **HELD | {"row_ids": np.array([IDS[1], "h2"])})
    assert folder.held_labels().row_ids.tolist() == [IDS[1], "h2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted": np.array([0, 1, 99], np.int32)}, "predicted class 99 is outside"),
        ({"predicted": np.array([0, -2, 1], np.int32)}, "predicted class -2 is outside"),
        ({"margin": np.full(3, np.nan, np.float32)}, "has a margin for no row"),
        ({"margin": np.ones(2), "predicted": np.ones(2, int), "weight": np.ones(2)}, "has 2 rows"),
    ],
)
@pytest.mark.parametrize("kind", ["epoch", "held"])
def test_dynamics_that_contradict_the_labels_are_named(folder, change, message, kind):
    np.savez(folder.path / "labels.npz", **FINE)
    ids = np.array(["h1", "h2", "h3"])
    np.savez(folder.path / "held_labels.npz", **FINE | {"row_ids": ids})
    (folder.path / "dynamics").mkdir()
    fine = {
        "margin": np.array([1, np.nan, 2], np.float32),
        "predicted": np.array([0, -1, 1], np.int32),
        "weight": np.ones(3, np.float32),
    }
    path = folder.path / "dynamics" / f"{kind}-00001.npz"
    read = folder.dynamics if kind == "epoch" else folder.held_dynamics
    np.savez(path, **fine)
    assert len(read(1).margin) == 3
    np.savez(path, **fine | change)
    with pytest.raises(DataError, match=rf"{kind}-00001\.npz: .*{message}"):
        read(1)
