import math

import mpmath
import numpy as np
import pytest
import torch

from imae.curves import DM, GCE, ICCE, IMAE, MAE, SharpGCE, reweighted
from imae.errors import ArgumentError

MARGINS = torch.linspace(-40, 40, 161, dtype=torch.float64)


def exact_value(weight, m):
    """Minus half the integral of a weight in p, by mpmath, panel by panel."""
    with mpmath.workdps(18):
        ends = mpmath.linspace(0, mpmath.mpf(m), 2 + int(abs(m)))
        return float(-mpmath.quad(lambda t: weight(1 / (1 + mpmath.exp(-t))), ends) / 2)


def series_value(T, m):
    """The value of IMAE by the recursion in x = tanh(m / 2) of the integrals of (1 - u^2)^n."""
    x = math.tanh(m / 2)
    total, factor, integral = 0.0, T / 4, x
    for k in range(1, 12 + int(3 * T) + 1):
        total += factor * integral
        integral = (x * (1 - x * x) ** k + 2 * k * integral) / (2 * k + 1)
        factor *= T / 4 / (k + 1)
    return -m / 2 - total


@pytest.mark.parametrize("T", [0.0, 0.5, 8.0, 16.0, 100.0])
@pytest.mark.parametrize("m", [-12.0, -1.5, 0.25, 3.0, 35.0])
def test_imae_value_is_the_integral_of_its_weight(T, m):
    expected = exact_value(lambda p: mpmath.exp(T * p * (1 - p)), m)
    value = IMAE(T=T).value(torch.tensor(m, dtype=torch.float64)).item()
    assert value == pytest.approx(expected, rel=2e-12)


@pytest.mark.parametrize("T", [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
def test_imae_value_is_the_series(T):
    values = IMAE(T=T).value(MARGINS).tolist()
    assert values == pytest.approx([series_value(T, m) for m in MARGINS.tolist()], rel=1e-13)


@pytest.mark.parametrize(
    ("curve", "weight"),
    [
        (DM(beta=8.0, lam=0.5), lambda p: mpmath.exp(8 * mpmath.sqrt(p) * (1 - p))),
        (DM(beta=5.0, lam=3.0), lambda p: mpmath.exp(5 * p**3 * (1 - p))),
        (ICCE(T=2.0), lambda p: mpmath.exp(2 * (1 - p))),
        (ICCE(T=8.0), lambda p: mpmath.exp(8 * (1 - p))),
    ],
    ids=lambda item: repr(item).split(" at 0x")[0],
)
@pytest.mark.parametrize("m", [-20.0, -1.5, 0.25, 3.0, 35.0])
def test_value_is_the_integral_of_the_weight(curve, weight, m):
    value = curve.value(torch.tensor(m, dtype=torch.float64)).item()
    assert value == pytest.approx(exact_value(weight, m), rel=1e-11)


@pytest.mark.parametrize(
    "curve",
    [IMAE(T=8.0), DM(beta=8.0, lam=0.5), ICCE(T=2.0)],
    ids=lambda item: repr(item).split(" at 0x")[0],
)
def test_value_is_zero_at_one_half(curve):
    assert curve.value(torch.zeros(())).item() == 0


def test_imae_value_is_odd_and_so_may_be_negative():
    value = IMAE(T=8.0).value(MARGINS)
    torch.testing.assert_close(value, -IMAE(T=8.0).value(-MARGINS), rtol=1e-15, atol=0)
    assert value[-1] < 0


def test_imae_without_variance_weighs_all_alike():
    assert torch.equal(IMAE(T=0.0).slope(MARGINS), torch.full_like(MARGINS, -0.5))
    torch.testing.assert_close(IMAE(T=0.0).value(MARGINS), -MARGINS / 2)


def test_dm_with_power_one_is_imae():
    dm, imae = DM(beta=8.0, lam=1.0), IMAE(T=8.0)
    torch.testing.assert_close(dm.slope(MARGINS), imae.slope(MARGINS), rtol=1e-13, atol=0)
    torch.testing.assert_close(dm.value(MARGINS), imae.value(MARGINS), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.0])
def test_dm_peaks_where_it_says(lam):
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    peak = p[DM(beta=8.0, lam=lam).weight(p).argmax()].item()
    assert peak == pytest.approx(lam / (lam + 1), abs=1e-3)


@pytest.mark.parametrize(
    "curve",
    [IMAE(T=100.0), DM(beta=80.0), ICCE(T=80.0)],
    ids=lambda item: repr(item).split(" at 0x")[0],
)
def test_the_largest_weights_are_finite_in_float32(curve):
    weight = -2 * curve.slope(torch.linspace(-100, 100, 801))
    assert bool(weight.isfinite().all())
    assert math.isfinite((weight.sum()).item())
    assert bool(curve.value(torch.linspace(-100, 100, 801)).isfinite().all())


@pytest.mark.parametrize(
    "curve", [IMAE(T=8.0), DM(), ICCE()], ids=lambda item: repr(item).split(" at 0x")[0]
)
def test_an_impossible_label_has_a_slope_and_an_infinite_value(curve):
    m = torch.tensor(-math.inf)
    assert curve.value(m).item() == math.inf
    assert curve.slope(m).item() == pytest.approx(curve.slope(torch.tensor(-500.0)).item())


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: IMAE(T=-5e-324), "T"),
        (lambda: IMAE(T=math.nextafter(100, 101)), "T"),
        (lambda: IMAE(T=math.nan), "T"),
        (lambda: DM(beta=-5e-324), "beta"),
        (lambda: DM(beta=math.nextafter(80, 81)), "beta"),
        (lambda: DM(lam=0.0), "lam"),
        (lambda: DM(lam=math.inf), "lam"),
        (lambda: ICCE(T=-5e-324), "T"),
        (lambda: ICCE(T=math.nextafter(80, 81)), "T"),
    ],
)
def test_just_outside_is_refused(build, name):
    with pytest.raises(ArgumentError, match=rf"^{name} must be in .* got "):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: IMAE(T=0),
        lambda: IMAE(T=100),
        lambda: DM(beta=0, lam=5e-324),
        lambda: DM(beta=80, lam=1e300),
        lambda: ICCE(T=0),
        lambda: ICCE(T=80),
    ],
)
def test_just_inside_is_taken(build):
    assert bool(build().slope(MARGINS).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tensor_for_the_temperature_is_the_number(dtype):
    m = MARGINS.to(dtype)
    for curve in (IMAE(T=torch.tensor(8.0)), IMAE(T=torch.tensor(8.0, dtype=torch.float64))):
        torch.testing.assert_close(curve.value(m), IMAE(T=8.0).value(m))
        torch.testing.assert_close(curve.slope(m), IMAE(T=8.0).slope(m))


def test_a_tensor_for_the_temperature_can_change_in_place():
    T = torch.tensor(8.0)
    curve = IMAE(T=T)
    T.fill_(0.0)
    assert torch.equal(curve.slope(torch.zeros(2)), torch.full((2,), -0.5))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_what_one_mode_leaves_behind_serves_the_next(monkeypatch, mode):
    monkeypatch.setattr(reweighted, "_constants", {})
    with mode():
        IMAE(T=8.0).value(torch.ones(2))
    m = torch.ones(2, requires_grad=True)
    IMAE(T=8.0).value(m).sum().backward()
    torch.testing.assert_close(m.grad, IMAE(T=8.0).slope(torch.ones(2)))


def test_what_a_transform_leaves_behind_serves_the_next(monkeypatch):
    monkeypatch.setattr(reweighted, "_constants", {})
    m = torch.ones(2)
    transformed = torch.func.vmap(torch.func.grad(IMAE(T=8.0).value))(m)
    torch.testing.assert_close(transformed, IMAE(T=8.0).slope(m))
    torch.testing.assert_close(IMAE(T=8.0).value(m), IMAE(T=8.0).value(m.double()).float())


@pytest.mark.parametrize("m", [-1000.0, -300.0, -100.0, 100.0])
def test_dm_with_a_small_power_has_the_value_of_its_integral(m):
    def weight(t):
        return mpmath.exp(8 * (1 / (1 + mpmath.exp(-t))) ** mpmath.mpf("0.1") / (1 + mpmath.exp(t)))

    exact = -mpmath.quad(weight, mpmath.linspace(0, m, 41)) / 2
    value = DM(beta=8.0, lam=0.1).value(torch.tensor([m], dtype=torch.float64)).item()
    assert value == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("q", [0.05, 0.7, 1.0])
def test_sharp_gce_is_gce_at_0_and_near_it(q):
    m = torch.linspace(-200, 60, 131, dtype=torch.float64)
    for T, rtol in ((0.0, 1e-10), (1e-9, 1e-8)):
        curve = SharpGCE(T=T, q=q)
        torch.testing.assert_close(curve.value(m), GCE(q).value(m), rtol=rtol, atol=1e-14)
        torch.testing.assert_close(curve.slope(m), GCE(q).slope(m), rtol=rtol, atol=1e-14)
    torch.testing.assert_close(SharpGCE(0.0, 1.0).value(m), MAE().value(m) / 2)


@pytest.mark.parametrize(("T", "q"), [(4.0, 1.0), (30.0, 0.7), (80.0, 0.3), (8.0, 0.05)])
@pytest.mark.parametrize("m", [-500.0, -30.0, -3.0, 0.0, 2.0, 15.0, 35.0])
def test_sharp_gce_has_the_value_of_its_integral(T, q, m):
    with mpmath.workdps(20):
        T, q = mpmath.mpf(T), mpmath.mpf(q)

        def slope(t):
            p = 1 / (1 + mpmath.exp(-t))
            return mpmath.expm1(T * p**q / (1 + mpmath.exp(t))) / T

        points = {mpmath.mpf(m) + step for step in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)}
        points |= {mpmath.mpf(point) for point in (-40, -20, -10, -5, 0, 5, 10) if point > m}
        exact = mpmath.quad(slope, sorted(points))
    found = SharpGCE(float(T), float(q)).value(torch.tensor([m], dtype=torch.float64)).item()
    assert found == pytest.approx(float(exact), rel=1e-8)
    single = SharpGCE(float(T), float(q)).value(torch.tensor([m])).item()
    assert single == pytest.approx(float(exact), rel=2e-5)


@pytest.mark.parametrize("T", [0.0, 1e-9, 8.0, 12.0, 12.001, 40.0, 41.0])
@pytest.mark.parametrize("shape", [(200,), (100, 1, 2)])
def test_slope_and_value_of_a_step_are_those_of_the_curve(T, shape):
    m = torch.linspace(-50, 50, 200).view(shape)
    slope, value = IMAE(T=T).slope_and_value(m)
    torch.testing.assert_close(value.double(), IMAE(T=T).value(m.double()), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        slope.double(), IMAE(T=T).slope(m.double()), rtol=T * 1e-6 + 1e-6, atol=0
    )


@pytest.mark.parametrize("T", [0.0, 1e-9, 0.5, 8.0, 12.0, 12.001, 16.0, 40.0])
def test_the_value_from_odds_is_the_value(T: float) -> None:
    """The few nodes of the numpy path, for one row at a time, against 16 nodes in float64."""
    odds = np.exp(-np.linspace(-50, 50, 200)).astype(np.float32)
    m = -torch.from_numpy(odds).double().log()
    expected = IMAE(T=T).value(m)
    found = [IMAE(T=T).numpy_weight_and_sum(row) for row in np.split(odds, len(odds))]
    torch.testing.assert_close(
        torch.tensor([value for _, value in found], dtype=torch.float64),
        expected,
        rtol=1e-6,
        atol=1e-6,
    )
    weights = torch.from_numpy(np.concatenate([weight for weight, _ in found]))
    torch.testing.assert_close(
        weights.double(), -2 * IMAE(T=T).slope(m), rtol=T * 1e-6 + 1e-6, atol=0
    )


def test_a_number_of_numpy_becomes_one_of_python():
    assert IMAE(T=np.array(8.0)) == IMAE(T=8.0)
    assert hash(IMAE(T=np.array(8.0))) == hash(IMAE(T=8.0))
