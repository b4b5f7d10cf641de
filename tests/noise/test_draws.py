import numpy as np
import pytest
from scipy import stats

from imae._draws import choose_rows, draw_by_class, draw_by_row, draw_normal, seeded
from imae.errors import ArgumentError


def test_a_seed_has_its_own_stream():
    assert seeded(1).random() == seeded(1).random() == 0.5118216247002567
    assert seeded(1).random() != seeded(2).random()


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ArgumentError, match="seed must be"):
        seeded(seed)


def test_zero_is_a_seed():
    assert 0 <= seeded(0).random() < 1


def test_normal_numbers_are_normal_and_made_of_plain_draws():
    first, second = seeded(1).random(2)
    expected = np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * np.pi * second)
    assert draw_normal((1,), seeded(1)) == pytest.approx(expected, rel=1e-12)
    numbers = draw_normal((200, 500), seeded(2))
    assert numbers.shape == (200, 500)
    assert stats.kstest(numbers.ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("rate", "count"), [(0.0, 0), (0.004, 0), (0.006, 1), (0.4, 40), (0.999, 100)]
)
def test_exact_choice_is_exact(rate, count):
    rows = choose_rows(np.ones(100, dtype=bool), seeded(3), rate=rate, exact=True)
    assert rows.sum() == count


def test_exact_choice_counts_only_rows_that_may_change():
    may_change = np.arange(100) % 4 == 0
    rows = choose_rows(may_change, seeded(3), rate=0.4, exact=True)
    assert rows.sum() == 10
    assert not (rows & ~may_change).any()


@pytest.mark.parametrize("exact", [False, True])
def test_a_lower_rate_hits_a_part_of_the_same_rows(exact):
    may_change = np.arange(1000) % 3 > 0
    low, high = (choose_rows(may_change, seeded(3), rate=rate, exact=exact) for rate in (0.2, 0.6))
    assert 0 < low.sum() < high.sum()
    assert (low <= high).all()
    assert (high <= may_change).all()


def test_draws_follow_their_edges():
    probabilities = np.array([[0.25, 0.5, 0.25]] * 4)
    uniform = np.array([0.0, 0.25, 0.7499, 0.75])
    assert draw_by_row(probabilities, uniform).tolist() == [0, 1, 1, 2]


def test_no_draw_has_probability_zero_or_falls_off_the_end():
    # Ten times 0.1 sums to a little less than one: the largest draw must still be a class.
    probabilities = np.array([[0.0] + [0.1] * 10 + [0.0]] * 2)
    uniform = np.array([0.0, 1 - 2**-53])
    assert probabilities[0].cumsum()[-1] < 1
    assert draw_by_row(probabilities, uniform).tolist() == [1, 10]


def test_by_class_equals_by_row():
    matrix = np.array([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    labels = np.arange(300) % 3
    by_row = draw_by_row(matrix[labels], seeded(5).random(300))
    assert np.array_equal(draw_by_class(labels, matrix, seeded(5)), by_row)
