"""The loss of a curve on plain tensors, in one pass over the logits and one buffer.

The gradient is formed in the forward pass, in the buffer that later is the gradient, in pieces
that fit the cache: nothing of the size of the logits is made besides it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from imae.curves.base import Curve
from imae.losses.margin import batch_weight, margin, precise, value_at_margin

# Elements worked on at once: 4 MiB of float32. Smaller pieces cost more in calls than they save.
_PIECE = 1 << 20
# Rows whose values are found at once: some curves need 160 numbers a row on the way.
_VALUE_ROWS = 1 << 14
# exp2 runs at twice the speed of exp on CPUs whose vector library has no fast exp.
_LOG2_E = math.log2(math.e)


def kernel_loss(
    logits: Tensor,
    index: Tensor,
    curve: Curve,
    *,
    scale: Tensor | float,
    normalize: bool,
    total: bool,
) -> Tensor:
    """Scaled losses of all rows, or their sum, with a gradient that is ready at once.

    Args:
        logits: Shape (N, C) or (N, C, D), any float dtype.
        index: Labels, shape (N,) or (N, D), int64 in [0, C).
        curve: The loss.
        scale: Factor of each row, shape of ``index``, or one for all.
        normalize: Whether to divide by the batch's mean weight.
        total: Whether to sum over the rows.

    Returns:
        Float32, or float64 if the logits are: a scalar, or the shape of ``index``.
    """
    apply: Callable[..., Tensor] = _CurveLoss.apply
    return apply(logits, index, curve, scale, normalize, total)


class _CurveLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        curve: Curve,
        scale: Tensor | float,
        normalize: bool,
        total: bool,
    ) -> Tensor:
        index = index.unsqueeze(1)
        scale = scale.unsqueeze(1) if isinstance(scale, Tensor) else scale
        buffer, m, sums, is_finite = exp_of_others(logits, index)
        slope, value = curve.slope(m), _value(m, curve)
        if not is_finite:
            certain = m == math.inf
            for per_row, filler in ((slope, 0), (value, 0), (sums, 1)):
                per_row.masked_fill_(certain, filler)
        if normalize:
            scale = scale / batch_weight(-2 * slope, scale)
        finish_gradient(buffer, index, slope.mul_(scale), sums)
        ctx.save_for_backward(logits, index, buffer)
        ctx.scale, ctx.curve, ctx.total = scale, curve, total
        losses = value.mul_(scale)
        return losses.sum() if total else losses.squeeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, buffer = ctx.saved_tensors
        if torch.is_grad_enabled():  # the caller will differentiate again
            m = margin(precise(logits), index.squeeze(1)).unsqueeze(1)
            losses = value_at_margin(m, ctx.curve) * ctx.scale
            losses = losses.sum() if ctx.total else losses.squeeze(1)
            (result,) = torch.autograd.grad(losses, logits, gradient, create_graph=True)
        elif not ctx.total:
            result = (buffer * gradient.unsqueeze(1)).to(logits.dtype)
        elif gradient.device.type == "cpu" and gradient.item() == 1:
            result = buffer
        else:
            result = (buffer * gradient).to(logits.dtype)
        return result, None, None, None, None, None


def exp_of_others(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
    """What the gradient is made of, before its factor for each row is known.

    Args:
        logits: Shape (N, C) or (N, C, D), any float dtype.
        index: Labels, shape (N, 1) or (N, 1, D), int64 in [0, C).

    Returns:
        ``exp(z_j - max)`` with 0 at the label, shape and dtype of ``logits``; the margins and the
        sums of the first over the classes, shape of ``index``, float32 or float64; and whether
        the margins are known to be finite (on an accelerator no: to look would be to wait).
    """
    own = precise(logits.gather(1, index))
    step = max(1, _PIECE * len(logits) // max(1, logits.numel()))
    if len(logits) <= step:
        buffer = logits.scatter(1, index, -math.inf)
        largest, sums = _exp_in_place(buffer)
    else:
        buffer = torch.empty_like(logits, memory_format=torch.contiguous_format)
        pieces = zip(*(torch.split(t, step) for t in (logits, index, buffer)), strict=True)
        parts = [
            _exp_in_place(out.copy_(piece).scatter_(1, at, -math.inf)) for piece, at, out in pieces
        ]
        largest, sums = (torch.cat(part) for part in zip(*parts, strict=True))
    m = own - largest - sums.log()
    is_finite = m.device.type == "cpu" and math.isfinite(m.sum().item())
    if not is_finite:
        m.masked_fill_(own == math.inf, math.nan)
    return buffer, m, sums, is_finite


def finish_gradient(buffer: Tensor, index: Tensor, on_label: Tensor, sums: Tensor) -> None:
    """Turns the result of ``exp_of_others`` into the gradient, in place.

    Args:
        buffer: As returned, shape (N, C) or (N, C, D).
        index: Labels, shape (N, 1) or (N, 1, D).
        on_label: Gradient on the label's logit, shape of ``index``.
        sums: As returned, nowhere 0.
    """
    buffer.mul_(on_label.div(sums).neg_())
    buffer.scatter_(1, index, on_label.to(buffer.dtype))


def _exp_in_place(masked: Tensor) -> tuple[Tensor, Tensor]:
    """Largest logit and sum of exponentials of each row, which replace the logits."""
    work = precise(masked)  # the same tensor unless the logits are of half precision
    # With no finite logit among the others the largest is -inf, and -inf - -inf is NaN.
    largest = work.amax(1, keepdim=True).clamp_(min=torch.finfo(work.dtype).min)
    sums = work.sub_(largest).mul_(_LOG2_E).exp2_().sum(1, keepdim=True)
    if work is not masked:
        masked.copy_(work)
    return largest, sums


def _value(m: Tensor, curve: Curve) -> Tensor:
    if m.numel() <= _VALUE_ROWS:
        return curve.value(m)
    parts = [curve.value(part) for part in torch.split(m.flatten(), _VALUE_ROWS)]
    return torch.cat(parts).view_as(m)
