import dataclasses
import inspect
import pickle
import sys

import pytest
import torch

import imae.curves
from imae.curves import AGCE, CCE, CURVES, GCE, IMAE, MAE, Curve, FromWeight, Scale, Sum, Window
from imae.curves.curve import SATURATED

CLASSES = [
    value
    for value in (getattr(imae.curves, name) for name in dir(imae.curves))
    if inspect.isclass(value) and issubclass(value, Curve) and value is not Curve
]
OURS = (Sum, Scale, Window)


def test_slope_is_the_derivative_of_value(curve, away_from_edges):
    m = away_from_edges(curve, torch.linspace(-30, 30, 241, dtype=torch.float64)).requires_grad_()
    (derivative,) = torch.autograd.grad(curve.value(m).sum(), m)
    # The value rounds to about 1e-16 of its size, and no derivative of it can be better.
    torch.testing.assert_close(derivative, curve.slope(m).detach(), rtol=1e-9, atol=2e-14)


def test_differences_of_the_value_are_the_integral_of_the_slope(curve, away_from_edges):
    low = away_from_edges(curve, torch.linspace(-12, 12, 97, dtype=torch.float64))
    step, nodes, parts = (
        1e-3,
        (0.1127016653792583, 0.5, 0.8872983346207417),
        (5 / 18, 8 / 18, 5 / 18),
    )
    low = low[(curve.slope(low) == 0) == (curve.slope(low + step) == 0)]
    integral = sum(
        part * step * curve.slope(low + step * x) for x, part in zip(nodes, parts, strict=True)
    )
    difference = curve.value(low + step) - curve.value(low)
    torch.testing.assert_close(difference, integral, rtol=1e-9, atol=2e-14)


def test_slope_is_never_positive(curve):
    assert bool((curve.slope(torch.linspace(-100, 100, 801)) <= 0).all())


def test_weight_is_twice_the_slope(curve):
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    assert torch.equal(curve.weight(p), 2 * curve.slope(torch.logit(p)).abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_at_the_ends_is_its_limit(curve, dtype):
    ends = curve.weight(torch.tensor([0.0, 1.0], dtype=dtype))
    limits = 2 * curve.slope(torch.tensor([-SATURATED, SATURATED], dtype=dtype)).abs()
    assert ends.dtype == dtype
    assert bool(ends.isfinite().all())
    torch.testing.assert_close(ends, limits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype_are_kept(curve, dtype):
    for shape in ((), (0,), (3,), (2, 0, 3), (2, 3)):
        m = torch.zeros(shape, dtype=dtype)
        for result in (curve.value(m), curve.slope(m), curve.weight(torch.sigmoid(m))):
            assert result.shape == shape
            assert result.dtype == dtype


def test_the_margin_is_not_written_to(curve):
    m = torch.linspace(-5, 5, 11)
    before = m.clone()
    curve.value(m), curve.slope(m)
    assert torch.equal(m, before)


def test_results_do_not_share_memory_with_the_margin(curve):
    m = torch.linspace(-5, 5, 11)
    for result in (curve.value(m), curve.slope(m)):
        assert result.data_ptr() != m.data_ptr()


def test_nan_stays_nan(curve):
    m = torch.tensor([torch.nan])
    if isinstance(curve, Scale) and curve.factor == 0:
        return
    constant = curve in (IMAE(T=0.0), imae.curves.ICCE(T=0.0), imae.curves.DM(beta=0.0))
    assert constant or bool(curve.slope(m).isnan())
    assert bool(curve.value(m).isnan())


def test_repr_names_what_builds_it_again(leaf):
    name, _, arguments = repr(leaf).removesuffix(")").partition("(")
    pairs = (argument.split("=") for argument in arguments.split(", ") if argument)
    types = {field.name: type(getattr(leaf, field.name)) for field in dataclasses.fields(leaf)}
    rebuilt = getattr(imae.curves, name)(**{key: types[key](text) for key, text in pairs})
    assert rebuilt == leaf


def test_pickle_copies_hash_and_compare(curve):
    copy = pickle.loads(pickle.dumps(curve))
    assert copy == curve
    assert hash(copy) == hash(curve)
    m = torch.linspace(-5, 5, 11)
    assert torch.equal(copy.value(m), curve.value(m))


def test_frozen(leaf):
    for name in [*vars(leaf), "anything"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(leaf, name, 1.0)


def test_different_parameters_compare_unequal():
    assert IMAE(T=1.0) != IMAE(T=2.0)
    assert GCE(q=0.5) != AGCE(q=0.5)
    assert len({CCE(), CCE(), MAE()}) == 2


def test_the_interface_itself_cannot_be_built():
    with pytest.raises(TypeError, match="abstract"):
        Curve()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_curve_is_final_frozen_named_and_documented(kind):
    assert getattr(kind, "__final__", sys.version_info < (3, 11))
    assert kind.__dataclass_params__.frozen
    assert kind.__bases__ == (Curve,)
    assert "name" in vars(kind)
    for part in ("phi(m)", "phi'(m)", "w(p)", ">>> "):
        assert part in kind.__doc__
    assert ("Reference:" in kind.__doc__) == (kind not in OURS)


def test_names_are_unique():
    names = [kind.name for kind in CLASSES]
    assert len(set(names)) == len(names) == len(CURVES) + 4


def test_the_printed_weight_is_the_weight(leaf, printed_weight):
    for m in (-100.0, -30.0, -8.0, -2.5, -0.1, 0.0, 0.3, 1.7, 6.0, 25.0, 100.0):
        weight = -2 * leaf.slope(torch.tensor(m, dtype=torch.float64)).item()
        expected = float(printed_weight(leaf, m))
        assert weight == pytest.approx(expected, rel=3e-14 * (1 + abs(m)), abs=1e-300), m


def test_the_printed_weight_is_the_weight_at_a_probability(leaf, printed_weight):
    p = torch.tensor([0.03, 0.2, 0.4999, 0.51, 0.9, 0.999], dtype=torch.float64)
    expected = [float(printed_weight(leaf, m)) for m in torch.logit(p).tolist()]
    assert leaf.weight(p).tolist() == pytest.approx(expected, rel=1e-12)


def test_a_user_can_write_a_curve():
    class Straight(Curve):
        name = "straight"

        def value(self, m):
            return -m

        def slope(self, m):
            return -torch.ones_like(m)

    assert torch.equal(Straight().weight(torch.tensor([0.0, 0.3, 1.0])), torch.full((3,), 2.0))


def test_from_weight_is_among_the_classes():
    assert FromWeight in CLASSES
