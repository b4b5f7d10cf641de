import time

import numpy as np
import pytest
import torch
from scipy import stats

from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.by_class import from_transition, symmetric
from imae.noise.estimate import (
    estimate_noise_rate,
    estimate_transition,
    estimate_transition_from_anchors,
)

TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.0, 0.05, 0.95]])


def overlapping(rows, num_classes, separation, seed, power=1.0):
    """Exact posteriors of Gaussians whose means are ``separation`` apart, and the true classes."""
    generator = seeded(seed)
    true = generator.integers(0, num_classes, rows)
    side = separation / np.sqrt(2)
    x = generator.standard_normal((rows, num_classes))
    x[np.arange(rows), true] += side
    weights = np.exp(power * side * (x - x.max(axis=1, keepdims=True)))
    return weights / weights.sum(axis=1, keepdims=True), true


@pytest.mark.parametrize("separation", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_overlap_of_classes_is_not_noise(separation, rate):
    probabilities, true = overlapping(4000, 3, separation, seed=separation)
    given = symmetric(true, rate=rate, num_classes=3, seed=1).labels
    estimate = estimate_noise_rate(probabilities, given, calibrate=False)
    assert estimate.low <= rate + 0.005
    assert estimate.high >= rate
    assert estimate.rate == pytest.approx(rate, abs=0.05)
    # What disagrees with the model is far more than what is wrong.
    assert estimate.ceiling == np.mean(probabilities.argmax(1) != given)
    assert estimate.ceiling > rate + 0.015


@pytest.mark.parametrize("separation", [1, 2])
def test_the_interval_contains_the_rate_as_often_as_it_says(separation):
    held = 0
    for seed in range(100):
        probabilities, true = overlapping(200, 2, separation, seed)
        given = symmetric(true, rate=0.1, num_classes=2, seed=1000 + seed).labels
        estimate = estimate_noise_rate(probabilities, given, level=0.9, calibrate=False)
        held += estimate.low <= 0.1 <= estimate.high
    assert 80 <= held <= 98  # 90 within about 3 sigma


def test_the_interval_of_a_perfect_model_is_wilsons():
    true = np.arange(1000) % 2
    given = symmetric(true, rate=0.3, num_classes=2, seed=1, exact=True).labels
    estimate = estimate_noise_rate(np.eye(2)[true], given, calibrate=False)
    wilson = stats.binomtest(300, 1000).proportion_ci(0.95, method="wilson")
    assert estimate.rate == pytest.approx(0.3, abs=1e-6)
    assert (estimate.low, estimate.high) == pytest.approx((wilson.low, wilson.high), abs=2e-3)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_a_model_that_is_too_sure_or_not_sure_enough_is_corrected(power):
    probabilities, true = overlapping(1500, 3, 2.5, seed=3, power=power)
    given = symmetric(true, rate=0.2, num_classes=3, seed=1).labels
    estimate = estimate_noise_rate(probabilities, given)
    assert estimate.low <= 0.2 <= estimate.high
    assert estimate.temperature == pytest.approx(1 / power, rel=0.35)


@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize(
    "row", [[0.1] * 10, [0.5, 0.3, 0.2], [0.5, 0.5]], ids=["even", "prior", "two"]
)
def test_the_same_probabilities_for_all_rows_say_nothing_of_the_rate(row, calibrate):
    given = seeded(0).integers(0, len(row), 1000)
    estimate = estimate_noise_rate(np.tile(row, (1000, 1)), given, calibrate=calibrate)
    assert (estimate.low, estimate.high) == (0, 1)


@pytest.mark.parametrize("noise", [1e-8, 1e-6, 1e-4, 1e-3])
def test_probabilities_that_are_almost_the_same_for_all_rows_say_almost_nothing(noise):
    generator = seeded(1)
    weights = np.exp(noise * generator.standard_normal((1000, 3)))
    given = generator.integers(0, 3, 1000)
    estimate = estimate_noise_rate(weights / weights.sum(axis=1, keepdims=True), given)
    assert (estimate.low, estimate.high) == pytest.approx((0, 1), abs=0.01)


def test_two_classes_that_no_row_tells_apart_leave_the_rate_open():
    probabilities, true = overlapping(1000, 2, 3, seed=1)
    half = probabilities[:, 1:] / 2
    generator = seeded(2)
    given = np.where(true == 1, 1 + generator.integers(0, 2, 1000), 0)
    estimate = estimate_noise_rate(np.hstack([probabilities[:, :1], half, half]), given)
    assert (estimate.low, estimate.high) == (0, 1)


def test_a_higher_level_is_a_wider_interval():
    probabilities, true = overlapping(300, 3, 3, seed=2)
    given = symmetric(true, rate=0.3, num_classes=3, seed=1).labels
    narrow, wide = (
        estimate_noise_rate(probabilities, given, level=level, calibrate=False)
        for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.rate < narrow.high < wide.high
    assert (narrow.level, wide.level) == (0.5, 0.99)


def test_the_matrix_is_recovered():
    probabilities, true = overlapping(12_000, 3, 4, seed=5)
    given = from_transition(true, transition=TRANSITION, seed=1).labels
    estimate = estimate_transition(probabilities, given)
    assert np.allclose(estimate, TRANSITION, atol=0.04)
    assert np.allclose(estimate.sum(axis=1), 1)
    assert (estimate >= 0).all()


def test_strata_may_have_matrices_of_their_own():
    probabilities, true = overlapping(8000, 3, 3, seed=6)
    margin = np.sort(probabilities, axis=1)
    is_hard = margin[:, -1] - margin[:, -2] < np.median(margin[:, -1] - margin[:, -2])
    often = symmetric(true, rate=0.4, num_classes=3, seed=1).labels
    given = np.where(is_hard, often, true)
    rate = float(np.mean(given != true))
    estimate = estimate_noise_rate(probabilities, given, strata=2, calibrate=False)
    assert estimate.low <= rate <= estimate.high


def test_tensors_are_probabilities_and_labels():
    true = np.arange(60) % 2
    probabilities = torch.eye(2)[true]
    estimate = estimate_noise_rate(probabilities, torch.from_numpy(true), calibrate=False)
    assert estimate.rate == pytest.approx(0, abs=1e-6)
    assert estimate.low == 0
    assert np.allclose(
        estimate_transition(probabilities, torch.from_numpy(true)), np.eye(2), atol=0.02
    )


def test_a_class_that_is_never_given_is_no_trouble():
    probabilities, true = overlapping(500, 4, 3, seed=7)
    given = np.where(true == 3, 0, true)
    assert np.isfinite(estimate_transition(probabilities, given)).all()
    assert estimate_noise_rate(probabilities, given, calibrate=False).rate > 0.1


def test_the_arguments_of_the_former_bootstrap_are_taken():
    true = np.arange(60) % 2
    probabilities = np.eye(2)[true]
    new = estimate_noise_rate(probabilities, true)
    assert estimate_noise_rate(probabilities, true, seed=1, resamples=50) == new


def test_anchors_recover_the_matrix():
    # What a perfect model of the given labels says of rows that are mixtures of the classes.
    mixtures = np.vstack([np.eye(3), seeded(3).dirichlet([1, 1, 1], size=100)])
    estimate = estimate_transition_from_anchors(mixtures @ TRANSITION, quantile=1.0)
    assert np.allclose(estimate, TRANSITION)


def test_the_quantile_is_the_place_in_the_order():
    first = np.linspace(0, 1, 101)
    probabilities = np.stack([first, 1 - first], axis=1)[seeded(1).random(101).argsort()]
    estimate = estimate_transition_from_anchors(probabilities, quantile=0.9)
    assert np.allclose(estimate, [[0.9, 0.1], [0.1, 0.9]])
    usual = estimate_transition_from_anchors(probabilities)
    assert np.allclose(usual, [[0.97, 0.03], [0.03, 0.97]])


@pytest.mark.parametrize("rows", [2, 5, 40, 3000])
def test_of_rows_that_are_equally_sure_the_first_is_the_anchor(rows):
    others = np.linspace(0.0, 0.5, rows)
    tied = np.stack([np.full(rows, 0.5), others, 0.5 - others], axis=1)
    assert estimate_transition_from_anchors(tied, quantile=1.0)[0].tolist() == [0.5, 0.0, 0.5]
    assert estimate_transition_from_anchors(tied[::-1])[0].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("quantile", [-1e-9, 1 + 1e-9])
def test_quantiles_outside_are_refused(quantile):
    with pytest.raises(ArgumentError, match=r"quantile must be in \[0, 1\]"):
        estimate_transition_from_anchors([[0.5, 0.5]], quantile=quantile)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.0}, r"level must be in \(0, 1\)"),
        ({"level": 1.0}, r"level must be in \(0, 1\)"),
        ({"strata": 0}, "strata must be at least 1"),
        ({"strata": 5}, "strata must be at most the 1 rows"),
    ],
)
def test_options_outside_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        estimate_noise_rate([[0.5, 0.5]], [0], **options)


@pytest.mark.parametrize("labels", [[0], [0, 1, 1]])
def test_lengths_that_differ_are_refused(labels):
    with pytest.raises(ArgumentError, match="as many as the 2 rows"):
        estimate_transition([[0.5, 0.5], [0.5, 0.5]], labels)


def test_many_rows_take_a_moment():
    probabilities, true = overlapping(20_000, 10, 3, seed=1)
    given = symmetric(true, rate=0.3, num_classes=10, seed=1).labels
    start = time.process_time()
    estimate_noise_rate(probabilities, given, calibrate=False)
    assert time.process_time() - start < 5


def test_too_many_classes_are_refused_before_memory_is_taken():
    probabilities = np.full((2, 1000), 1 / 1000)
    with pytest.raises(ArgumentError, match="1000 classes are too many for this estimate"):
        estimate_noise_rate(probabilities, np.array([0, 1]))
