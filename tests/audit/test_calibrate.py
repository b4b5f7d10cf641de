"""Probabilities of being wrong: the monotone map, planted rows, flags, sure and unsure models."""

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit import audit
from imae.audit.calibrate import (
    as_unseen,
    flag_count,
    monotone,
    neighbour_weight,
    planted_probability,
    sharpened,
    surest_row,
)
from imae.audit.evidence import likely_classes
from imae.audit.noise_model import fit_noise_model
from imae.errors import ArgumentError


def test_monotone_equals_the_best_non_falling_fit():
    from sklearn.isotonic import IsotonicRegression

    draws = seeded(1)
    score = draws.random(300).round(2)  # with ties
    values = score + 0.3 * draws.normal(size=300)
    reference = IsotonicRegression().fit(score, values)
    np.testing.assert_allclose(monotone(score, values, score), reference.predict(score), atol=1e-9)


def test_planted_rows_calibrate_uniform_noise():
    draws = seeded(1)
    wrong = draws.random(20_000) < 0.3
    score = draws.normal(size=20_000) + 2 * wrong
    planted = draws.normal(size=2_000) + 2
    found = planted_probability(score, planted, rate=0.3)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01)):
        inside = (found >= low) & (found < high)
        assert found[inside].mean() == pytest.approx(wrong[inside].mean(), abs=0.06)
    with pytest.raises(ArgumentError, match=r"data\.planted"):
        planted_probability(score, planted[:0], rate=0.3)


def test_flags_follow_the_rate_or_the_precision():
    suspicion = np.array([0.9, 0.8, 0.7, 0.1])
    wrong = np.array([1.0, 0.9, 0.5, 0.0])
    assert flag_count(suspicion, wrong, 0.5, None) == 2
    assert flag_count(suspicion, wrong, 0.5, 0.95) == 2
    assert flag_count(suspicion, wrong, 0.5, 0.79) == 3
    assert flag_count(suspicion, wrong * 0.5, 0.5, 0.8) == 0
    assert flag_count(suspicion, wrong * 0.001, 0.5, None) == 0  # a rate that no row bears out
    assert flag_count(suspicion, np.array([0.06, 0.04, 0.0, 0.0]), 0.5, None) == 1


def test_scores_of_memorised_rows_are_those_of_their_rank_among_unseen_rows():
    score = np.concatenate([np.linspace(0, 0.1, 1000), np.linspace(0, 1, 101)])
    is_unseen = np.arange(len(score)) >= 1000
    mapped = as_unseen(score, is_unseen)
    np.testing.assert_array_equal(mapped[is_unseen], score[is_unseen])
    np.testing.assert_allclose(mapped[~is_unseen], np.linspace(0, 1, 1000), atol=0.01)
    assert (np.diff(mapped[~is_unseen]) > 0).all()


def test_no_row_is_sure_where_perhaps_no_label_is_wrong():
    assert surest_row(0.0, 0.0) == 0.75


def test_a_range_that_begins_high_leaves_the_probabilities_as_they_are():
    draws = seeded(1)
    clean = draws.integers(0, 3, 3000)
    given = np.where(draws.random(3000) < 0.2, (clean + 1) % 3, clean)
    found = audit(np.eye(3)[clean] * 0.97 + 0.01, given=given)
    assert found.noise_rate_low > found.noise_rate / 4
    assert found.wrong_probability.max() > 0.94


def test_neighbours_count_as_far_as_they_agree_with_the_labels():
    given = np.arange(200) % 2
    right, rows = likely_classes(np.eye(2)[given]), np.arange(200)
    often = likely_classes(np.eye(2)[np.where(np.arange(200) < 20, 1 - given, given)])
    assert neighbour_weight(right, right, given, rows) == 0.25
    assert neighbour_weight(right, often, given, rows) == pytest.approx(0.125)
    assert neighbour_weight(right, likely_classes(np.eye(2)[1 - given]), given, rows) == 0


def of_given(p, rate):
    """What a model says that was trained on given labels and is calibrated to them."""
    return (1 - rate) * p + rate * (1 - p) / 3


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4])
@pytest.mark.parametrize(
    "change",
    [of_given, lambda p, rate: of_given(p, rate) ** 0.5, lambda p, _: p**3],
    ids=["of given", "unsure", "too sure"],
)
def test_the_rate_does_not_depend_on_how_sure_a_model_is(make_overlapping, rate, change):
    p, given, is_wrong = make_overlapping(rate)
    said = change(p, rate)
    said /= said.sum(1, keepdims=True)
    power = sharpened(said, given, np.arange(len(given)))
    found = fit_noise_model(likely_classes(power), given).rate
    assert found == pytest.approx(is_wrong.mean(), abs=0.04)
    if change is of_given:
        assert fit_noise_model(likely_classes(said), given).rate < is_wrong.mean() - 0.04


def test_probabilities_that_say_what_the_surest_rows_say_stay_as_they_are(make_overlapping):
    p, given, _ = make_overlapping(0.2)
    assert sharpened(p, given, np.arange(len(given))) is p
