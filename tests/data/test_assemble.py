import numpy as np
import pytest

from imae.data.assemble import Columns, assemble, divide, position_ids, written_ids
from imae.data.features import Table
from imae.errors import DataError


def columns(labels, /, **changes) -> Columns:
    fields = {
        "source": "pets.csv",
        "inputs": Table(np.arange(len(labels), dtype=np.float32)[:, None]),
        "labels": labels,
        "row_ids": position_ids(len(labels)),
    }
    return Columns(**{**fields, **changes})


def test_the_training_rows_name_the_classes():
    data = assemble(
        {"test": columns(["dog"]), "train": columns(["cat", "dog", "owl"])}, name="pets"
    )
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog", "owl")
    assert data.test.class_names == data.class_names
    assert data.test.labels.tolist() == [1]
    assert data.validation is None


def test_clean_labels_and_weights_come_along():
    train = columns(["a", "b"], clean_labels=["b", "c"], weights=np.array([1, 2], dtype=np.float32))
    split = assemble({"train": train}, name="x").train
    assert split.class_names == ("a", "b", "c")
    assert split.clean_labels.tolist() == [1, 2]
    assert split.weights.tolist() == [1, 2]


def test_a_clean_label_only_in_test_was_never_seen():
    parts = {"train": columns(["a", "b"]), "test": columns(["a"], clean_labels=["c"])}
    with pytest.raises(DataError, match="row '0': label 'c' was never seen in training"):
        assemble(parts, name="x")


def test_errors_of_the_split_name_the_source():
    wrong = columns(["a", "b"], weights=np.array([1, -2], np.float32))
    with pytest.raises(DataError, match=r"pets\.csv: weight of row '1'"):
        assemble({"train": wrong}, name="x")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"test": ["a", "b"]}, "no rows to train on"),
        ({"train": []}, "no rows to train on"),
    ],
)
def test_training_rows_are_needed(parts, message):
    with pytest.raises(DataError, match=message):
        assemble({part: columns(labels) for part, labels in parts.items()}, name="x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["a", "b", "b"]}, r"pets.csv: 2 rows but labels of shape \(3,\)"),
        ({"clean_labels": ["a", "b", "b"]}, r"2 rows but clean labels of shape \(3,\)"),
        ({"row_ids": position_ids(3)}, r"2 rows but row ids of shape \(3,\)"),
        ({"weights": np.ones(1, np.float32)}, r"2 rows but weights of shape \(1,\)"),
    ],
)
def test_lengths_must_agree(change, message):
    with pytest.raises(DataError, match=message):
        assemble({"train": columns(["a", "b"], **change)}, name="x")


def test_divide_finds_each_row_its_split():
    rows = columns(
        ["a", "b", "a", "b", "a"],
        clean_labels=["b"] * 5,
        weights=np.arange(5, dtype=np.float32),
    )
    parts = divide(rows, ["train", "VAL ", "Test", "training", "dev"])
    assert {name: part.row_ids.tolist() for name, part in parts.items()} == {
        "train": ["0", "3"],
        "validation": ["1", "4"],
        "test": ["2"],
    }
    assert parts["train"].inputs.values.ravel().tolist() == [0, 3]
    assert parts["train"].labels == ["a", "b"]
    assert parts["train"].weights.tolist() == [0, 3]
    assert parts["test"].clean_labels == ["b"]


def test_divide_without_splits_is_all_training():
    rows = columns(["a", "b"])
    assert divide(rows, None) == {"train": rows}


@pytest.mark.parametrize("split", ["", "holdout"])
def test_an_unknown_split_names_the_row(split):
    with pytest.raises(DataError, match=f"row '1': split '{split}' is none of"):
        divide(columns(["a", "b"]), ["train", split])


def test_ids_may_be_anything_that_can_be_told_apart():
    ids = ["../../etc/passwd", "🐈", "a,b\n", " a", "a", "=1+1", "x" * 512]
    assert written_ids(ids, source="f").tolist() == ids


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "a"], "row id 'a' appears twice, in rows 0 and 2"),
        (["a", " "], "row 1 .* has no id"),
        (["a", "x" * 513], "row 1 .* id of 513 characters"),
        (["a", "a\0"], "row 1 .* no NUL"),
        (["a", "caf\udce9"], "row 1 .* not UTF-8 text, .*; rename it"),
    ],
)
def test_ids_are_refused(ids, message):
    with pytest.raises(DataError, match=message):
        written_ids(ids, source="f")
