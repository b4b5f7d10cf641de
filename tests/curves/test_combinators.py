import math

import pytest
import torch

from imae.curves import CCE, GCE, IMAE, MAE, Focal, Scale, Sum, Window
from imae.errors import ArgumentError

MARGINS = torch.linspace(-20, 20, 161, dtype=torch.float64)


def test_sum_adds_values_and_slopes():
    parts = (CCE(), MAE(), GCE())
    total = Sum(parts)
    assert torch.equal(total.value(MARGINS), sum(part.value(MARGINS) for part in parts))
    assert torch.equal(total.slope(MARGINS), sum(part.slope(MARGINS) for part in parts))


def test_sum_needs_two_parts():
    with pytest.raises(ArgumentError, match="parts must hold two curves or more, got 1"):
        Sum((CCE(),))
    with pytest.raises(ArgumentError, match="got 0"):
        Sum(())
    assert Sum((CCE(), CCE())).value(torch.zeros(())).item() == pytest.approx(2 * math.log(2))


def test_scale_multiplies():
    assert torch.equal(Scale(CCE(), 3.0).value(MARGINS), 3 * CCE().value(MARGINS))
    assert torch.equal(Scale(CCE(), 3.0).slope(MARGINS), 3 * CCE().slope(MARGINS))


@pytest.mark.parametrize("factor", [-5e-324, -1.0, math.inf, math.nan])
def test_scale_refuses_factors_outside(factor):
    with pytest.raises(ArgumentError, match="factor must be in"):
        Scale(CCE(), factor)


@pytest.mark.parametrize("factor", [0.0, 5e-324, 1e300])
def test_scale_takes_factors_inside(factor):
    assert Scale(CCE(), factor).factor == factor


@pytest.mark.parametrize(
    "inner", [CCE(), MAE(), IMAE(T=8.0), Focal()], ids=lambda item: repr(item).split(" at 0x")[0]
)
def test_window_is_the_curve_inside_and_flat_outside(inner):
    window = Window(inner, low=-3.0, high=2.0)
    inside = (MARGINS >= -3) & (MARGINS <= 2)
    assert torch.equal(window.value(MARGINS)[inside], inner.value(MARGINS)[inside])
    assert torch.equal(window.slope(MARGINS)[inside], inner.slope(MARGINS)[inside])
    assert not bool(window.slope(MARGINS)[~inside].any())
    ends = inner.value(torch.tensor([-3.0, 2.0], dtype=torch.float64))
    assert set(window.value(MARGINS)[~inside].tolist()) == set(ends.tolist())


def test_window_includes_its_edges():
    window = Window(IMAE(T=0.0), low=-1.0, high=1.0)
    beyond = [math.nextafter(-1, -2), -1.0, 1.0, math.nextafter(1, 2)]
    slope = window.slope(torch.tensor(beyond, dtype=torch.float64))
    assert slope.tolist() == [0, -0.5, -0.5, 0]


def test_window_without_edges_is_the_curve():
    window = Window(MAE())
    assert torch.equal(window.slope(MARGINS), MAE().slope(MARGINS))
    assert torch.equal(window.value(MARGINS), MAE().value(MARGINS))


def test_window_is_zero_far_outside_even_where_the_curve_is_not():
    window = Window(IMAE(T=8.0), low=-4.0, high=4.0)
    far = torch.tensor([-math.inf, -3e38, 3e38, math.inf])
    assert not bool(window.slope(far).any())
    assert bool(window.value(far).isfinite().all())


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (0.0, math.nan)]
)
def test_window_refuses_an_empty_range(low, high):
    with pytest.raises(ArgumentError, match="low must be under high"):
        Window(CCE(), low=low, high=high)


def test_window_takes_the_narrowest_range():
    window = Window(CCE(), low=1.0, high=math.nextafter(1, 2))
    assert window.slope(torch.tensor(1.0)).item() < 0


def test_nesting_multiplies_out():
    nested = Scale(Sum((Window(CCE(), high=0.0), Scale(MAE(), 2.0))), 0.5)
    inside = MARGINS[MARGINS <= 0]
    expected = 0.5 * CCE().slope(inside) + MAE().slope(inside)
    torch.testing.assert_close(nested.slope(inside), expected, rtol=1e-15, atol=0)
