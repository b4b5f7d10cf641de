"""Margins of labels, and curves applied to them, in operations that autograd differentiates."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from imae.curves.curve import Curve


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """Log-odds of the given label.

    Formula:

        m = z_y - logsumexp_{j != y} z_j, so that p_y = sigmoid(m)

    Computed from the other logits only, so it stays exact where the probability rounds to 1.

    Args:
        logits: Unnormalised scores, shape (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Labels, shape (N,) or (N, d1, ..., dK), int64 in [0, C).

    Returns:
        Margins, shape of ``target``, dtype of ``logits``: +inf where no other class has a
        finite logit (as with one class), NaN where a logit is NaN or +inf.

    Examples:
        >>> margin(torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor([19.3069])
    """
    index = target.unsqueeze(1)
    own = logits.gather(1, index)
    others = logits.scatter(1, index, -math.inf)
    # Without a finite logit among the others the largest is -inf, and -inf - -inf would be NaN.
    shift = others.detach().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    total = (others - shift).exp().sum(1, keepdim=True)
    has_no_rival = total == 0
    rest = shift + total.masked_fill(has_no_rival, 1).log()
    # A gap beyond the float range is the largest number: +inf is kept for a label without rival.
    # What is beyond is taken off as a constant, so that the gradient passes; +inf becomes NaN.
    half = (own / 2 - rest / 2 - torch.finfo(logits.dtype).max / 2).detach()
    m = own - 2 * half.clamp(min=0) - rest
    return m.masked_fill(has_no_rival & own.isfinite(), math.inf).squeeze(1)


def margins(logits: Tensor) -> Tensor:
    """Margin of every class, as if each in turn were the label.

    Args:
        logits: Unnormalised scores, shape (N, C) or (N, C, d1, ..., dK), any float dtype.

    Returns:
        Margins, shape and dtype of ``logits``.

    Examples:
        >>> margins(torch.tensor([[0.0, 0.0]]))
        tensor([[0., 0.]])
    """
    top = logits.detach().argmax(1, keepdim=True)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    log_p = logits.log_softmax(1)
    # Only the top class can have p > 1/2, where log(1 - p) is inexact: it gets its own margin.
    p = log_p.exp().masked_fill(is_top, 0)
    top_margin = margin(logits, top.squeeze(1)).unsqueeze(1)
    return torch.where(is_top, top_margin, log_p - torch.log1p(-p))


class _ValueAtMargin(torch.autograd.Function):
    """A curve's value, whose derivative is the curve's slope and not that of its formula.

    The margin is saved as an input, so that the slope can itself be differentiated.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(m: Tensor, curve: Curve) -> Tensor:
        return curve.value(m)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Curve], output: Tensor) -> None:  # noqa: ARG004
        m, ctx.curve = inputs
        ctx.save_for_backward(m)
        ctx.save_for_forward(m)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (m,) = ctx.saved_tensors
        return gradient * ctx.curve.slope(m), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (m,) = ctx.saved_tensors
        slope: Tensor = ctx.curve.slope(m)
        return tangent * slope


def value_at_margin(m: Tensor, curve: Curve) -> Tensor:
    """A curve's loss at each margin; 0 with gradient 0 at +inf, where no other class is possible.

    Args:
        m: Margins, any shape, float32 or float64.
        curve: The loss.

    Returns:
        Losses, same shape and dtype.

    Examples:
        >>> from imae.curves import IMAE
        >>> value_at_margin(torch.tensor([0.0, float("inf")]), IMAE(T=8.0))
        tensor([-0., 0.])
    """
    certain = m == math.inf
    m = m.masked_fill(certain, 0)
    if torch.compiler.is_compiling():
        # The compiler takes no autograd function with a jvp, and makes one derivative only: the
        # tangent at the margin has the right value and the right slope.
        at = m.detach()
        return (curve.value(at) + curve.slope(at) * (m - at)).masked_fill(certain, 0)
    apply: Callable[..., Tensor] = _ValueAtMargin.apply
    losses = apply(m, curve)
    if is_trainable(curve):  # a term of 0 that has the derivative by the curve's parameters
        at_margin = curve.value(m.detach())
        losses = losses + (at_margin - at_margin.detach())
    return losses.masked_fill(certain, 0)


def is_trainable(curve: Curve) -> bool:
    """Whether a parameter of the curve is a tensor that asks for a gradient.

    Examples:
        >>> from imae.curves import IMAE
        >>> is_trainable(IMAE(T=torch.nn.Parameter(torch.tensor(8.0)))), is_trainable(IMAE(T=8.0))
        (True, False)
    """
    return torch.is_grad_enabled() and any(each.requires_grad for each in curve.tensors())


def weight_at_margin(m: Tensor, curve: Curve) -> Tensor:
    """A curve's weight at each margin, without a gradient; 0 at +inf.

    Args:
        m: Margins, any shape, float32 or float64.
        curve: The loss.

    Returns:
        ``2 |phi'(m)|``, same shape and dtype.
    """
    m = m.detach()
    return (-2 * curve.slope(m).detach()).masked_fill(m == math.inf, 0)


def batch_weight(
    weights: Tensor,
    counts: Tensor | float = 1.0,
    total: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> Tensor:
    """The mean weight of a batch, which normalisation divides by; 1 if no row has any weight.

    Args:
        weights: Weight of each row, any shape.
        counts: How much each row counts, same shape, or one number for all.
        total: Sum of a tensor over all processes that share the batch.

    Returns:
        A scalar without a gradient.

    Examples:
        >>> batch_weight(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.0]))
        tensor(1.)
    """
    weights = weights.detach()
    counts = torch.as_tensor(counts, dtype=weights.dtype, device=weights.device)
    sums = torch.stack([(weights * counts).sum(), counts.expand_as(weights).sum()])
    weight, number = total(sums).unbind()
    # Also where no row counts and the quotient is NaN.
    return torch.where(weight > 0, weight / number, torch.ones_like(weight))


def chance_weight(curve: Curve, logits: Tensor) -> Tensor:
    """A curve's weight at p = 1 / C, where training starts; 1 if that is 0.

    Args:
        curve: The loss.
        logits: Shape (N, C, ...), for the number of classes, the dtype and the device.

    Returns:
        A scalar without a gradient, float32 or float64.

    Examples:
        >>> from imae.curves import CCE
        >>> chance_weight(CCE(), torch.zeros(1, 4))     # 2 (1 - 1/4)
        tensor(1.5000)
    """
    rivals = logits.shape[1] - 1
    m = precise(logits).new_tensor(-math.log(rivals) if rivals else math.inf)
    return batch_weight(weight_at_margin(m, curve))


def precise(logits: Tensor) -> Tensor:
    """Logits of half precision as float32; others as they are."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
