import math

import pytest
import torch

from imae.curves import IMAE
from imae.errors import ArgumentError
from imae.losses import bound_logits, curve_loss, margin


def test_long_vectors_are_shortened_and_short_ones_kept(generator):
    logits = 3 * torch.randn(50, 6, generator=generator, dtype=torch.float64)
    bounded = bound_logits(logits, norm=6.0)
    length = logits.norm(dim=1, keepdim=True)
    assert bool((length > 6).any())
    assert bool((length < 6).any())
    torch.testing.assert_close(bounded, logits * (6 / length).clamp(max=1))
    short = length.squeeze(1) <= 6
    assert torch.equal(bounded[short], logits[short])


@pytest.mark.parametrize("shape", [(6,), (4, 6), (4, 6, 3), (2, 6, 3, 2), (0, 6)])
def test_the_class_dimension_is_bounded(generator, shape):
    logits = 9 * torch.randn(shape, generator=generator)
    bounded = bound_logits(logits, norm=2.0)
    assert bounded.shape == shape
    lengths = bounded.norm(dim=min(1, len(shape) - 1))
    torch.testing.assert_close(lengths, torch.full_like(lengths, 2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_large_logits_do_not_overflow(dtype):
    largest = torch.finfo(dtype).max
    bounded = bound_logits(torch.tensor([[largest, -largest, 0.0]], dtype=dtype), norm=5.0)
    assert bounded.dtype == dtype
    expected = torch.tensor([[5 / math.sqrt(2), -5 / math.sqrt(2), 0.0]], dtype=dtype)
    torch.testing.assert_close(bounded, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_logits_and_zeros_pass(dtype):
    smallest = torch.finfo(dtype).tiny
    logits = torch.tensor([[0.0, 0.0], [smallest, 0.0]], dtype=dtype, requires_grad=True)
    bounded = bound_logits(logits, norm=1.0)
    assert torch.equal(bounded, logits)
    bounded.sum().backward()
    assert torch.equal(logits.grad, torch.ones_like(logits))


def test_gradients_and_their_gradients(generator):
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    for norm in (0.5, 1.8, 100.0):
        assert torch.autograd.gradcheck(lambda z, norm=norm: bound_logits(z, norm), logits)
        assert torch.autograd.gradgradcheck(lambda z, norm=norm: bound_logits(z, norm), logits)


def test_the_push_on_the_length_is_taken_away(generator):
    logits = 10 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    curve_loss(bound_logits(logits, 3.0), torch.tensor([0, 1, 2, 3, 0]), IMAE(T=8.0)).backward()
    along = (logits.grad * logits).sum(1)
    torch.testing.assert_close(along, torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert bool((logits.grad.abs().sum(1) > 0).all())


def test_margins_are_bounded():
    logits = torch.tensor([[1e6, -1e6, 0.0], [-1e6, 1e6, 0.0]])
    m = margin(bound_logits(logits, norm=3.0), torch.tensor([0, 0]))
    assert bool((m.abs() <= 6).all())


@pytest.mark.parametrize("norm", [0.0, -1.0, math.inf, math.nan])
def test_a_norm_outside_is_refused(norm):
    with pytest.raises(ArgumentError, match="norm must be in"):
        bound_logits(torch.zeros(1, 2), norm=norm)


@pytest.mark.parametrize("norm", [1e-30, 1e30])
def test_a_norm_inside_is_taken(norm):
    assert bool(bound_logits(torch.tensor([[3.0, 4.0]]), norm=norm).isfinite().all())


def test_works_row_by_row_under_vmap(generator):
    logits = 5 * torch.randn(5, 4, generator=generator)
    rows = torch.func.vmap(lambda z: bound_logits(z, 2.0))(logits)
    torch.testing.assert_close(rows, bound_logits(logits, 2.0))
