import numpy as np
import pytest

from imae.data.split import hold_out
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
