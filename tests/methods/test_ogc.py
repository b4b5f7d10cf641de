"""Optimised gradient clipping, against the authors' rule written out with scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from imae.errors import ArgumentError
from imae.methods import Facts, Rows
from imae.methods.weighting import OGC, ClippedCCE, clipping_threshold, fit_two_normals

LABELS = torch.arange(64) % 4


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def started(**options):
    method = OGC(**options)
    method.start(Facts(LABELS, num_classes=4, num_epochs=4, seed=1))
    return method


def rows(generator, number=16):
    logits = 3 * torch.randn(number, 4, generator=generator)
    return Rows(logits, LABELS[:number], torch.arange(number))


def test_the_curve_is_cross_entropy_above_the_threshold_and_a_line_below():
    p = torch.tensor([0.01, 0.1, 0.2, 0.5, 0.9], dtype=torch.float64)
    line = 1 - p / 0.2 - math.log(0.2)
    torch.testing.assert_close(
        ClippedCCE(k=0.2).value(p.logit()), torch.where(p > 0.2, -p.log(), line)
    )


@pytest.mark.parametrize("k", [1e-7, 0.1, 1.0])
def test_the_slope_is_the_derivative_of_the_value(k):
    m = torch.linspace(-30, 30, 400, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(ClippedCCE(k).value(m).sum(), m)
    torch.testing.assert_close(ClippedCCE(k).slope(m.detach()), slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("m", [-1e4, 1e4])
def test_the_curve_is_finite_at_extreme_margins(m):
    at = torch.tensor([m])
    assert ClippedCCE(0.1).value(at).isfinite().all()
    assert ClippedCCE(0.1).slope(at).isfinite().all()


def published_ratio(k, right, wrong):
    low, high = -math.log(1 - 1e-7), -math.log(1e-7)
    losses = np.linspace(low, high, 1000)
    means = []
    for mean, variance in (wrong, right):
        scale = math.sqrt(variance)
        density = stats.truncnorm.pdf(
            losses, (low - mean) / scale, (high - mean) / scale, mean, scale
        )
        means.append((density * np.minimum(np.exp(losses), 1 / k)).mean() / density.mean())
    return means[0] / means[1]


@pytest.mark.parametrize("ratio", [1.2, 2.0, 3.0])
def test_the_threshold_has_the_published_ratio(ratio):
    right, wrong = (0.5, 0.1), (3.0, 1.0)
    k = clipping_threshold(right, wrong, ratio=ratio)
    around = [published_ratio(at, right, wrong) for at in (k - 1e-3, k)]
    assert around[0] >= ratio >= around[1]


def test_wrong_rows_that_cannot_be_told_apart_are_not_clipped():
    assert clipping_threshold((1.0, 0.5), (1.0, 0.5), ratio=1.01) == 1e-7


def test_a_ratio_that_cannot_be_reached_clips_everything():
    assert clipping_threshold((0.1, 1e-3), (9.0, 1e-3), ratio=1.0) == 1 - 1e-7


def test_nothing_is_clipped_until_enough_rows_are_seen(generator):
    method = started(every=1, memory=40)
    method.learning_rate = 0.1
    for _ in range(2):
        method(rows(generator))
    assert method.k == 1e-7
    method(rows(generator))
    assert len(method.recent) == 40
    assert method.k > 1e-7


def test_the_learning_rate_sets_how_much_is_clipped(generator):
    method, slower = started(every=3, memory=40), started(every=3, memory=40)
    method.learning_rate, slower.learning_rate = 0.1, 0.001
    for _ in range(3):
        batch = rows(generator)
        method(batch)
        slower(batch)
    assert slower.k > method.k


def test_the_state_is_saved_and_nothing_changes_in_evaluation(generator):
    method, other = started(every=1, memory=32), started(every=1, memory=32)
    for _ in range(3):
        method(rows(generator))
    other.load_state_dict(method.state_dict())
    assert (other.k, other._num_steps) == (method.k, method._num_steps)
    batch = rows(generator)
    assert torch.equal(method(batch), other(batch))
    assert method.k == other.k
    before = method.eval().k
    method(rows(generator))
    assert method.k == before


def test_rows_without_weight_are_not_remembered(generator):
    method = started(every=1, memory=64)
    batch = rows(generator)
    weight = torch.zeros(16)
    weight[:3] = 1
    method(Rows(batch.logits, batch.target, batch.row, weight=weight))
    assert len(method.recent) == 3


@pytest.mark.parametrize("options", [{"slack": -1.0}, {"every": 0}, {"memory": 1}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        OGC(**options)


def test_the_fit_depends_on_the_seed_alone():
    losses = np.random.Generator(np.random.PCG64(0)).gamma(2.0, size=200)
    assert fit_two_normals(losses, seed=3) == fit_two_normals(losses, seed=3)
