import math

import pytest
import torch

from imae.curves.curve import integrate_from_zero


@pytest.mark.parametrize(
    ("f", "primitive"),
    [
        (torch.ones_like, lambda m: m),
        (lambda t: torch.sigmoid(t), lambda m: math.log1p(math.exp(m)) - math.log(2)),
        (
            lambda t: torch.sigmoid(t) * torch.sigmoid(-t),
            lambda m: 1 / (1 + math.exp(-m)) - 0.5,
        ),
        (lambda t: 1 - torch.tanh(t) ** 2, math.tanh),
        (
            lambda t: torch.exp(-t.abs() / 10),
            lambda m: math.copysign(-10 * math.expm1(-abs(m) / 10), m),
        ),
    ],
    ids=["one", "sigmoid", "its slope", "narrow peak", "slow decay"],
)
def test_known_integrals(f, primitive):
    m = torch.linspace(-60, 60, 241, dtype=torch.float64)
    expected = torch.tensor([primitive(x) for x in m.tolist()], dtype=torch.float64)
    torch.testing.assert_close(integrate_from_zero(f, m), expected, rtol=1e-11, atol=1e-13)


def test_constant_beyond_its_reach():
    m = torch.tensor([-1000.0, 1000.0], dtype=torch.float64)
    result = integrate_from_zero(torch.sigmoid, m)
    expected = torch.tensor([-math.log(2), 1000 - math.log(2)], dtype=torch.float64)
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-12)


def test_a_function_that_ends_at_zero_has_a_bounded_integral():
    for dtype in (torch.float32, torch.float64):
        far = torch.tensor([-math.inf, -3e38, -1e37, -200.0, 1e37, math.inf], dtype=dtype)
        found = integrate_from_zero(lambda t: torch.sigmoid(t) * torch.sigmoid(-t), far)
        torch.testing.assert_close(found, far.sign() / 2)


def test_zero_width_is_zero():
    assert integrate_from_zero(torch.exp, torch.zeros(2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_infinite_ends():
    ends = torch.tensor([-math.inf, math.inf])
    vanishing = integrate_from_zero(lambda t: torch.exp(-(t**2)), ends)
    half = math.sqrt(math.pi) / 2
    torch.testing.assert_close(vanishing, torch.tensor([-half, half]), atol=1e-6, rtol=0)
    assert integrate_from_zero(torch.ones_like, ends).tolist() == [-math.inf, math.inf]


def test_nan_stays_nan():
    assert bool(integrate_from_zero(torch.ones_like, torch.tensor([math.nan])).isnan())


def test_derivative_is_the_function():
    m = torch.linspace(-70, 70, 57, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(integrate_from_zero(torch.sigmoid, m).sum(), m)
    torch.testing.assert_close(derivative, torch.sigmoid(m).detach(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3, 4)])
def test_shape_is_kept(shape):
    assert integrate_from_zero(torch.exp, torch.ones(shape)).shape == shape
