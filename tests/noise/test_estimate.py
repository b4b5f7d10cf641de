import time

import numpy as np
import pytest
import torch
from scipy import stats

from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.estimate import (
    confident_classes,
    estimate_noise_rate,
    estimate_transition,
    estimate_transition_from_anchors,
)
from imae.noise.transition import from_transition, symmetric

TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.0, 0.05, 0.95]])


def model_of(true, *, num_classes, seed, strength=4.0):
    """Probabilities of a good model that never saw the given labels."""
    logits = seeded(seed).standard_normal((len(true), num_classes))
    logits[np.arange(len(true)), true] += strength
    weights = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True)


def test_the_matrix_is_recovered():
    true = np.repeat(np.arange(3), [6000, 4000, 8000])
    given = from_transition(true, transition=TRANSITION, seed=1).labels
    estimate = estimate_transition(model_of(true, num_classes=3, seed=2), given)
    assert np.allclose(estimate, TRANSITION, atol=0.03)
    assert np.allclose(estimate.sum(axis=1), 1)


def test_the_matrix_is_that_of_a_plain_loop():
    true = np.arange(500) % 4
    given = symmetric(true, rate=0.3, num_classes=4, seed=1).labels
    probabilities = model_of(true, num_classes=4, seed=2, strength=1.0)
    likely, is_confident = confident_classes(probabilities, given)
    joint = np.zeros((4, 4))
    for row in range(500):
        if is_confident[row]:
            joint[given[row], likely[row]] += 1
    for label in range(4):
        joint[label] *= (given == label).sum() / joint[label].sum()
    expected = joint.T / joint.T.sum(axis=1, keepdims=True)
    assert np.allclose(estimate_transition(probabilities, given), expected)
    rate = estimate_noise_rate(probabilities, given, seed=1).rate
    assert rate == pytest.approx(1 - np.trace(joint) / 500)


def test_a_class_that_is_never_given_keeps_the_identity():
    probabilities = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    assert np.array_equal(estimate_transition(probabilities, [0, 1]), np.eye(3))


def test_a_class_that_is_given_but_nowhere_likely_keeps_the_identity():
    # The row labelled 1 reaches the threshold of 0 too, and 0 is the more probable.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.95, 0.05]])
    expected = [[2 / 3, 1 / 3], [0, 1]]
    assert np.allclose(estimate_transition(probabilities, [0, 0, 1]), expected)


def test_tensors_are_probabilities_and_labels():
    probabilities = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
    labels = torch.tensor([0, 1, 1])
    assert np.array_equal(estimate_transition(probabilities, labels), np.eye(2))
    assert estimate_noise_rate(probabilities, labels, seed=1).rate == 0


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


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4])
def test_the_noise_rate_is_recovered(rate):
    true = np.arange(10_000) % 10
    given = symmetric(true, rate=rate, num_classes=10, seed=1).labels
    probabilities = model_of(true, num_classes=10, seed=2, strength=8.0)
    estimate = estimate_noise_rate(probabilities, given, seed=3)
    assert estimate.rate == pytest.approx(rate, abs=0.02)
    assert estimate.low <= estimate.rate <= estimate.high
    assert estimate.level == 0.95


def test_the_interval_holds_the_rate_as_often_as_it_says():
    held = 0
    for seed in range(200):
        true = np.arange(400) % 4
        given = symmetric(true, rate=0.3, num_classes=4, seed=seed).labels
        sure = np.eye(4)[true]  # of a perfect model, so that chance is all there is
        estimate = estimate_noise_rate(sure, given, seed=seed, level=0.9, resamples=300)
        held += estimate.low <= 0.3 <= estimate.high
    assert 0.82 <= held / 200 <= 0.96  # 0.9 within about 4 and 3 sigma


def test_the_interval_of_a_perfect_model_is_binomial():
    true = np.arange(10_000) % 2
    given = symmetric(true, rate=0.3, num_classes=2, seed=1, exact=True).labels
    estimate = estimate_noise_rate(np.eye(2)[true], given, seed=1, resamples=20_000)
    low, high = stats.binom.ppf([0.025, 0.975], 10_000, 0.3) / 10_000
    assert estimate.low == pytest.approx(low, abs=3e-4)
    assert estimate.high == pytest.approx(high, abs=3e-4)


def test_the_interval_is_that_of_resampled_rows():
    # The whole bootstrap, thresholds and all, is slow and nearly the same.
    true = np.arange(1500) % 3
    given = symmetric(true, rate=0.3, num_classes=3, seed=1).labels
    probabilities = model_of(true, num_classes=3, seed=2, strength=2.0)
    estimate = estimate_noise_rate(probabilities, given, seed=1)
    generator = seeded(4)
    rates = []
    for _ in range(300):
        rows = (generator.random(1500) * 1500).astype(int)
        sample = estimate_noise_rate(probabilities[rows], given[rows], seed=1, resamples=1)
        rates.append(sample.rate)
    low, high = np.quantile(rates, [0.025, 0.975])
    width = high - low
    assert estimate.low == pytest.approx(low, abs=0.15 * width)
    assert estimate.high == pytest.approx(high, abs=0.15 * width)


def test_one_seed_gives_one_interval():
    true = np.arange(300) % 3
    given = symmetric(true, rate=0.3, num_classes=3, seed=1).labels
    probabilities = model_of(true, num_classes=3, seed=2)
    first, again, other = (
        estimate_noise_rate(probabilities, given, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert first.rate == other.rate


def test_a_higher_level_is_a_wider_interval():
    true = np.arange(300) % 3
    given = symmetric(true, rate=0.3, num_classes=3, seed=1).labels
    probabilities = model_of(true, num_classes=3, seed=2)
    narrow, wide = (
        estimate_noise_rate(probabilities, given, seed=1, level=level) for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.0}, r"level must be in \(0, 1\)"),
        ({"level": 1.0}, r"level must be in \(0, 1\)"),
        ({"resamples": 0}, "resamples must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_options_outside_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        estimate_noise_rate([[0.5, 0.5]], [0], **{"seed": 1, **options})


@pytest.mark.parametrize("labels", [[0], [0, 1, 1]])
def test_lengths_that_differ_are_refused(labels):
    with pytest.raises(ArgumentError, match="as many as the 2 rows"):
        estimate_transition([[0.5, 0.5], [0.5, 0.5]], labels)


def test_a_hundred_thousand_rows_take_a_moment():
    true = np.arange(100_000) % 10
    given = symmetric(true, rate=0.3, num_classes=10, seed=1).labels
    probabilities = model_of(true, num_classes=10, seed=2)
    start = time.process_time()
    estimate_transition(probabilities, given)
    estimate_noise_rate(probabilities, given, seed=1)
    assert time.process_time() - start < 2
