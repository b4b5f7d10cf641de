"""Classifier and loss in one, for so many classes that the logits would not fit."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from imae.curves.curve import Curve
from imae.errors import ArgumentError, check_choice
from imae.losses.arguments import (
    check_labels,
    is_autocast,
    is_batched,
    is_plain,
    precise_dtype,
    refuse_classes_out_of_range,
)
from imae.losses.functional import NORMALIZATIONS, curve_loss
from imae.losses.kernel import exp_of_others, finish_gradient, silence, slope_and_value
from imae.losses.margin import batch_weight, chance_weight, is_trainable

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
        normalize: "chance" or "batch", as in ``imae.curve_loss``.

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
        )
        return loss.view_as(target) if reduction == "none" else loss
    # The arguments are checked with one row of logits, expanded to all.
    stand_in = features.new_empty(1, class_weight.shape[0]).expand(len(rows), -1)
    labels = check_labels(
        stand_in, row_target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    refuse_classes_out_of_range(row_target, class_weight.shape[0], ignore_index)
    total = labels.total_scale() if reduction == "mean" else 1
    counts = labels.row_scale()
    if counts is None:
        counts = torch.ones_like(row_target, dtype=precise_dtype(features))
    if normalize == "chance":
        total = total * chance_weight(curve, stand_in)
    scale = (counts / total).masked_fill(counts == 0, 0)
    inputs = [rows, class_weight, bias]
    device_type = features.device.type
    if is_autocast(device_type):
        half = torch.get_autocast_dtype(device_type)
        inputs = [None if each is None else each.to(half) for each in inputs]
    apply: Callable[..., Tensor] = _LinearCurveLoss.apply
    with torch.autocast(device_type, enabled=False):
        loss = apply(*inputs, labels.index, curve, scale, reduction != "none", normalize == "batch")
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
    ) -> Tensor:
        # A gradient in float16 must wait for the loss scale that keeps it from vanishing.
        at_once = total and any(ctx.needs_input_grad[:3]) and features.dtype != torch.float16
        losses, weights, gradients = _sweep(
            features, class_weight, bias, index, curve, scale, at_once
        )
        factor = 1 / batch_weight(weights, scale) if normalize else scale.new_ones(())
        ctx.gradients = [None if g is None else g.mul_(factor) for g in gradients]
        ctx.curve, ctx.scale = curve, scale * factor
        ctx.total, ctx.at_once = total, at_once
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
        elif ctx.at_once:
            results = [None if g is None else g * gradient for g in ctx.gradients]
        else:
            _, _, results = _sweep(
                features,
                class_weight,
                bias[0] if bias else None,
                index,
                ctx.curve,
                ctx.scale * gradient,
                True,
            )
        typed = [
            None if g is None else g.to(t.dtype) for g, t in zip(results, inputs, strict=False)
        ]
        return (*typed, *[None] * (8 - len(typed)))


def _differentiated(
    ctx: Any, inputs: Sequence[Tensor], index: Tensor, gradient: Tensor
) -> list[Tensor | None]:
    """The gradients by torch's own rules, on all logits at once; None for frozen inputs."""
    is_kept = torch.is_grad_enabled()
    wanted = [each for each in inputs if each.requires_grad]
    with torch.enable_grad():
        losses = curve_loss(linear(*inputs), index, ctx.curve, reduction="none") * ctx.scale
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
        logits = linear(features[rows], class_weight, bias)
        buffer, m, sums, is_finite = exp_of_others(logits, labels)
        slope, value = slope_and_value(m, curve)
        if not is_finite:
            silence(buffer, (m == math.inf) | (factor == 0), slope, value, sums)
        losses[rows], weights[rows] = value.squeeze(1), -2 * slope.squeeze(1)
        if on_features is None or on_classes is None:
            continue
        finish_gradient(buffer, labels, slope * factor, sums)
        part = buffer.to(features.dtype)
        on_features[rows] = part @ class_weight
        if part.dtype == on_classes.dtype:
            on_classes.addmm_(part.t(), features[rows])
        else:
            on_classes += part.t() @ features[rows]
        if on_bias is not None:
            on_bias += buffer.sum(0)
    return losses * scale, weights, [on_features, on_classes, on_bias]


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
