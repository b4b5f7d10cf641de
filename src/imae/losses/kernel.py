"""The loss of a curve on plain tensors, in one pass over the logits and one buffer.

The gradient is formed in the forward pass, in the buffer that later is the gradient, in pieces
that fit the cache: nothing of the size of the logits is made besides it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from imae.curves.curve import Curve
from imae.losses.arguments import precise_dtype
from imae.losses.margin import (
    batch_weight,
    cap_logits,
    capped,
    is_batched,
    is_easily_capped,
    margin,
    precise,
    turn_capped,
    value_at_margin,
)

# Elements worked on at once: 32 MiB of float32. With smaller pieces a thread meets data that the
# cache of another core holds: two pieces took 1.7 times as long as one.
_PIECE = 1 << 23
# The same where a cap is put on: several numbers for each logit should stay in the cache.
CAPPED_PIECE = 1 << 18
# Rows whose values are found at once: some curves need 160 numbers a row on the way.
_VALUE_ROWS = 1 << 14
# Up to this margin the sum of the others' exponentials has all its digits in float32, 2^-80.
_SAFE_MARGIN = 55.0
# exp2 runs at twice the speed of exp on CPUs whose vector library has no fast exp, but is one step
# more: that pays from this number of elements on.
_LOG2_E = math.log2(math.e)
# Elements up to which calls are what takes time.
SMALL_SIZE = 1 << 14
# Logits up to this size need not be moved to 0 before the exponential, which saves two passes: it
# has an error of 1e-6 then, as the softmax of torch. Few rows, and a lower limit, tell whether to
# try.
LARGEST_EXPONENT = 20.0
_TRIED_ROWS = 16
_LARGEST_TRIED = 12.0


def kernel_loss(
    logits: Tensor,
    index: Tensor,
    curve: Curve,
    *,
    scale: Tensor | float,
    normalize: bool,
    total: bool,
    cap: float | None = None,
    is_valid: Tensor | None = None,
) -> Tensor:
    """Scaled losses of all rows, or their sum, with a gradient that is ready at once.

    Args:
        logits: Shape (N, C) or (N, C, D), any float dtype.
        index: Labels, shape (N,) or (N, D), int64 in [0, C).
        curve: The loss.
        scale: Factor of each row, shape of ``index``, or one for all.
        normalize: Whether to divide by the batch's mean weight.
        total: Whether to sum over the rows.
        cap: Largest probability of a class; None for no cap.
        is_valid: Rows that count, shape of ``index``, the others with scale 0; None if all do.

    Returns:
        Float32, or float64 if the logits are: a scalar, or the shape of ``index``.
    """
    if cap is not None and not is_easily_capped(logits):
        logits, cap = cap_logits(precise(logits), cap), None
    apply: Callable[..., Tensor] = _CurveLoss.apply
    return apply(logits, index, _Job(curve, scale, normalize, total, cap, is_valid), None)


def ready_loss(
    logits: Tensor,
    index: Tensor,
    curve: Curve,
    *,
    scale: float,
    cap: float | None,
    ready: tuple[Tensor, Tensor],
) -> Tensor:
    """The sum of the losses times ``scale``, whose gradient and value were computed elsewhere."""
    apply: Callable[..., Tensor] = _CurveLoss.apply
    return apply(logits, index, _Job(curve, scale, False, True, cap), ready)


class _Job(NamedTuple):
    """What is to be computed; see ``kernel_loss``."""

    curve: Curve
    scale: Tensor | float
    normalize: bool
    total: bool
    cap: float | None
    is_valid: Tensor | None = None


class _CurveLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, job: _Job, ready: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        ctx.save_for_backward(logits, index)
        ctx.job, ctx.dtype = job, logits.dtype
        if ready is not None:
            ctx.gradient, loss = ready
            return loss
        index = index.unsqueeze(1)
        if isinstance(job.scale, Tensor):
            job = job._replace(scale=job.scale.unsqueeze(1))
        if job.is_valid is not None:
            job = job._replace(is_valid=job.is_valid.unsqueeze(1))
        ctx.gradient, losses, scale = _pass(logits, index, job)
        # A second look takes the scale as it is now.
        ctx.job = job._replace(scale=scale, normalize=False)
        return losses.sum() if job.total else losses.squeeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        job = ctx.job
        if torch.is_grad_enabled():  # the caller will differentiate again
            logits, index = ctx.saved_tensors
            seen = precise(logits) if job.cap is None else cap_logits(precise(logits), job.cap)
            m = margin(seen, index).unsqueeze(1)
            losses = value_at_margin(m, job.curve) * job.scale
            losses = losses.sum() if job.total else losses.squeeze(1)
            (result,) = torch.autograd.grad(losses, logits, gradient, create_graph=True)
            return result, None, None, None
        # It is handed over, because the caller may change it; a second call computes it again.
        result, ctx.gradient = ctx.gradient, None
        if result is None:
            logits, index = ctx.saved_tensors
            result, _, _ = _pass(logits, index.unsqueeze(1), job)
        if is_batched(gradient):
            result = result * (gradient if job.total else gradient.unsqueeze(1))
        elif not job.total:
            result.mul_(gradient.unsqueeze(1))
        elif not gradient.is_cpu or gradient.item() != 1:
            result.mul_(gradient)
        if result.dtype is not ctx.dtype:
            result = result.to(ctx.dtype)
        return result, None, None, None


def _pass(logits: Tensor, index: Tensor, job: _Job) -> tuple[Tensor, Tensor, Tensor | float]:
    """The gradient of the summed losses, the scaled losses and the scale after normalising."""
    step = rows_of(logits, CAPPED_PIECE)
    if job.cap is None or job.normalize or len(logits) <= step:
        return _pass_at_once(logits, index, job, None)
    buffer, scale, values = _buffer_for(logits), job.scale, []
    for start in range(0, len(logits), step):
        rows = slice(start, start + step)
        part = job._replace(scale=scale[rows]) if isinstance(scale, Tensor) else job
        if job.is_valid is not None:
            part = part._replace(is_valid=job.is_valid[rows])
        values.append(_pass_at_once(logits[rows], index[rows], part, buffer[rows])[1])
    return buffer, torch.cat(values), scale


def rows_of(logits: Tensor, size: int) -> int:
    """How many rows have about this many elements, at least one."""
    return max(1, size * len(logits) // max(1, logits.numel()))


def _buffer_for(logits: Tensor) -> Tensor:
    dtype = precise_dtype(logits)
    return torch.empty_like(logits, dtype=dtype, memory_format=torch.contiguous_format)


def _pass_at_once(
    logits: Tensor, index: Tensor, job: _Job, out: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | float]:
    curve, scale, cap = job.curve, job.scale, job.cap
    factor = None
    if cap is not None:
        logits, factor = capped(logits, cap)
    buffer, m, sums, is_finite = exp_of_others(logits, index, out)
    slope, value = slope_and_value(m, curve)
    if not is_finite:
        silence(buffer, m == math.inf, slope, value, sums)
        # Not rows of weight 0: NaN in one of them is NaN in the loss, as in torch.
        if job.is_valid is not None:
            silence(buffer, ~job.is_valid, slope, value, sums)
    if job.normalize:
        scale = scale / batch_weight(-2 * slope, scale)
    finish_gradient(buffer, index, slope.mul_(scale), sums)
    if factor is not None and cap is not None and factor.amin() < 1:
        turn_capped(buffer, logits, factor, cap)
    return buffer, value.mul_(scale), scale


def exp_of_others(
    logits: Tensor, index: Tensor, out: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """What the gradient is made of, before its factor for each row is known.

    Args:
        logits: Shape (N, C) or (N, C, D), any float dtype.
        index: Labels, shape (N, 1) or (N, 1, D), int64 in [0, C).
        out: Where the first result goes; None for a new tensor.

    Returns:
        ``exp(z_j - max)`` with 0 at the label, shape of ``logits``; the margins and the sums of
        the first over the classes, shape of ``index``; all float32 or float64. And whether the
        margins are known to be finite (on an accelerator no: to look would be to wait).
    """
    own = precise(logits.gather(1, index))
    buffer = _buffer_for(logits) if out is None else out
    step = rows_of(logits, _PIECE)
    if len(logits) <= step:
        m, sums, is_finite = _exp_into(buffer, logits, index, own)
    else:
        pieces = zip(*(torch.split(t, step) for t in (buffer, logits, index, own)), strict=True)
        margins, all_sums, are_finite = zip(*(_exp_into(*piece) for piece in pieces), strict=True)
        m, sums, is_finite = torch.cat(margins), torch.cat(all_sums), all(are_finite)
    if not is_finite:  # as in margin()
        m.clamp_(max=torch.finfo(m.dtype).max)
        m.masked_fill_((sums == 0) & own.isfinite(), math.inf)
        m.masked_fill_(own == math.inf, math.nan)
    return buffer, m, sums, is_finite


def silence(buffer: Tensor, rows: Tensor, slope: Tensor, value: Tensor, sums: Tensor) -> None:
    """Gives some rows loss 0 and gradient 0, in place, whatever their logits are.

    Args:
        buffer: As returned by ``exp_of_others``, shape (N, C) or (N, C, D).
        rows: Which ones, shape (N, 1) or (N, 1, D).
        slope: Slopes, shape of ``rows``.
        value: Values, shape of ``rows``.
        sums: As returned by ``exp_of_others``.
    """
    buffer.masked_fill_(rows, 0)
    slope.masked_fill_(rows, 0)
    value.masked_fill_(rows, 0)
    sums.masked_fill_(rows, 1)


def finish_gradient(buffer: Tensor, index: Tensor, on_label: Tensor, sums: Tensor) -> None:
    """Turns the result of ``exp_of_others`` into the gradient, in place.

    Args:
        buffer: As returned, shape (N, C) or (N, C, D).
        index: Labels, shape (N, 1) or (N, 1, D).
        on_label: Gradient on the label's logit, shape of ``index``.
        sums: As returned, nowhere 0.
    """
    buffer.mul_(on_label.div(sums).neg_())
    buffer.scatter_(1, index, on_label)


def _exp_into(
    buffer: Tensor, logits: Tensor, index: Tensor, own: Tensor
) -> tuple[Tensor, Tensor, bool]:
    """Fills the buffer; returns margins, the sums, and whether the margins are known as finite."""
    is_on_cpu = logits.device.type == "cpu"
    if is_on_cpu and logits.dtype == buffer.dtype:
        found = _exp_of_ordinary(buffer, logits, index, own)
        if found is not None:
            return *found, True
    masked = buffer.copy_(logits).scatter_(1, index, -math.inf)
    # With no finite logit among the others the largest is -inf, and -inf - -inf is NaN.
    largest = masked.amax(1, keepdim=True).clamp_(min=torch.finfo(masked.dtype).min)
    sums = masked.sub_(largest).mul_(_LOG2_E).exp2_().sum(1, keepdim=True)
    m = own - largest - sums.log()
    return m, sums, is_on_cpu and math.isfinite(m.sum().item())


def exp_in_place(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor] | None:
    """As ``exp_of_others`` in the place of the logits, float32 or float64 on the CPU.

    Returns:
        The margins and the sums; None, with the logits lost, where some are very large.
    """
    return _exp_of_ordinary(logits, logits, index, logits.gather(1, index))


def _exp_of_ordinary(
    buffer: Tensor, logits: Tensor, index: Tensor, own: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Fills the buffer; returns margins and sums, or None where digits may be lost.

    The label's own logit may be the largest: then the others lose no digit until they come near
    the smallest number, which is looked for. It saves a pass over the logits.
    """
    is_small = logits.numel() <= SMALL_SIZE
    largest = None
    if is_small or not _is_moderate(logits):
        largest = logits.amax(1, keepdim=True)
        torch.sub(logits, largest, out=buffer)
        _ = buffer.exp_() if is_small else buffer.mul_(_LOG2_E).exp2_()
    else:
        torch.mul(logits, _LOG2_E, out=buffer).exp2_()
    # From a tensor, which takes a third of the time of a number.
    sums = buffer.scatter_(1, index, torch.zeros_like(own)).sum(1, keepdim=True)
    log_sums = sums.log()
    m = (own if largest is None else own.sub(largest)).sub(log_sums)
    is_exact = largest is not None or _is_within(log_sums, LARGEST_EXPONENT)
    return (m, sums) if is_exact and _is_within(m, _SAFE_MARGIN) else None


def _is_moderate(logits: Tensor) -> bool:
    """Whether the first rows have logits near 0."""
    return _is_within(logits[:_TRIED_ROWS], _LARGEST_TRIED)


def _is_within(values: Tensor, bound: float) -> bool:
    """Whether all are nearer to 0 than a bound, which NaN is not."""
    smallest, largest = values.aminmax()
    return smallest.item() > -bound and largest.item() < bound


def slope_and_value(m: Tensor, curve: Curve) -> tuple[Tensor, Tensor]:
    """Slope and value of a curve at every margin, in pieces if there are many."""
    if m.numel() <= _VALUE_ROWS:
        return curve.slope_and_value(m)
    parts = [curve.slope_and_value(part) for part in torch.split(m.flatten(), _VALUE_ROWS)]
    slopes, values = zip(*parts, strict=True)
    return torch.cat(slopes).view_as(m), torch.cat(values).view_as(m)
