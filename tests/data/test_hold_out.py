from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles
from imae.data.images import ArrayImages
from imae.data.split import hold_out, sample_rows
from imae.errors import ArgumentError

LABELS = [0] * 50 + [1] * 30 + [2] * 17 + [3] * 3


@pytest.mark.parametrize("fraction", [0.05, 0.1, 1 / 3, 0.5, 0.9])
def test_parts_are_disjoint_whole_and_stratified(table_split, fraction):
    split = table_split(LABELS)
    train, held = hold_out(split, fraction, seed=1)
    assert sorted([*train.row_ids, *held.row_ids]) == sorted(split.row_ids)
    assert len(held) == round(fraction * 100)
    counts = np.bincount(held.labels, minlength=4)
    assert np.abs(counts - fraction * np.bincount(LABELS)).max() < 1
    for part in (train, held):
        positions = part.inputs.values.ravel()
        assert (np.diff(positions) > 0).all()
        assert [f"row {int(position)}" for position in positions] == part.row_ids.tolist()


def test_the_seed_decides(table_split):
    split = table_split(LABELS)
    chosen = [tuple(hold_out(split, 0.2, seed)[1].row_ids) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_every_row_can_be_held_out(table_split):
    split = table_split([0, 1] * 5)
    seen = {row for seed in range(60) for row in hold_out(split, 0.2, seed)[1].row_ids}
    assert seen == set(split.row_ids)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_refuses_a_fraction_outside(table_split, fraction):
    with pytest.raises(ArgumentError, match="fraction must be in"):
        hold_out(table_split(LABELS), fraction, seed=1)


@pytest.mark.parametrize("fraction", [0.004, 0.996])
def test_refuses_an_empty_part(table_split, fraction):
    with pytest.raises(ArgumentError, match="leaves a part empty"):
        hold_out(table_split(LABELS), fraction, seed=1)
    assert len(hold_out(table_split(LABELS), 0.006, seed=1)[1]) == 1


def test_refuses_a_negative_seed(table_split):
    with pytest.raises(ArgumentError, match="seed"):
        hold_out(table_split(LABELS), 0.5, seed=-1)


def copies(kind, folder):
    """Twenty rows of which each is there twice, as inputs of a kind."""
    numbers = np.repeat(np.arange(20), 2)
    if kind == "table":
        return Table(numbers[:, None].astype(np.float32))
    if kind == "images":
        pixels = np.zeros((40, 1, 2, 2), np.uint8)
        pixels[:, 0, 0, 0] = numbers
        return ArrayImages(pixels, mean=(0.5,), std=(0.5,))
    if kind == "texts":
        return hash_text([f"text number{number}" for number in numbers])
    for row, number in enumerate(numbers):
        Image.new("RGB", (4, 4), (int(number), 0, 0)).save(folder / f"{row}.bmp")
    return ImageFiles(folder, [f"{row}.bmp" for row in range(40)])


@pytest.mark.parametrize("kind", ["table", "images", "texts", "files"])
@pytest.mark.parametrize("seed", range(3))
def test_copies_of_a_row_are_never_divided(table_split, tmp_path, kind, seed):
    # The copies may even have different labels, as copies of one photo in two folders do.
    labels = np.array([0, 1] * 10 + [0, 0] * 5 + [1, 1] * 5)
    split = replace(table_split(labels.tolist()), inputs=copies(kind, tmp_path))
    train, held = hold_out(split, 0.25, seed)
    assert 6 <= len(held) <= 14
    numbers = [
        {int(name.removeprefix("row ")) // 2 for name in part.row_ids} for part in (train, held)
    ]
    assert numbers[0] & numbers[1] == set()


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_one_row_of_each_class_is_always_trained_on(table_split, fraction):
    labels = [0] * 40 + [1] + [2] * 2 + [3] * 3
    for seed in range(10):
        train, held = hold_out(table_split(labels), fraction, seed)
        assert set(train.labels) == {0, 1, 2, 3}
        assert len(held) == round(fraction * len(labels))


def test_classes_of_one_row_leave_nothing_to_hold_out(table_split):
    with pytest.raises(ArgumentError, match="every class has one row"):
        hold_out(table_split([0, 1, 2]), 0.4, seed=1)


def test_a_table_of_few_categories_is_divided_row_by_row(table_split):
    split = table_split([0, 1] * 50)
    split = replace(split, inputs=Table(np.zeros((100, 1), np.float32)))
    train, held = hold_out(split, 0.2, seed=1)
    assert (len(train), len(held)) == (80, 20)


def test_a_sample_has_exactly_the_rows_asked_for(table_split, tmp_path):
    split = replace(table_split([0, 1] * 20), inputs=copies("table", tmp_path))
    for number in (1, 7, 39):
        assert len(sample_rows(split, number, seed=1)) == number
    assert np.bincount(sample_rows(split, 10, seed=3).labels).tolist() == [5, 5]
    for number in (0, 40):
        with pytest.raises(ArgumentError, match="number must be"):
            sample_rows(split, number, seed=1)
