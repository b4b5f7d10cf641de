import inspect
import math

import mpmath
import pytest
import torch

from imae.curves import (
    AGCE,
    CCE,
    DM,
    GCE,
    ICCE,
    IMAE,
    MAE,
    SL,
    Focal,
    ForwardSymmetric,
    Scale,
    SharpGCE,
    Sum,
    TruncatedGCE,
    Window,
)
from imae.errors import ArgumentError

MARGINS = torch.linspace(-25, 25, 201, dtype=torch.float64)

TEXTBOOK = [
    (CCE(), lambda p: -math.log(p)),
    (MAE(), lambda p: (1 - p) + (1 - p)),  # the label's error and that of all others together
    (GCE(q=0.3), lambda p: (1 - p**0.3) / 0.3),
    (GCE(q=0.7), lambda p: (1 - p**0.7) / 0.7),
    (TruncatedGCE(q=0.7, k=0.4), lambda p: (1 - max(p, 0.4) ** 0.7) / 0.7),
    (SL(alpha=0.1, beta=1.0, A=-4.0), lambda p: -0.1 * math.log(p) + 4 * (1 - p)),
    (Focal(gamma=2.0), lambda p: -((1 - p) ** 2) * math.log(p)),
    (AGCE(a=0.6, q=0.6), lambda p: (1.6**0.6 - (0.6 + p) ** 0.6) / 0.6),
    (ForwardSymmetric(rate=0.4, num_classes=5), lambda p: -math.log(0.6 * p + 0.1 * (1 - p))),
]


@pytest.mark.parametrize(
    ("curve", "loss"), TEXTBOOK, ids=lambda item: repr(item).split(" at 0x")[0][:40]
)
def test_value_is_the_textbook_formula(curve, loss):
    for m in (-4.0, -1.3, -0.2, 0.0, 0.7, 2.2, 5.0):
        p = 1 / (1 + math.exp(-m))
        value = curve.value(torch.tensor(m, dtype=torch.float64)).item()
        assert value == pytest.approx(loss(p), rel=1e-12)


def assert_same(left, right, *, rtol=1e-13, atol=1e-15):
    torch.testing.assert_close(left.value(MARGINS), right.value(MARGINS), rtol=rtol, atol=atol)
    torch.testing.assert_close(left.slope(MARGINS), right.slope(MARGINS), rtol=rtol, atol=atol)


def test_focal_without_focus_is_cross_entropy():
    assert_same(Focal(gamma=0.0), CCE())


def test_twice_gce_at_one_is_mae():
    assert_same(Scale(GCE(q=1.0), 2.0), MAE())


def test_gce_near_zero_is_cross_entropy():
    assert_same(GCE(q=1e-6), CCE(), rtol=1e-6 * 25)


def test_sl_is_the_sum_of_cross_entropy_and_mae():
    assert_same(SL(alpha=0.3, beta=1.5, A=-4.0), Sum((Scale(CCE(), 0.3), Scale(MAE(), 3.0))))


def test_forward_correction_without_noise_is_cross_entropy():
    assert_same(ForwardSymmetric(rate=0.0, num_classes=7), CCE())


def test_forward_correction_tends_to_cross_entropy():
    # An even share of 1e-30 for each class: only rows of that probability would notice.
    assert_same(ForwardSymmetric(rate=1e-30, num_classes=2), CCE())


def test_truncated_gce_is_gce_in_a_window():
    assert_same(TruncatedGCE(q=0.6, k=0.3), Window(GCE(q=0.6), low=math.log(0.3 / 0.7)))


def test_agce_with_power_one_is_half_of_mae_whatever_the_shift():
    assert_same(AGCE(a=5.0, q=1.0), Scale(MAE(), 0.5), atol=1e-14)


def test_sl_with_the_reverse_term_alone_is_mae():
    assert_same(SL(alpha=0.0, beta=0.5, A=-4.0), MAE())


@pytest.mark.parametrize("q", [1e-3, 0.1, 0.7, 1.0])
def test_gce_keeps_small_gradients_in_float32(q):
    m = torch.tensor([-80.0, -50.0, -20.0])
    expected = -torch.exp(q * m.double())
    torch.testing.assert_close(GCE(q=q).slope(m).double(), expected, rtol=1e-5, atol=0)


def test_cross_entropy_does_not_turn_into_a_straight_line():
    m = torch.tensor(21.0, dtype=torch.float64)
    assert CCE().value(m).item() == pytest.approx(math.log1p(math.exp(-21)), rel=1e-14)
    assert CCE().value(m).item() > 0


@pytest.mark.parametrize(
    "curve", [row[0] for row in TEXTBOOK], ids=lambda item: repr(item).split(" at 0x")[0]
)
def test_finite_at_the_largest_margins(curve):
    m = torch.tensor([-3e38, -1e4, 1e4, 3e38])
    assert bool(curve.slope(m).isfinite().all())
    assert not bool(curve.value(m).isnan().any())


def test_focal_has_a_slope_where_the_label_is_impossible():
    assert Focal(gamma=2.0).slope(torch.tensor(-math.inf)).item() == -1


TINY = 5e-324
BELOW_ONE = math.nextafter(1, 0)
ABOVE_ONE = math.nextafter(1, 2)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: GCE(q=0.0), "q"),
        (lambda: GCE(q=ABOVE_ONE), "q"),
        (lambda: GCE(q=-0.1), "q"),
        (lambda: GCE(q=math.nan), "q"),
        (lambda: TruncatedGCE(q=0.0), "q"),
        (lambda: TruncatedGCE(q=ABOVE_ONE), "q"),
        (lambda: TruncatedGCE(k=0.0), "k"),
        (lambda: TruncatedGCE(k=1.0), "k"),
        (lambda: SL(alpha=-TINY), "alpha"),
        (lambda: SL(beta=-TINY), "beta"),
        (lambda: SL(A=0.0), "A"),
        (lambda: Focal(gamma=-TINY), "gamma"),
        (lambda: AGCE(a=0.0), "a"),
        (lambda: AGCE(q=0.0), "q"),
        (lambda: ForwardSymmetric(rate=-TINY, num_classes=10), "rate"),
        (lambda: ForwardSymmetric(rate=0.9, num_classes=10), "rate"),
        (lambda: ForwardSymmetric(rate=0.5, num_classes=2), "rate"),
        (lambda: ForwardSymmetric(rate=0.0, num_classes=1), "num_classes"),
        (lambda: ForwardSymmetric(rate=0.0, num_classes=2.5), "num_classes"),
    ],
)
def test_just_outside_is_refused(build, name):
    with pytest.raises(ArgumentError, match=rf"^{name} must be .* got "):
        build()


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (SL, {"alpha": math.inf}),
        (SL, {"beta": math.inf}),
        (SL, {"A": -math.inf}),
        (Focal, {"gamma": math.inf}),
        (AGCE, {"a": math.inf}),
        (AGCE, {"q": math.inf}),
    ],
    ids=str,
)
def test_infinite_parameters_are_refused(kind, parameters):
    # Each makes 0 * inf somewhere, and so a NaN that no logit is to blame for.
    with pytest.raises(ArgumentError, match="must be"):
        kind(**parameters)


@pytest.mark.parametrize(
    "curve",
    [
        GCE(q=1e-12),
        GCE(q=1.0),
        TruncatedGCE(q=1.0, k=1e-300),
        TruncatedGCE(k=BELOW_ONE),
        SL(alpha=0.0, beta=0.0, A=-TINY),
        Focal(gamma=0.0),
        AGCE(a=1e-12, q=1e-12),
        ForwardSymmetric(rate=0.0, num_classes=2),
        ForwardSymmetric(rate=math.nextafter(0.5, 0), num_classes=2),
        ForwardSymmetric(rate=math.nextafter(0.9, 0), num_classes=10),
    ],
    ids=lambda item: repr(item).split(" at 0x")[0],
)
def test_just_inside_is_taken_and_finite(curve):
    m = torch.linspace(-30, 30, 61)
    assert bool(curve.value(m).isfinite().all())
    assert bool(curve.slope(m).isfinite().all())
    assert bool((curve.slope(m) <= 0).all())


def test_agce_keeps_its_digits_where_the_label_is_learned():
    m = torch.tensor([10.0, 20.0, 40.0, 80.0])
    exact = [float(agce_value(0.6, 0.6, each)) for each in m.tolist()]
    torch.testing.assert_close(AGCE().value(m), torch.tensor(exact), rtol=1e-5, atol=0)


def agce_value(a, q, m):
    with mpmath.workdps(60):
        a, q = mpmath.mpf(a), mpmath.mpf(q)
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(m)))
        return ((a + 1) ** q - (a + p) ** q) / q


@pytest.mark.parametrize("q", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("T", [0.0, 4.0, 20.0])
def test_sharp_gce_is_bounded(T, q):
    far = torch.tensor([-1e4, -1e37, -3e38, -math.inf])
    curve = SharpGCE(T, q)
    limit = curve.value(torch.tensor(-5000.0, dtype=torch.float64)).float()
    torch.testing.assert_close(curve.value(far), limit.expand(4))
    if T == 0:
        torch.testing.assert_close(limit, torch.tensor(1 / q))


TRAINED = [
    (curve, name)
    for curve in (SL, GCE, Focal, AGCE, SharpGCE, ForwardSymmetric, TruncatedGCE, DM, ICCE, IMAE)
    for name, field in inspect.signature(curve).parameters.items()
    if isinstance(field.default, float)
]


@pytest.mark.filterwarnings("ignore:Converting a tensor")  # the check of the range reads it
@pytest.mark.parametrize(("curve", "name"), TRAINED)
def test_a_parameter_is_differentiated_or_refused(curve, name):
    default = inspect.signature(curve).parameters[name].default
    default = min(default, 0.9) if name == "q" else default
    parameter = torch.nn.Parameter(torch.tensor(default, dtype=torch.float64))
    if name in ("k", "rate"):
        with pytest.raises(ArgumentError, match=f"{name} cannot be trained"):
            curve(**{name: parameter})
        return
    m, step = torch.tensor([-7.0, -0.3, 1.5], dtype=torch.float64), 1e-5
    trained, above, below = (
        curve(**{name: value}) for value in (parameter, default + step, default - step)
    )
    for part in ("value", "slope"):
        (found,) = torch.autograd.grad(getattr(trained, part)(m).sum(), parameter)
        rise = (getattr(above, part)(m) - getattr(below, part)(m)).sum() / (2 * step)
        torch.testing.assert_close(found, rise, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("edge", ["low", "high"])
def test_an_edge_of_a_window_cannot_be_trained(edge):
    with pytest.raises(ArgumentError, match=f"{edge} cannot be trained"):
        Window(CCE(), **{edge: torch.nn.Parameter(torch.tensor(1.0))})


def test_agce_keeps_its_digits_where_the_label_is_unlikely():
    m = torch.tensor([-12.0, -7.0, -1.0])
    curve = AGCE(a=0.001, q=0.001)
    torch.testing.assert_close(curve.value(m).double(), curve.value(m.double()), rtol=1e-6, atol=0)
