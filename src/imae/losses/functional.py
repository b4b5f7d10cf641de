"""A curve applied to logits, or to features and a linear classifier whose logits would not fit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from imae.curves.curve import Curve
from imae.errors import ArgumentError, check_choice
from imae.losses.arguments import (
    Labels,
    check_classes_in_range,
    check_labels,
    is_autocast,
    is_plain,
    precise_dtype,
)
from imae.losses.kernel import (
    exp_in_place,
    exp_of_others,
    finish_gradient,
    kernel_loss,
    silence,
    slope_and_value,
)
from imae.losses.margin import (
    CONSTANT_SCALES,
    CappedLogits,
    batch_weight,
    cap_logits,
    check_cap,
    constant_number,
    constant_weight,
    is_batched,
    is_trainable,
    margin,
    margins,
    precise,
    value_at_margin,
    weight_at_margin,
)
from imae.losses.small import is_small, small_loss

NORMALIZATIONS = (None, "batch", *CONSTANT_SCALES)


def curve_loss(
    logits: Tensor,
    target: Tensor,
    curve: Curve,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    normalize: str | None = None,
    cap: float | None = None,
) -> Tensor:
    """The loss of a curve, with the arguments of ``torch.nn.functional.cross_entropy``.

    Formula, with m the margin of the label and v its class weight:

        l_n = v_{y_n} phi(m_n)
        mean = sum_n l_n / sum_n v_{y_n} over rows not ignored

    A target of probabilities t gives ``sum_k t_k v_k phi(m_k)``, the expected loss of a label
    drawn from it, with ``mean = sum_n l_n / N``; label smoothing e means the targets
    ``(1 - e) onehot + e / C``. With the CCE curve every argument does what it does there.

    The gradient is exact for every finite logit in every dtype; the value has the dtype of the
    logits and so can round to inf in float16, and the mean of a small float32 batch on the CPU may
    be off by 1e-6. A row whose other classes all have logit -inf, or
    a problem with one class, has loss 0 and gradient 0. NaN and +inf logits give NaN.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, shape (), (N) or (N, d1, ..., dK), int64 or uint8 in [0, C); or
            probabilities, shape of ``logits``.
        curve: The loss, from ``imae.curves``.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: Part of the label spread evenly over all classes, in [0, 1].
        normalize: "chance" divides by the weight at p = 1 / C, a constant, so that a learning
            rate carries over from curve to curve; "half" by that at p = 1 / 2, the largest weight
            of IMAE, so that a large T is not a large step; "batch" by the mean weight of the batch
            (a constant for the gradient), so that the mean weight is 1.
        cap: Largest probability of a class, in (1 / C, 1): the loss sees
            ``imae.cap_logits(logits, cap)``. Add ``imae.CappedLogits(cap)`` to the trained model
            for its predictions to have these probabilities. With two classes do not cap twice.

    Returns:
        A scalar, or with ``reduction="none"`` the shape of the class targets, dtype of
        ``logits`` (float32 under autocast).

    Raises:
        IndexError: If a class is out of range.
        ValueError: If ``reduction`` or ``normalize`` is unknown or batch sizes differ.
        RuntimeError: If a shape or dtype is not one that cross entropy takes.

    Examples:
        >>> from imae.curves import IMAE
        >>> logits = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
        >>> curve_loss(logits, torch.tensor([0]), IMAE(T=8.0)).backward()
        >>> logits.grad
        tensor([[-0.5000,  0.2500,  0.2500]])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, Eq. (11).
    """
    check_choice("normalize", normalize, NORMALIZATIONS)
    if (
        weight is None
        and label_smoothing == 0
        and ignore_index < 0
        and reduction == "mean"
        and normalize != "batch"
        and is_small(logits, target)
        and not is_trainable(curve)
    ):
        loss = small_loss(logits, target, curve, normalize=normalize, cap=cap)
        if loss is not None:
            return loss
    labels = check_labels(
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    num_classes = labels.logits.shape[1]
    is_simple = label_smoothing == 0 and labels.index is not None and is_plain(logits, target)
    is_fast = is_simple and _has_gradient(logits) and not is_trainable(curve)
    if cap is not None:
        check_cap(cap, num_classes)
        if not is_fast:
            labels = replace(labels, logits=cap_logits(precise(labels.logits), cap))
    if not is_plain(logits, target):
        return _composite(labels, curve, reduction, label_smoothing, normalize)
    if labels.index is not None and label_smoothing == 1:  # no label is looked up on the way
        check_classes_in_range(target, num_classes, ignore_index)
    try:
        if is_fast:
            return _fast(labels, curve, reduction, normalize, cap)
        return _composite(labels, curve, reduction, label_smoothing, normalize)
    except (RuntimeError, IndexError):
        if labels.index is not None:
            check_classes_in_range(target, num_classes, ignore_index)
        raise


def _has_gradient(logits: Tensor) -> bool:
    return torch.is_grad_enabled() and logits.requires_grad and logits.numel() > 0


def _fast(
    labels: Labels, curve: Curve, reduction: str, normalize: str | None, cap: float | None
) -> Tensor:
    assert labels.index is not None
    logits, index = labels.logits, labels.index
    total = labels.total_scale() if reduction == "mean" else 1
    row_scale = labels.row_scale()
    scale: Tensor | float = 1 / total
    if normalize in CONSTANT_SCALES:
        scale = scale / (
            constant_weight(curve, logits, normalize)
            if next(curve.tensors(), None) is not None
            else constant_number(curve, logits.shape[1], normalize)
        )
    if row_scale is not None:
        scale = (row_scale * scale).masked_fill(row_scale == 0, 0)
    elif isinstance(scale, Tensor):
        scale = scale.expand_as(index)
    is_valid = labels.is_valid
    if logits.dim() > 3:
        logits, index = logits.flatten(2), index.flatten(1)
        scale = scale.flatten(1) if isinstance(scale, Tensor) else scale
        is_valid = None if is_valid is None else is_valid.flatten(1)
    loss = kernel_loss(
        logits,
        index,
        curve,
        scale=scale,
        normalize=normalize == "batch",
        total=reduction != "none",
        cap=cap,
        is_valid=is_valid,
    )
    if reduction == "none":
        return labels.reduce(loss.view_as(labels.index), reduction)
    if isinstance(total, Tensor):  # no row counts: NaN, and a gradient of 0, as in torch
        loss = loss.masked_fill(total == 0, math.nan)
    return loss.to(labels.dtype)


def _composite(
    labels: Labels,
    curve: Curve,
    reduction: str,
    label_smoothing: float,
    normalize: str | None,
) -> Tensor:
    """The same loss in operations that every transform of torch can take apart."""
    labels = replace(labels, logits=precise(labels.logits))
    losses, weights = _rows(labels, curve, label_smoothing)
    if normalize in CONSTANT_SCALES:
        losses = losses / constant_weight(curve, labels.logits, normalize)
    elif normalize == "batch":
        total = labels.total_scale()
        valid = weights if labels.is_valid is None else weights.masked_fill(~labels.is_valid, 0)
        losses = losses / batch_weight(valid.sum() / total)
    return labels.reduce(losses, reduction)


def _rows(labels: Labels, curve: Curve, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss and weight of every row, both times its class weight."""
    losses: Tensor | float = 0.0
    weights: Tensor | float = 0.0
    if labels.index is not None and label_smoothing < 1:
        m = margin(labels.logits, labels.index)
        share: Tensor | float = 1 - label_smoothing
        if labels.class_weight is not None:
            share = share * labels.class_weight[labels.index]
        losses = share * value_at_margin(m, curve)
        weights = share * weight_at_margin(m, curve)
    if labels.probabilities is not None or label_smoothing > 0:
        shares = _shares(labels, label_smoothing)
        m = margins(labels.logits)
        losses = losses + (shares * value_at_margin(m, curve)).sum(1)
        weights = weights + (shares * weight_at_margin(m, curve)).sum(1)
    assert isinstance(losses, Tensor)
    assert isinstance(weights, Tensor)
    return losses, weights


def _shares(labels: Labels, label_smoothing: float) -> Tensor:
    """Class weight times the part of each class that is not a class index, broadcastable."""
    num_classes = labels.logits.shape[1]
    if labels.probabilities is not None:
        shares = labels.probabilities * (1 - label_smoothing) + label_smoothing / num_classes
    else:
        shares = labels.logits.new_full((1,) * labels.logits.dim(), label_smoothing / num_classes)
    if labels.class_weight is None:
        return shares
    return shares * labels.class_weight.view(1, -1, *(1,) * (labels.logits.dim() - 2))


# Logits that exist at one time: 16 MiB of float32. Fewer make the matrix products inefficient.
_PIECE = 1 << 22


def linear_curve_loss(
    features: Tensor,
    class_weight: Tensor,
    target: Tensor,
    curve: Curve,
    bias: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    normalize: str | None = None,
    cap: float | None = None,
) -> Tensor:
    """The loss of a curve on ``features @ class_weight.T + bias``, without holding the logits.

    Rows are worked on in pieces: the logits of a piece are made, turned into their gradient,
    multiplied into the gradients of the features and of the classifier, and dropped. With
    ``reduction="none"`` the logits of each piece are made a second time in the backward pass.

    Args:
        features: Inputs of the classifier, shape (N, E) or (d1, ..., dK, E), any float dtype.
        class_weight: Matrix of the classifier, shape (C, E).
        target: Classes, shape (N) or (d1, ..., dK), int64 or uint8 in [0, C).
        curve: The loss, from ``imae.curves``.
        bias: Bias of the classifier, shape (C).
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".
        normalize: "chance", "half" or "batch", as in ``imae.curve_loss``.
        cap: Largest probability of a class, as in ``imae.curve_loss``.

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Raises:
        ArgumentError: If the shapes do not fit together.
        IndexError: If a class is out of range.

    Examples:
        >>> from imae.curves import CCE
        >>> features, classifier = torch.zeros(2, 3), torch.ones(5, 3)
        >>> linear_curve_loss(features, classifier, torch.tensor([0, 4]), CCE())    # log 5
        tensor(1.6094)
    """
    check_choice("normalize", normalize, NORMALIZATIONS)
    _check_shapes(features, class_weight, target, bias)
    rows, row_target = features.flatten(0, -2), target.flatten()
    if not is_plain(features, class_weight, target) or is_trainable(curve):
        loss = curve_loss(
            linear(rows, class_weight, bias),
            row_target,
            curve,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            normalize=normalize,
            cap=cap,
        )
        return loss.view_as(target) if reduction == "none" else loss
    if cap is not None:
        check_cap(cap, len(class_weight))
    # The arguments are checked with one row of logits, expanded to all.
    stand_in = features.new_empty(1, class_weight.shape[0]).expand(len(rows), -1)
    labels = check_labels(
        stand_in, row_target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    check_classes_in_range(row_target, class_weight.shape[0], ignore_index)
    total = labels.total_scale() if reduction == "mean" else 1
    counts = labels.row_scale()
    if counts is None:
        counts = torch.ones_like(row_target, dtype=precise_dtype(features))
    if normalize in CONSTANT_SCALES:
        total = total * constant_weight(curve, stand_in, normalize)
    scale = (counts / total).masked_fill(counts == 0, 0)
    inputs = [rows, class_weight, bias]
    device_type = features.device.type
    if is_autocast(device_type):
        half = torch.get_autocast_dtype(device_type)
        inputs = [None if each is None else each.to(half) for each in inputs]
    apply: Callable[..., Tensor] = _LinearCurveLoss.apply
    with torch.autocast(device_type, enabled=False):
        total_of_rows, by_batch = reduction != "none", normalize == "batch"
        loss = apply(
            *inputs, labels.index, curve, scale, total_of_rows, by_batch, cap, labels.is_valid
        )
    if reduction == "none":
        loss = loss.view_as(target)
    else:  # no row counts: NaN, and a gradient of 0, as in torch
        loss = loss.masked_fill(torch.as_tensor(total == 0, device=loss.device), math.nan)
    return loss.to(labels.dtype)


class _LinearCurveLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        class_weight: Tensor,
        bias: Tensor | None,
        index: Tensor,
        curve: Curve,
        scale: Tensor,
        total: bool,
        normalize: bool,
        cap: float | None,
        is_valid: Tensor | None,
    ) -> Tensor:
        # A gradient in float16 must wait for the loss scale that keeps it from vanishing.
        at_once = total and any(ctx.needs_input_grad[:3]) and features.dtype != torch.float16
        losses, weights, gradients = _sweep(
            features, class_weight, bias, index, curve, scale, cap, is_valid, at_once
        )
        factor = 1 / batch_weight(weights, scale) if normalize else scale.new_ones(())
        if normalize:
            gradients = [None if g is None else g.mul_(factor) for g in gradients]
        ctx.gradients = gradients if at_once else None
        ctx.curve, ctx.scale, ctx.total, ctx.cap = curve, scale * factor, total, cap
        ctx.is_valid = is_valid
        ctx.save_for_backward(features, class_weight, index, *([] if bias is None else [bias]))
        losses = losses * factor
        return losses.sum() if total else losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, class_weight, index, *bias = ctx.saved_tensors
        inputs = [features, class_weight, *bias]
        if torch.is_grad_enabled() or is_batched(gradient):
            # The caller will differentiate again, or asks for several gradients at once.
            results: Sequence[Tensor | None] = _differentiated(ctx, inputs, index, gradient)
        elif ctx.gradients is not None:
            # Handed over, because the caller may change them; a second call computes them again.
            results, ctx.gradients = ctx.gradients, None
            if not gradient.is_cpu or gradient.item() != 1:
                results = [None if g is None else g.mul_(gradient) for g in results]
        else:
            _, _, results = _sweep(
                features,
                class_weight,
                bias[0] if bias else None,
                index,
                ctx.curve,
                ctx.scale * gradient,
                ctx.cap,
                ctx.is_valid,
                True,
            )
        typed = [
            None if g is None else g.to(t.dtype) for g, t in zip(results, inputs, strict=False)
        ]
        return (*typed, *[None] * (10 - len(typed)))


def _differentiated(
    ctx: Any, inputs: Sequence[Tensor], index: Tensor, gradient: Tensor
) -> list[Tensor | None]:
    """The gradients by torch's own rules, on all logits at once; None for frozen inputs."""
    is_kept = torch.is_grad_enabled()
    wanted = [each for each in inputs if each.requires_grad]
    with torch.enable_grad():
        logits = linear(*inputs)
        losses = curve_loss(logits, index, ctx.curve, reduction="none", cap=ctx.cap) * ctx.scale
        losses = losses.sum() if ctx.total else losses
        found = iter(torch.autograd.grad(losses, wanted, gradient, create_graph=is_kept))
    return [next(found) if each.requires_grad else None for each in inputs]


def _sweep(
    features: Tensor,
    class_weight: Tensor,
    bias: Tensor | None,
    index: Tensor,
    curve: Curve,
    scale: Tensor,
    cap: float | None,
    is_valid: Tensor | None,
    wanted: bool,
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Scaled losses and plain weights of all rows and, if wanted, the three gradients."""
    on_features = torch.empty_like(features) if wanted else None
    on_classes = torch.zeros_like(class_weight, dtype=scale.dtype) if wanted else None
    on_bias = torch.zeros_like(bias, dtype=scale.dtype) if wanted and bias is not None else None
    losses, weights = torch.empty_like(scale), torch.empty_like(scale)
    step = max(1, _PIECE // max(1, class_weight.shape[0]))
    for start in range(0, len(features), step):
        rows = slice(start, start + step)
        labels, factor = index[rows].unsqueeze(1), scale[rows].unsqueeze(1)
        logits, limited = None, None
        if cap is None:
            buffer, m, sums, is_finite = _exp_of_piece(features[rows], class_weight, bias, labels)
        else:
            logits = precise(linear(features[rows], class_weight, bias)).requires_grad_(wanted)
            with torch.enable_grad():
                limited = CappedLogits(cap)(logits)
            buffer, m, sums, is_finite = exp_of_others(limited.detach(), labels)
        slope, value = slope_and_value(m, curve)
        if not is_finite:
            silence(buffer, m == math.inf, slope, value, sums)
            if is_valid is not None:
                silence(buffer, ~is_valid[rows].unsqueeze(1), slope, value, sums)
        losses[rows], weights[rows] = value.squeeze(1), -2 * slope.squeeze(1)
        if on_features is None or on_classes is None:
            continue
        finish_gradient(buffer, labels, slope * factor, sums)
        if logits is not None and limited is not None:
            (buffer,) = torch.autograd.grad(limited, logits, buffer)
        part = buffer.to(features.dtype)
        on_features[rows] = part @ class_weight
        if part.dtype == on_classes.dtype:
            on_classes.addmm_(part.t(), features[rows])
        else:
            on_classes += part.t() @ features[rows]
        if on_bias is not None:
            on_bias += buffer.sum(0)
        del buffer, part, logits, limited  # before the logits of the next piece are made
    return losses * scale, weights, [on_features, on_classes, on_bias]


def _exp_of_piece(
    features: Tensor, class_weight: Tensor, bias: Tensor | None, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """``exp_of_others`` of the logits, in their place where that can be done."""
    logits = linear(features, class_weight, bias)
    if logits.is_cpu and logits.dtype == precise_dtype(logits):
        found = exp_in_place(logits, labels)
        if found is not None:
            return logits, *found, True
        logits = linear(features, class_weight, bias)
    return exp_of_others(logits, labels)


def _check_shapes(
    features: Tensor, class_weight: Tensor, target: Tensor, bias: Tensor | None
) -> None:
    if features.dim() < 2 or target.shape != features.shape[:-1]:
        raise ArgumentError(
            f"target must have the shape of features without its last dimension, got features "
            f"{tuple(features.shape)}, target {tuple(target.shape)}"
        )
    if class_weight.dim() != 2 or class_weight.shape[1] != features.shape[-1]:
        raise ArgumentError(
            f"class_weight must have shape (C, {features.shape[-1]}), "
            f"got {tuple(class_weight.shape)}"
        )
    if bias is not None and bias.shape != class_weight.shape[:1]:
        raise ArgumentError(
            f"bias must have shape ({class_weight.shape[0]},), got {tuple(bias.shape)}"
        )
