import numpy as np
import pytest
import torch
from scipy import stats

from imae._draws import draw_normal, seeded
from imae.errors import ArgumentError
from imae.noise.asymmetric import instance_dependent

CLEAN = np.arange(20_000) % 5
FEATURES = draw_normal((20_000, 3, 2), seeded(9)).astype(np.float32)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.4, 0.8, 0.95])
def test_the_flip_rate_is_a_truncated_normal(rate):
    noisy = instance_dependent(CLEAN, features=FEATURES, rate=rate, num_classes=5, seed=1)
    low, high = (0 - rate) / 0.1, (1 - rate) / 0.1
    mean = stats.truncnorm(low, high, loc=rate, scale=0.1).mean()
    sigma = np.sqrt(mean * (1 - mean) / len(CLEAN))
    assert noisy.realised_rate == pytest.approx(mean, abs=4 * sigma)


def test_a_rate_of_zero_changes_nothing():
    noisy = instance_dependent(CLEAN, features=FEATURES, rate=0.0, num_classes=5, seed=1)
    assert np.array_equal(noisy.labels, CLEAN)
    assert np.array_equal(noisy.transition, np.eye(5))


def test_rows_that_look_alike_go_wrong_alike():
    # Two kinds of rows with large features: each kind's errors all go to one class.
    looks = np.arange(4000) % 2
    features = np.array([[1000.0, 0.0], [0.0, 1000.0]])[looks]
    noisy = instance_dependent(
        np.zeros(4000, int), features=features, rate=0.4, num_classes=6, seed=2
    )
    for look in (0, 1):
        wrong = noisy.labels[noisy.is_flipped & (looks == look)]
        assert len(wrong) > 600
        assert len(np.unique(wrong)) == 1


def test_probabilities_are_those_of_the_paper():
    # The same computation, row by row and in the order of the published algorithm.
    clean, features = CLEAN[:40], FEATURES[:40].reshape(40, -1).astype(np.float64)
    noisy = instance_dependent(clean, features=features, rate=0.5, num_classes=5, seed=3)
    generator = seeded(3)
    flip_rates = 0.5 + 0.1 * draw_normal((40,), generator)
    assert ((flip_rates > 0) & (flip_rates < 1)).all()
    uniform = generator.random(40)
    projections = [draw_normal((6, 5), generator) for _ in range(5)]
    expected = np.zeros((40, 5))
    for row, label in enumerate(clean):
        scores = features[row] @ projections[label]
        total = sum(np.exp(scores[other]) for other in range(5) if other != label)
        for other in range(5):
            expected[row, other] = flip_rates[row] * np.exp(scores[other]) / total
        expected[row, label] = 1 - flip_rates[row]
    drawn = [int(np.searchsorted(np.cumsum(p), u)) for p, u in zip(expected, uniform, strict=True)]
    assert noisy.labels.tolist() == drawn
    means = [expected[clean == label].mean(axis=0) for label in range(5)]
    assert np.allclose(noisy.transition, means)


def test_the_parts_of_a_large_class_are_put_together_in_order():
    # Rows 5000 and up look like row 0 and come in other parts than it.
    features = np.zeros((10_000, 2))
    features[1:5000] = [1000.0, 0.0]
    features[0] = features[5000:] = [0.0, 1000.0]
    noisy = instance_dependent(
        np.zeros(10_000, int), features=features, rate=0.9, num_classes=6, seed=2
    )
    looks = (features[:, 1] > 0).astype(int)
    for look in (0, 1):
        assert len(np.unique(noisy.labels[noisy.is_flipped & (looks == look)])) == 1


def test_a_class_without_rows_keeps_the_identity():
    noisy = instance_dependent([0, 0], features=[[1.0], [2.0]], rate=0.4, num_classes=3, seed=1)
    assert noisy.transition[1:].tolist() == [[0, 1, 0], [0, 0, 1]]


def test_tensors_and_bytes_are_features():
    bytes_ = np.arange(60, dtype=np.uint8).reshape(20, 3)
    clean = np.arange(20) % 4
    noisy = [
        instance_dependent(clean, features=features, rate=0.5, num_classes=4, seed=1).labels
        for features in (bytes_, torch.from_numpy(bytes_), bytes_.astype(np.float64))
    ]
    assert np.array_equal(noisy[0], noisy[1])
    assert np.array_equal(noisy[0], noisy[2])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0, 2.0], r"shape \(2, ...\)"),
        ([[1.0]], r"shape \(2, ...\)"),
        (np.empty((2, 0)), r"shape \(2, ...\)"),
        ([["a"], ["b"]], "must be numbers"),
        ([[1.0, 2.0], [1.0, float("nan")]], "finite, row 1"),
        ([[float("inf"), 2.0], [1.0, 2.0]], "finite, row 0"),
        ([[1.0, 2.0], [1.0, -float("inf")]], "finite, row 1"),
    ],
)
def test_bad_features_are_refused(features, message):
    with pytest.raises(ArgumentError, match=message):
        instance_dependent([0, 1], features=features, rate=0.4, num_classes=2, seed=1)


@pytest.mark.parametrize("rate", [-1e-9, 1.0])
def test_rates_outside_are_refused(rate):
    with pytest.raises(ArgumentError, match=r"rate must be in \[0, 1\)"):
        instance_dependent([0], features=[[1.0]], rate=rate, num_classes=2, seed=1)


def test_huge_features_stay_finite():
    noisy = instance_dependent(
        [0, 1] * 50, features=np.full((100, 2), 1e6), rate=0.4, num_classes=2, seed=1
    )
    assert np.isfinite(noisy.transition).all()
