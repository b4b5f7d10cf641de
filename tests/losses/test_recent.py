"""AMSE, JAL, ANL and epsilon-softmax against their publications, written out."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from imae.curves import MAE
from imae.errors import ArgumentError
from imae.losses import (
    active_negative_loss,
    asymmetric_mse,
    curve_loss,
    eps_softmax_loss,
    normalized_cross_entropy,
    reverse_cross_entropy,
)
from imae.losses.normalized import nce_mae_loss, nce_rce_loss

TARGET = torch.tensor([0, 3, 1, 2, 2, 0])
LOSSES = {
    "amse": (asymmetric_mse, {}),
    "jal": (asymmetric_mse, {"alpha": 1.0, "a": 5.0}),
    "anl": (active_negative_loss, {}),
    "eps": (eps_softmax_loss, {"m": 10.0, "alpha": 1.0, "beta": 0.5}),
    "eps_published": (eps_softmax_loss, {}),
}
EACH = pytest.mark.parametrize("name", LOSSES)


def draw(scale=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    return (scale * torch.randn(6, 4, generator=generator, dtype=torch.float64)).to(dtype)


def written_out(name, z, y):
    """The publication's formula for one row, in plain steps."""
    p = z.softmax(0)
    C = len(p)
    nce = -p[y].log() / -p.log().sum()
    if name == "amse":
        return sum((p[k] - 30.0 * (k == y)) ** 2 for k in range(C)) / C
    if name == "jal":
        return nce + sum((p[k] - 5.0 * (k == y)) ** 2 for k in range(C)) / C
    if name == "anl":
        height = [-math.log(1e-7) + p[k].clamp(min=1e-7).log() for k in range(C)]
        return 5 * nce + 5 * (1 - height[y] / sum(height))
    m, alpha, beta = (10.0, 1.0, 0.5) if name == "eps" else (1e5, 0.01, 5.0)
    pushed = (p + m * one_hot(p.argmax(), C)) / (1 + m)
    return -alpha * pushed[y].clamp(min=1e-8).log() + beta * 2 * (1 - p[y])


@EACH
@pytest.mark.parametrize("scale", [0.5, 3.0, 8.0])
def test_it_is_the_formula_of_its_publication(name, scale):
    loss, options = LOSSES[name]
    logits, plain = draw(scale).requires_grad_(), draw(scale).requires_grad_()
    ours = loss(logits, TARGET, reduction="none", **options)
    expected = torch.stack([written_out(name, z, y) for z, y in zip(plain, TARGET, strict=True)])
    torch.testing.assert_close(ours, expected)
    ours.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, plain.grad)


@EACH
def test_gradients_are_those_of_the_value(name):
    loss, options = LOSSES[name]
    logits = draw().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, TARGET, **options), logits)


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_and_extreme_logits(name, dtype):
    loss, options = LOSSES[name]
    logits = draw(dtype=dtype)
    value = loss(logits, TARGET, **options)
    assert value.dtype == dtype
    expected = loss(logits.double(), TARGET, **options)
    torch.testing.assert_close(value.double(), expected, rtol=8 * torch.finfo(dtype).eps, atol=0)
    largest = torch.finfo(dtype).max
    rows = [[largest, -largest, 0, 0], [0, largest, 0, 0], [-largest] * 4, [60, 0, 0, -60]]
    extreme = torch.tensor(rows, dtype=dtype, requires_grad=True)
    value = loss(extreme, torch.tensor([0, 0, 1, 0]), **options)
    value.backward()
    assert value.isfinite()
    assert extreme.grad.isfinite().all()


@EACH
def test_arguments_mean_what_they_mean_for_cross_entropy(name):
    loss, options = LOSSES[name]
    logits, weight = draw(), torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    target = TARGET.clone()
    target[2] = -100
    rows = loss(logits, TARGET, reduction="none", **options) * weight[TARGET]
    rows[2] = 0
    ours = loss(logits, target, weight=weight, **options)
    kept = weight[TARGET].sum() - weight[TARGET[2]]
    torch.testing.assert_close(ours, rows.sum() / kept)
    volume = logits.t().unsqueeze(0)
    torch.testing.assert_close(
        loss(volume, target.unsqueeze(0), reduction="sum", weight=weight, **options), rows.sum()
    )


def test_rows_below_the_smallest_logarithm_get_no_gradient_from_the_first_term():
    logits = torch.tensor([[9.0, 0.0]], requires_grad=True)
    eps_softmax_loss(logits, torch.tensor([1]), beta=0.0).backward()
    assert logits.grad.abs().sum() == 0
    logits = torch.tensor([[2.0, 0.0]], requires_grad=True)
    eps_softmax_loss(logits, torch.tensor([1]), beta=0.0).backward()
    assert logits.grad.abs().sum() > 0


def test_pairs_are_sums_of_their_parts():
    logits = draw()
    pairs = [
        (nce_mae_loss(logits, TARGET, alpha=2.0, beta=3.0), 3.0, MAE()),
        (nce_rce_loss(logits, TARGET, alpha=2.0, beta=3.0), 1.0, reverse_cross_entropy(factor=3)),
    ]
    for value, factor, passive in pairs:
        active = normalized_cross_entropy(logits, TARGET, scale=2.0)
        torch.testing.assert_close(value, active + factor * curve_loss(logits, TARGET, passive))


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (asymmetric_mse, {"a": 0.5}),
        (asymmetric_mse, {"beta": -1.0}),
        (active_negative_loss, {"alpha": -1.0}),
        (active_negative_loss, {"A": 0.0}),
        (eps_softmax_loss, {"m": -1.0}),
        (eps_softmax_loss, {"A": 1.0}),
    ],
)
def test_options_out_of_range_are_refused(loss, options):
    with pytest.raises(ArgumentError, match=f"{next(iter(options))} must be in"):
        loss(draw(), TARGET, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_most_likely_class_is_that_of_the_logits(dtype):
    logits = torch.tensor([[0.0, 0.0, 2.0**-100]], dtype=dtype)  # equal in every probability
    of_top, of_other = (
        eps_softmax_loss(logits, torch.tensor([label]), beta=0.0).item() for label in (2, 0)
    )
    assert of_top < of_other / 100
