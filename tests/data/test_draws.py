import numpy as np
import pytest
import torch

from imae._draws import numpy_generator, row_draws, torch_generator


def key() -> torch.Generator:
    return torch_generator(5, "augment", 2)


def test_streams_differ_by_seed_purpose_and_place():
    streams = [
        numpy_generator(*place).integers(2**60)
        for place in [
            (1, "shuffle", 0),
            (2, "shuffle", 0),
            (1, "augment", 0),
            (1, "shuffle", 1),
            (1, "shuffle"),
        ]
    ]
    assert len(set(streams)) == len(streams)


def test_the_numbers_never_change():
    # Golden values: a change here changes every run that was ever made.
    assert numpy_generator(1, "hold out").integers(1000, size=3).tolist() == GOLDEN_NUMPY
    assert torch.randint(1000, (3,), generator=key()).tolist() == GOLDEN_TORCH
    assert row_draws(np.arange(5), (9, 9, 2), generator=key()).tolist() == GOLDEN_ROWS


GOLDEN_NUMPY = [466, 904, 191]
GOLDEN_TORCH = [159, 411, 47]
GOLDEN_ROWS = [[0, 2, 7, 5, 2], [8, 7, 3, 0, 6], [0, 0, 1, 1, 0]]


def test_a_rows_numbers_do_not_depend_on_its_neighbours():
    rows = np.array([7, 3, 12, 3_000_000_000])
    together = row_draws(rows, (100, 100), generator=key())
    alone = np.concatenate([row_draws(rows[[i]], (100, 100), generator=key()) for i in range(4)], 1)
    assert np.array_equal(together, alone)


def test_each_call_moves_the_generator_on():
    generator = key()
    first, second = (row_draws(np.arange(50), (1000,), generator=generator) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("bound", [1, 2, 9, 30])
def test_numbers_fill_their_range_evenly(bound):
    number = 60_000
    drawn = row_draws(np.arange(number), (bound, bound), generator=key())
    for numbers in drawn:
        counts = np.bincount(numbers, minlength=bound)
        assert len(counts) == bound
        expected = number / bound
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert chi_square < bound + 6 * np.sqrt(2 * bound)


def test_numbers_of_one_row_are_independent():
    first, second = row_draws(np.arange(40_000), (2, 2), generator=key())
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0, abs=0.02)


def test_the_largest_bound_stays_inside():
    drawn = row_draws(np.arange(10_000), (2**32,), generator=key())
    assert drawn.min() >= 0
    assert 2**31 < drawn.max() < 2**32
