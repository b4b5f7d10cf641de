import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.by_class import check_transition, from_transition, redraw

MATRIX = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])


def test_rate_is_what_the_matrix_changes_on_average():
    noisy = from_transition([0, 1, 2, 2], transition=MATRIX, seed=1)
    assert noisy.rate == pytest.approx((0.3 + 0 + 0.5 + 0.5) / 4)
    assert noisy.kind == "transition"
    assert noisy.seed == 1


def test_the_rate_is_never_below_zero():
    noisy = from_transition([0, 1], transition=np.eye(2) * (1 + 5e-7), seed=1)
    assert noisy.rate == 0


def test_labels_follow_the_matrix():
    clean = np.repeat(np.arange(3), 20_000)
    noisy = from_transition(torch.from_numpy(clean), transition=MATRIX, seed=2)
    counts = np.zeros((3, 3))
    np.add.at(counts, (clean, noisy.labels), 1)
    sigma = np.sqrt(MATRIX * (1 - MATRIX) / 20_000)
    assert (np.abs(counts / 20_000 - MATRIX) <= 4 * sigma).all()
    assert np.array_equal(noisy.is_flipped, noisy.labels != clean)
    assert np.array_equal(noisy.transition, MATRIX)


@settings(deadline=None)  # a busy machine is no failure
@given(
    weights=st.integers(2, 6).flatmap(
        lambda size: st.lists(
            st.lists(st.floats(0, 1), min_size=size, max_size=size).filter(
                lambda row: sum(row) > 0
            ),
            min_size=size,
            max_size=size,
        )
    ),
    seed=st.integers(0, 2**64),
)
def test_no_row_is_given_a_label_of_probability_zero(weights, seed):
    matrix = np.array(weights)
    matrix = matrix / matrix.sum(axis=1, keepdims=True)
    clean = np.arange(60) % len(matrix)
    noisy = from_transition(clean, transition=matrix, seed=seed)
    assert (matrix[clean, noisy.labels] > 0).all()
    assert np.array_equal(noisy.is_flipped, noisy.labels != clean)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0]], r"shape \(C, C\)"),
        ([1.0, 0.0], r"shape \(C, C\)"),
        ([[1.0, 0.0]], r"shape \(C, C\)"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], r"shape \(C, C\)"),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], r"shape \(C, C\)"),
        ([["a", "b"], ["c", "d"]], "hold numbers"),
        ([[1.0, 0.0], [1.5, -0.5]], "not negative, row 1"),
        ([[float("nan"), 1.0], [0.0, 1.0]], "finite and not negative, row 0"),
        ([[float("inf"), 1.0], [0.0, 1.0]], "finite and not negative, row 0"),
        ([[1.0, 0.0], [0.5, 0.5 + 2e-6]], "sum to 1, row 1"),
        ([[1.0, 0.0], [0.5, 0.5 - 2e-6]], "sum to 1, row 1"),
    ],
)
def test_bad_matrices_are_refused(matrix, message):
    with pytest.raises(ArgumentError, match=message):
        check_transition("transition", matrix)


def test_rounding_in_a_matrix_is_let_pass():
    matrix = [[1.0, 0.0], [0.5, 0.5 + 5e-7]]
    assert np.array_equal(check_transition("transition", matrix), np.array(matrix))


def test_labels_outside_the_matrix_are_refused():
    with pytest.raises(ArgumentError, match=r"labels must be in \[0, 3\), got 3"):
        from_transition([3], transition=MATRIX, seed=1)


def test_a_redraw_leaves_classes_of_the_identity_alone():
    destinations = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    clean = np.arange(300) % 3
    noisy = redraw(clean, destinations, seeded(4), kind="made up", rate=0.5, seed=4, exact=True)
    assert noisy.is_flipped.sum() == 100
    assert not noisy.is_flipped[clean == 1].any()
    expected = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    assert noisy.transition.tolist() == expected


@pytest.mark.parametrize("rate", [-1e-9, 1.0, float("nan")])
def test_rates_outside_are_refused(rate):
    with pytest.raises(ArgumentError, match=r"rate must be in \[0, 1\)"):
        redraw(
            np.array([0, 1]), np.eye(2), seeded(4), kind="made up", rate=rate, seed=4, exact=False
        )
