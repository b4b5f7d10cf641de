from dataclasses import replace

import numpy as np
import pytest

from imae.data.features import Table
from imae.data.split import Data, Skipped, Split
from imae.errors import DataError


def test_split_knows_its_length_and_classes(table_split):
    split = table_split([0, 2, 1])
    assert len(split) == 3
    assert split.num_classes == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.array([0, 1])}, "3 rows but labels of shape"),
        ({"labels": np.array([[0], [1], [1]])}, "labels of shape"),
        ({"labels": np.array([0, 1, 2])}, "'row 2' has label 2, outside the 2 classes"),
        ({"labels": np.array([0, -1, 1])}, "'row 1' has label -1"),
        ({"labels": np.array([0, 1, 1], dtype=np.int32)}, "must be int64"),
        ({"clean_labels": np.array([0, 1, 5])}, "clean labels: row 'row 2' has label 5"),
        ({"row_ids": np.array(["a", "b", "a"])}, "'a' appears 2 times"),
        ({"row_ids": np.array(["a"])}, "row ids of shape"),
        ({"weights": np.array([1, -0.5, 1], np.float32)}, "'row 1' must be finite"),
        ({"weights": np.array([1, 1, np.nan], np.float32)}, "'row 2' must be finite"),
        ({"weights": np.array([np.inf, 1, 1], np.float32)}, "'row 0' must be finite"),
        ({"weights": np.array([1, 2e20, 1], np.float32)}, "'row 1' must be 0 or .* divide all"),
        ({"weights": np.array([1, 1, 5e-21], np.float32)}, "'row 2' must be 0 or from 1e-20"),
    ],
)
def test_split_refuses(table_split, change, message):
    with pytest.raises(DataError, match=message):
        replace(table_split([0, 1, 1]), **change)


def test_split_accepts_what_is_just_inside(table_split):
    weights = np.array([0, 1e-19, 1e20], np.float32)
    split = table_split([0, 1, 1], weights=weights, clean_labels=np.array([1, 1, 0]))
    assert split.weights is weights


def test_relabel_keeps_the_first_labels_as_clean(table_split):
    once = table_split([0, 1, 1]).relabel(np.array([1, 1, 1]))
    twice = once.relabel(np.array([0, 0, 0]))
    assert once.clean_labels.tolist() == twice.clean_labels.tolist() == [0, 1, 1]


def test_take_keeps_every_column_together(table_split):
    split = table_split(
        [0, 1, 1], weights=np.array([1, 2, 3], np.float32), clean_labels=np.array([1, 0, 1])
    )
    taken = split.take(np.array([2, 0]))
    assert taken.inputs.values.ravel().tolist() == [2, 0]
    assert taken.labels.tolist() == [1, 0]
    assert taken.row_ids.tolist() == ["row 2", "row 0"]
    assert taken.clean_labels.tolist() == [1, 1]
    assert taken.weights.tolist() == [3, 1]


def test_data_names_the_splits_that_are_there(table_split):
    data = Data("pets", table_split([0, 1]), test=table_split([1, 0, 1]))
    assert list(data.splits()) == ["train", "test"]
    assert (data.num_classes, data.class_names) == (2, ("a", "b"))


def test_map_splits_changes_all_and_keeps_the_rest(table_split):
    data = Data("pets", table_split([0, 1]), table_split([1]), None, (Skipped("x", "torn"),))
    halved = data.map_splits(lambda split: split.take(np.array([0])))
    assert {name: len(split) for name, split in halved.splits().items()} == {
        "train": 1,
        "validation": 1,
    }
    assert halved.skipped == data.skipped


def test_no_rows_are_a_split(table_split):
    empty = table_split([0, 1]).take(np.empty(0, np.int64))
    assert isinstance(empty, Split)
    assert len(empty) == len(Table(np.empty((0, 1), np.float32))) == 0
