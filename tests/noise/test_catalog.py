"""One battery over every kind of label noise there is."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from imae._draws import draw_normal, seeded
from imae.errors import ArgumentError
from imae.noise.asymmetric import CIFAR10_MAPPING
from imae.noise.catalog import KINDS

NUM_ROWS = 5000
FEATURES = 0.3 * draw_normal((NUM_ROWS, 8), seeded(5))
EXACT_KINDS = [entry.name for entry in KINDS if "exact" in entry.defaults]

every_kind = pytest.mark.parametrize("kind", KINDS.names())


def num_classes_of(kind):
    return 100 if kind == "cifar100_asymmetric" else 10


def clean_labels(kind, rows=NUM_ROWS):
    return np.arange(rows) % num_classes_of(kind)


def corrupt(kind, labels, *, rate, seed, num_classes=None, **options):
    if kind == "pairs":
        options["mapping"] = CIFAR10_MAPPING
    if kind == "instance_dependent":
        options["features"] = FEATURES[: len(labels)]
    num_classes = num_classes or num_classes_of(kind)
    return KINDS.build(kind, **options)(labels, rate=rate, num_classes=num_classes, seed=seed)


def moves(clean, given, num_classes):
    cells = np.bincount(clean * num_classes + given, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


def chi_square_p(counts, expected):
    possible = expected > 0
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = (possible.sum(axis=1) - 1).sum()
    return stats.chi2.sf(statistic, freedom)


@every_kind
def test_the_realised_rate_is_within_four_sigma_over_100_seeds(kind):
    clean = clean_labels(kind)
    for seed in range(100):
        noisy = corrupt(kind, clean, rate=0.4, seed=seed)
        rate = 1 - noisy.transition[clean, clean].mean()
        sigma = np.sqrt(rate * (1 - rate) / NUM_ROWS)
        assert noisy.realised_rate == pytest.approx(rate, abs=4 * sigma), seed


@every_kind
def test_the_moves_follow_the_matrix_over_100_seeds(kind):
    clean = clean_labels(kind)
    size = num_classes_of(kind)
    counts, expected = np.zeros((size, size)), np.zeros((size, size))
    for seed in range(100):
        noisy = corrupt(kind, clean, rate=0.4, seed=seed)
        seen = moves(clean, noisy.labels, size)
        assert not seen[noisy.transition == 0].any(), seed
        counts += seen
        expected += noisy.transition * np.bincount(clean)[:, None]
    assert chi_square_p(counts, expected) > 1e-4


def test_the_chi_square_tells_uniform_from_symmetric_noise():
    clean = clean_labels("symmetric")
    counts = sum(
        moves(clean, corrupt("uniform", clean, rate=0.4, seed=seed).labels, 10)
        for seed in range(10)
    )
    other = corrupt("symmetric", clean, rate=0.4, seed=1).transition
    assert chi_square_p(counts, 10 * other * np.bincount(clean)[:, None]) < 1e-4


@pytest.mark.parametrize(
    ("kind", "asked", "wrong"),
    [
        ("symmetric", 0.4, 0.4),
        ("uniform", 0.4, 0.36),
        ("pairs", 0.4, 0.2),
        ("cifar10_asymmetric", 0.4, 0.2),
        ("cifar100_asymmetric", 0.4, 0.16),
        ("instance_dependent", 0.4, 0.4),
    ],
)
def test_the_part_of_wrong_labels_is_the_documented_one(kind, asked, wrong):
    clean = clean_labels(kind)
    rates = [corrupt(kind, clean, rate=asked, seed=seed).realised_rate for seed in range(10)]
    sigma = np.sqrt(wrong * (1 - wrong) / NUM_ROWS / 10)
    assert np.mean(rates) == pytest.approx(wrong, abs=4 * sigma)


@every_kind
@settings(deadline=None)  # a busy machine is no failure
@given(data=st.data(), rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**128))
def test_properties(kind, data, rate, seed):
    size = num_classes_of(kind)
    clean = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=60)))
    before = clean.copy()
    clean.setflags(write=False)
    noisy = corrupt(kind, clean, rate=rate, seed=seed)
    assert np.array_equal(clean, before)
    assert noisy.labels.dtype == np.int64
    assert noisy.labels.shape == clean.shape
    assert np.array_equal(noisy.is_flipped, noisy.labels != clean)
    assert (noisy.transition[clean, noisy.labels] > 0).all()
    assert (noisy.transition >= 0).all()
    assert np.allclose(noisy.transition.sum(axis=1), 1, atol=1e-12)
    assert (noisy.kind, noisy.rate, noisy.seed) == (kind, rate, seed)
    again = corrupt(kind, torch.from_numpy(before), rate=rate, seed=seed)
    assert np.array_equal(again.labels, noisy.labels)
    assert np.array_equal(again.transition, noisy.transition)


@pytest.mark.parametrize("kind", EXACT_KINDS)
@settings(deadline=None)  # a busy machine is no failure
@given(rows=st.integers(1, 300), rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 99))
def test_exact_mode_is_exact(kind, rows, rate, seed):
    clean = clean_labels(kind, rows)
    noisy = corrupt(kind, clean, rate=rate, seed=seed, exact=True)
    takes_part = np.diagonal(corrupt(kind, clean, rate=0.5, seed=seed).transition)[clean] < 1
    hit = round(rate * int(takes_part.sum()))
    if kind == "uniform":
        assert noisy.is_flipped.sum() <= hit
    else:
        assert noisy.is_flipped.sum() == hit


@every_kind
def test_a_rate_of_zero_changes_nothing(kind):
    clean = clean_labels(kind)
    noisy = corrupt(kind, clean, rate=0.0, seed=1)
    assert np.array_equal(noisy.labels, clean)
    assert np.array_equal(noisy.transition, np.eye(num_classes_of(kind)))


@every_kind
@pytest.mark.parametrize("rate", [-1e-9, 1.0, float("nan"), float("inf")])
def test_rates_outside_are_refused(kind, rate):
    with pytest.raises(ArgumentError, match=r"rate must be in \[0, 1\)"):
        corrupt(kind, clean_labels(kind), rate=rate, seed=1)


@every_kind
def test_a_rate_just_below_one_is_let_pass(kind):
    assert corrupt(kind, clean_labels(kind), rate=1 - 2**-53, seed=1).realised_rate > 0


@every_kind
@pytest.mark.parametrize("label", [-1, 100])
def test_labels_outside_are_refused(kind, label):
    with pytest.raises(ArgumentError, match=f"got {label} at row 1"):
        corrupt(kind, [0, label], rate=0.4, seed=1)


@every_kind
def test_one_class_only_is_refused(kind):
    with pytest.raises(ArgumentError, match="num_classes"):
        corrupt(kind, [0, 0], rate=0.4, seed=1, num_classes=1)


@pytest.mark.parametrize(
    ("kind", "right"), [("cifar10_asymmetric", 10), ("cifar100_asymmetric", 100)]
)
def test_noise_of_a_named_set_wants_its_number_of_classes(kind, right):
    for wrong in (right - 1, right + 1):
        with pytest.raises(ArgumentError, match=f"is for {right} classes, got num_classes {wrong}"):
            corrupt(kind, [0, 1], rate=0.4, seed=1, num_classes=wrong)


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("symmetric", "e81c2706fccb522dcd3a3a30e3655a0a75e134020117ef1a5ae496e06bd16b54"),
        ("uniform", "355114e8b0c71c8c3753de0042697453d119ac3ddb361ea85962c3bf4e9e53bc"),
        ("pairs", "95dd4b864d8c0ee917f9e5af657e1b2d078dd296638328184359b6793445e42d"),
        ("cifar10_asymmetric", "95dd4b864d8c0ee917f9e5af657e1b2d078dd296638328184359b6793445e42d"),
        ("cifar100_asymmetric", "59e30ce21f31d58cc88a5daacd2b3bc93c006651aa9c6aa6596554acd0de1566"),
        ("instance_dependent", "3e73f592a906494aeb8a7b0249ffaaef70ae617553f06c4e8f9c813b7b38625f"),
    ],
)
def test_one_seed_gives_the_same_bytes_everywhere(kind, digest):
    labels = corrupt(kind, clean_labels(kind), rate=0.4, seed=1).labels
    assert hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest() == digest


def test_every_kind_has_a_golden_hash_and_a_summary():
    mark = next(
        mark
        for mark in test_one_seed_gives_the_same_bytes_everywhere.pytestmark
        if mark.name == "parametrize"
    )
    assert tuple(kind for kind, _ in mark.args[1]) == KINDS.names()
    assert all(entry.summary for entry in KINDS)
