"""Scores from dynamics, against plain loops."""

import math

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit import (
    combined_ranks,
    final_disbelief,
    late_disbelief,
    mean_disbelief,
    mean_negative_margin,
    share_contradicted,
)
from imae.errors import ArgumentError, DataError
from imae.records import EpochDynamics


def epochs(number=4, rows=5):
    draws = seeded(1)
    return [
        EpochDynamics(
            draws.normal(size=rows).astype(np.float32) * 5,
            draws.integers(0, 3, rows).astype(np.int32),
            np.ones(rows, np.float32),
        )
        for _ in range(number)
    ]


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_mean_disbelief_is_the_mean_of_one_minus_the_probability():
    shown = epochs()
    for row, value in enumerate(mean_disbelief(shown)):
        assert value == pytest.approx(np.mean([1 - sigmoid(each.margin[row]) for each in shown]))


def test_the_margin_is_clipped_before_the_mean():
    shown = [EpochDynamics(np.array([100.0, -1.0]), np.array([0, 0]), np.ones(2))] * 2
    np.testing.assert_allclose(mean_negative_margin(shown, clip=4), [-4, 1])
    np.testing.assert_allclose(mean_negative_margin(shown, clip=math.inf), [-100, 1])


def test_the_share_contradicted_counts_other_predictions():
    shown, given = epochs(), np.array([0, 1, 2, 0, 1])
    expected = [np.mean([each.predicted[row] != given[row] for each in shown]) for row in range(5)]
    np.testing.assert_allclose(share_contradicted(shown, given), expected)


def test_final_and_late_disbelief_look_at_the_end():
    shown = epochs(4)
    np.testing.assert_allclose(final_disbelief(shown), mean_disbelief(shown[-1:]))
    np.testing.assert_allclose(late_disbelief(shown, 4), mean_disbelief(shown[2:]))
    np.testing.assert_allclose(late_disbelief(shown[:1], 1), mean_disbelief(shown[:1]))


def test_a_row_that_an_epoch_did_not_see_is_judged_by_the_others():
    first, second = epochs(2)
    unseen = EpochDynamics(second.margin.copy(), second.predicted.copy(), second.weight)
    unseen.margin[2], unseen.predicted[2] = np.nan, -1
    assert mean_disbelief([first, unseen])[2] == pytest.approx(mean_disbelief([first])[2])
    assert final_disbelief([first, unseen])[2] == pytest.approx(final_disbelief([first])[2])
    with pytest.raises(DataError, match="row 2"):
        mean_disbelief([unseen])


def test_huge_margins_do_not_overflow():
    shown = [EpochDynamics(np.array([1e30, -1e30], np.float32), np.array([0, 0]), np.ones(2))]
    np.testing.assert_allclose(mean_disbelief(shown), [0, 1], atol=1e-12)


def test_a_run_without_epochs_is_refused():
    for score in (mean_disbelief, final_disbelief, mean_negative_margin):
        with pytest.raises(DataError, match="no dynamics"):
            score([])


def test_ranks_are_joined_whatever_the_scales():
    first, second = np.array([1.0, 5.0, 2.0]), np.array([1e9, 3e9, 2e9])
    np.testing.assert_allclose(combined_ranks(first, second), [0, 1, 0.5])
    np.testing.assert_allclose(combined_ranks(first, -second, weight=1), [1, 0, 0.5])
    np.testing.assert_allclose(combined_ranks(np.ones(3), np.ones(3)), np.full(3, 0.5))
    with pytest.raises(ArgumentError, match="weight"):
        combined_ranks(first, second, weight=1.1)
