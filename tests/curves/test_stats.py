import math

import mpmath
import pytest
import torch

from imae.curves import (
    CCE,
    GCE,
    ICCE,
    IMAE,
    MAE,
    Scale,
    imae_weight_variance,
    impact_ratio,
    label_sum_range,
    loss_supremum,
    mean_weight,
    weight_variance,
)
from imae.errors import ArgumentError

# The table of the paper, as printed there.
PAPER = {16: 354.113, 8: 4.546, 4: 0.299, 2: 0.040, 1: 0.007, 0.5: 0.002, 0: 0.0}


@pytest.mark.parametrize(("T", "printed"), PAPER.items())
def test_the_variances_of_the_paper(T, printed):
    assert round(weight_variance(IMAE(T=T)), 3) == printed
    assert round(imae_weight_variance(T), 3) == printed


def test_the_variances_of_cross_entropy_and_mae():
    assert weight_variance(CCE()) == pytest.approx(1 / 3, rel=1e-13)
    assert weight_variance(MAE()) == pytest.approx(4 / 45, rel=1e-13)


@pytest.mark.parametrize("T", [1e-9, 1e-4, 9.99e-3, 1e-2, 0.011, 0.1, 0.5, 3, 16, 50, 100])
def test_the_closed_form_to_many_digits(T):
    with mpmath.workdps(60):
        t = mpmath.mpf(T)
        first = (
            mpmath.sqrt(mpmath.pi / (2 * t)) * mpmath.exp(t / 2) * mpmath.erf(mpmath.sqrt(t / 2))
        )
        second = mpmath.pi / t * mpmath.exp(t / 2) * mpmath.erf(mpmath.sqrt(t) / 2) ** 2
        exact = float(first - second)
    assert imae_weight_variance(T) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("T", [0.0, 0.02, 1.0, 8.0, 40.0, 100.0])
def test_the_closed_form_is_the_quadrature(T):
    assert imae_weight_variance(T) == pytest.approx(weight_variance(IMAE(T=T)), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("T", [-5e-324, math.nextafter(100, 101), math.nan])
def test_the_closed_form_refuses_what_imae_refuses(T):
    with pytest.raises(ArgumentError, match="T must be in"):
        imae_weight_variance(T)


@pytest.mark.parametrize(
    ("curve", "mean"),
    [
        (CCE(), 1.0),
        (MAE(), 2 / 3),
        (GCE(q=0.7), 2 / 1.7 - 2 / 2.7),
        (IMAE(T=0.0), 1.0),
        (ICCE(T=2.0), math.expm1(2) / 2),
        (Scale(CCE(), 5.0), 5.0),
    ],
    ids=lambda item: repr(item).split(" at 0x")[0],
)
def test_mean_weight(curve, mean):
    assert mean_weight(curve) == pytest.approx(mean, rel=1e-9)


def test_scaling_a_curve_squares_in_its_variance():
    assert weight_variance(Scale(MAE(), 3.0)) == pytest.approx(9 * weight_variance(MAE()))


def test_impact_ratio_is_a_ratio_of_weights():
    assert impact_ratio(CCE(), 0.2, 0.6) == pytest.approx(2.0)
    assert impact_ratio(IMAE(T=8.0), 0.5, 0.0) == pytest.approx(math.exp(2))
    assert impact_ratio(MAE(), 0.3, 0.7) == pytest.approx(1.0)


def test_impact_ratio_at_weight_zero():
    assert impact_ratio(CCE(), 0.5, 1.0) == math.inf
    assert impact_ratio(CCE(), 1.0, 0.5) == 0
    assert math.isnan(impact_ratio(MAE(), 0.0, 1.0))


@pytest.mark.parametrize(
    ("p", "other", "name"),
    [
        (-5e-324, 0.5, "p"),
        (math.nextafter(1, 2), 0.5, "p"),
        (0.5, -0.1, "other"),
        (0.5, 1.1, "other"),
    ],
)
def test_impact_ratio_refuses_what_is_no_probability(p, other, name):
    with pytest.raises(ArgumentError, match=rf"^{name} must be in \[0, 1\]"):
        impact_ratio(CCE(), p, other)


def test_results_are_plain_numbers():
    results = mean_weight(CCE()), weight_variance(CCE()), impact_ratio(CCE(), 0.1, 0.2)
    assert all(type(result) is float for result in results)


def test_the_default_dtype_does_not_matter():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float32)
        assert weight_variance(MAE()) == pytest.approx(4 / 45, rel=1e-13)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.filterwarnings("error")  # torch warns where a tensor with a gradient becomes a number
def test_a_parameter_is_described_as_its_number():
    trained, plain = IMAE(torch.nn.Parameter(torch.tensor(8.0, dtype=torch.float64))), IMAE(T=8.0)
    for number in (mean_weight, weight_variance, loss_supremum):
        assert number(trained) == pytest.approx(number(plain))
    assert impact_ratio(trained, 0.5, 1.0) == pytest.approx(impact_ratio(plain, 0.5, 1.0))
    assert label_sum_range(trained, 3) == pytest.approx(label_sum_range(plain, 3))
    assert trained.weight_at(0.1) == pytest.approx(plain.weight_at(0.1))
    assert Scale(plain, torch.nn.Parameter(torch.tensor(0.5))).weight_at(0.5) == pytest.approx(
        plain.weight_at(0.5) / 2
    )
