import io

import numpy as np
import pytest

from imae.errors import DataError
from imae.report.dynamics import NUM_BINS, Labels, gather, list_epochs, pool, read_labels

GIVEN = np.array([0, 1, 1, 0, 1])
CLEAN = np.array([0, 1, 0, 1, 1])
LABELS = Labels(GIVEN, CLEAN, ("a", "b"))


def write_epoch(folder, epoch, **arrays):
    (folder / "dynamics").mkdir(exist_ok=True)
    if "margin" in arrays:
        arrays = {"predicted": np.zeros(len(arrays["margin"]), np.int32), **arrays}
    np.savez(folder / "dynamics" / f"epoch-{epoch:05d}.npz", **arrays)


def floats(*numbers):
    return np.array(numbers, dtype=np.float32)


def test_labels_are_read_with_their_truth(make_run):
    labels = read_labels(make_run(class_names=("cat", "dog")))
    assert labels.class_names == ("cat", "dog")
    assert 0.3 < labels.wrong_share < 0.5
    assert read_labels(make_run("other", truth=False)).wrong_share is None


def test_labels_that_are_not_there_yet(tmp_path):
    assert read_labels(tmp_path) is None


def test_no_rows_have_no_share_of_wrong_ones():
    assert Labels(GIVEN[:0], CLEAN[:0], ()).wrong_share is None


def test_rows_are_counted_by_probability_and_kind(tmp_path):
    margin = floats(-100, 0, 3, 100, np.nan)
    weight = floats(1, 2, 4, 6, np.nan)
    write_epoch(tmp_path, 1, margin=margin, weight=weight)
    kinds = gather(tmp_path, LABELS, [1])[1]
    assert np.flatnonzero(kinds["clean"].counts).tolist() == [0, NUM_BINS // 2]
    assert kinds["wrong"].counts[-1] == 2  # p = 0.953 and p = 1
    assert (kinds["clean"].mean_weight, kinds["wrong"].mean_weight) == (1.5, 5.0)
    assert kinds["clean"].shares.sum() == pytest.approx(1)


def test_without_truth_all_rows_are_one_kind(tmp_path):
    write_epoch(tmp_path, 1, margin=floats(1, 1, 1, 1, 1), weight=floats(1, 2, 3, 4, 5))
    kinds = gather(tmp_path, Labels(GIVEN, None, ("a", "b")), [1])[1]
    assert list(kinds) == ["all"]
    assert kinds["all"].mean_weight == 3


def test_an_infinite_margin_is_certain(tmp_path):
    margin = floats(np.inf, -np.inf, np.inf, np.inf, -np.inf)
    write_epoch(tmp_path, 1, margin=margin, weight=floats(1, 1, 1, 1, 1))
    clean = gather(tmp_path, LABELS, [1])[1]["clean"]
    assert (clean.counts[0], clean.counts[-1]) == (2, 1)


def test_an_epoch_that_saw_nothing(tmp_path):
    nothing = floats(*[np.nan] * 5)
    write_epoch(tmp_path, 1, margin=nothing, weight=nothing)
    clean = gather(tmp_path, LABELS, [1])[1]["clean"]
    assert clean.mean_weight is None
    assert clean.shares.sum() == 0


def test_epochs_are_listed_in_order_without_strays(tmp_path):
    for epoch in (2, 10, 1, 123456):
        write_epoch(tmp_path, epoch, margin=floats(1))
    (tmp_path / "dynamics" / ".epoch-00003.npz.x.tmp").write_bytes(b"")
    (tmp_path / "dynamics" / "epoch-last.npz").write_bytes(b"")
    assert list_epochs(tmp_path) == [1, 2, 10, 123456]
    assert list_epochs(tmp_path / "nowhere") == []


def test_epochs_that_are_missing_are_left_out(tmp_path):
    write_epoch(tmp_path, 2, margin=floats(*range(5)), weight=floats(*range(5)))
    assert list(gather(tmp_path, LABELS, [1, 2, 3])) == [2]


def test_pooling_adds_up(tmp_path):
    write_epoch(tmp_path, 1, margin=floats(*range(5)), weight=floats(*range(5)))
    one = gather(tmp_path, LABELS, [1])
    both = pool([one, one, {3: one[1]}])
    assert list(both) == [1, 3]
    np.testing.assert_array_equal(both[1]["wrong"].counts, 2 * one[1]["wrong"].counts)
    assert both[1]["wrong"].mean_weight == one[1]["wrong"].mean_weight
    np.testing.assert_array_equal(both[3]["wrong"].counts, one[1]["wrong"].counts)


def saved(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


FINE = {
    "margin": floats(*range(5)),
    "predicted": np.zeros(5, np.int32),
    "weight": floats(*range(5)),
}
DAMAGED = {
    "empty": b"",
    "no archive": b"margin",
    "cut": saved(**FINE)[:-40],
    "flipped": saved(**FINE).replace(b"descr", b"dexcr"),
    "one array": b"\x93NUMPY" + saved(**FINE).split(b"\x93NUMPY", 1)[1],
    "missing": saved(margin=FINE["margin"]),
    "one too short": saved(**FINE | {"margin": floats(1)}),
    "two dimensions": saved(**FINE | {"weight": floats(*range(5))[:, None]}),
    "text": saved(**FINE | {"weight": np.array(list("abcde"))}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_dynamics_are_named_in_one_line(tmp_path, content):
    write_epoch(tmp_path, 1)
    (tmp_path / "dynamics" / "epoch-00001.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"epoch-00001\.npz: ") as caught:
        gather(tmp_path, LABELS, [1])
    assert "\n" not in str(caught.value)


def test_a_pickle_is_not_opened(tmp_path):
    write_epoch(tmp_path, 1, margin=np.array([object()] * 5), weight=FINE["weight"])
    with pytest.raises(DataError, match="cannot be read"):
        gather(tmp_path, LABELS, [1])


def test_dynamics_of_other_rows_are_named(tmp_path):
    write_epoch(tmp_path, 1, **{name: values[:4] for name, values in FINE.items()})
    with pytest.raises(DataError, match="epoch 1 has 4 rows, but there are 5 labels"):
        gather(tmp_path, LABELS, [1])


def test_damaged_labels_are_named(tmp_path):
    (tmp_path / "labels.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"labels\.npz: cannot be read"):
        read_labels(tmp_path)
