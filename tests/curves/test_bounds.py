"""Supremum of a loss and the range of its sum over labels, against formulas and random search."""

import math
import tracemalloc

import numpy as np
import pytest
import torch

from imae.curves import CURVES, GCE, MAE, SL, Scale, label_sum_range, loss_supremum, parse_curve
from imae.errors import ArgumentError

BOUNDED = {"mae": 2.0, "gce:q=0.7": 1 / 0.7, "gce:q=0.001": 1000.0, "gce:q=1": 1.0}
UNBOUNDED = ("cce", "imae:T=0", "imae:T=8", "imae:T=16", "sl", "focal", "icce")


@pytest.mark.parametrize(("name", "supremum"), BOUNDED.items())
def test_bounded_losses_end_where_their_formula_does(name, supremum):
    assert loss_supremum(parse_curve(name)) == pytest.approx(supremum, rel=1e-9)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded_losses_have_no_supremum(name):
    assert loss_supremum(parse_curve(name)) == math.inf
    assert label_sum_range(parse_curve(name), 10)[1] == math.inf


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_mae_is_symmetric_and_gce_has_its_known_range(num_classes):
    assert label_sum_range(MAE(), num_classes) == (2 * (num_classes - 1),) * 2
    q = 0.7
    low, high = label_sum_range(GCE(q), num_classes)
    assert low == pytest.approx((num_classes - num_classes ** (1 - q)) / q, rel=1e-8)
    assert high == pytest.approx((num_classes - 1) / q, rel=1e-8)


def test_imae_is_symmetric_for_two_classes_only():
    """Its loss is odd in the margin, and with two classes the margins are opposite."""
    for T in (0, 8):
        assert label_sum_range(parse_curve(f"imae:T={T}"), 2) == pytest.approx((0, 0), abs=1e-6)
        low, high = label_sum_range(parse_curve(f"imae:T={T}"), 3)
        assert math.isfinite(low)
        assert high == math.inf


@pytest.mark.parametrize("T", [4, 8, 16, 24])
@pytest.mark.parametrize("num_classes", [3, 4, 10])
def test_the_smallest_sum_of_imae_is_found_to_five_digits(T, num_classes):
    """Against a fine search over predictions of which each class has one of two values."""
    curve = parse_curve(f"imae:T={T}")
    smallest = math.inf
    for many in range(1, num_classes):
        p = torch.linspace(0, 1 / many, 40_001, dtype=torch.float64)[1:-1]
        rest = (1 - many * p) / (num_classes - many)
        sums = many * curve.value(torch.logit(p)) + (num_classes - many) * curve.value(rest.logit())
        smallest = min(smallest, float(sums.min()))
    assert label_sum_range(curve, num_classes)[0] == pytest.approx(smallest, rel=1e-5)


@pytest.mark.parametrize("name", CURVES.names())
def test_no_random_prediction_leaves_the_range(name):
    curve = CURVES.build(name)
    generator = np.random.default_rng(1)
    p = np.concatenate([generator.dirichlet([a] * 4, 500) for a in (0.2, 1.0, 30.0)])
    sums = curve.value(torch.logit(torch.from_numpy(p))).sum(1).numpy()
    low, high = label_sum_range(curve, 4)
    slack = 2e-3 * abs(low)  # the grid is not dense
    assert sums[np.isfinite(sums)].min() >= low - slack
    assert sums[np.isfinite(sums)].max() <= high + slack


def test_a_factor_scales_both_and_one_class_is_refused():
    scaled = Scale(SL(alpha=0.0, A=-4.0), 3.0)
    assert loss_supremum(scaled) == pytest.approx(12.0)
    with pytest.raises(ArgumentError, match="num_classes must be at least 2"):
        label_sum_range(scaled, 1)


def test_the_range_over_many_classes_needs_little_memory():
    tracemalloc.start()
    try:
        low, high = label_sum_range(GCE(0.5), 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2400**2 / 10
    assert (low, high) == pytest.approx((2 * (40 - math.sqrt(40)), 2 * 39))
