"""Classifier and loss in one, for so many classes that the logits would not fit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from imae._checks import check_choice
from imae.curves.base import Curve
from imae.errors import ArgumentError
from imae.losses.functional import NORMALIZATIONS, curve_loss
from imae.losses.kernel import exp_of_others, finish_gradient
from imae.losses.labels import check_labels, explain_index_error, is_plain
from imae.losses.margin import batch_weight

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
        normalize: "batch" divides by the batch's mean weight, as in ``imae.curve_loss``.

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
    if not is_plain(features, class_weight, target):
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
    # One row of logits stands for all when the arguments are checked.
    stand_in = features.new_empty(1, class_weight.shape[0]).expand(len(rows), -1)
    labels = check_labels(
        stand_in, row_target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    line = explain_index_error(labels, row_target, ignore_index)
    if line is not None:
        raise IndexError(line)
    scale = labels.row_scale()
    apply: Callable[..., Tensor] = _LinearCurveLoss.apply
    loss = apply(
        rows,
        class_weight,
        bias,
        labels.index,
        curve,
        torch.ones_like(row_target, dtype=torch.float32) if scale is None else scale,
        reduction,
        normalize is not None,
    )
    return (loss.view_as(target) if reduction == "none" else loss).to(labels.dtype)


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
        reduction: str,
        normalize: bool,
    ) -> Tensor:
        ctx.is_total = reduction != "none"
        wanted = any(ctx.needs_input_grad[:3]) and ctx.is_total
        losses, weights, gradients = _sweep(
            features, class_weight, bias, index, curve, scale, wanted
        )
        factor = scale.sum().reciprocal() if reduction == "mean" else scale.new_ones(())
        if normalize:
            factor = factor / batch_weight(weights, scale)
        ctx.curve, ctx.scale, ctx.factor, ctx.has_bias = curve, scale, factor, bias is not None
        # No row counts: the mean is NaN, and the gradient 0, as torch has it.
        safe = factor.masked_fill(~factor.isfinite(), 0)
        ctx.gradients = tuple(None if g is None else g.mul_(safe) for g in gradients)
        ctx.save_for_backward(features, class_weight, index, *([] if bias is None else [bias]))
        return losses.sum() * factor if ctx.is_total else losses * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, class_weight, index, *rest = ctx.saved_tensors
        inputs = [features, class_weight, *rest]
        if torch.is_grad_enabled():  # the caller will differentiate again
            logits = linear(features, class_weight, *rest)
            losses = curve_loss(logits, index, ctx.curve, reduction="none")
            losses = losses * (ctx.scale * ctx.factor)
            losses = losses.sum() if ctx.is_total else losses
            results: tuple[Tensor | None, ...] = torch.autograd.grad(
                losses, inputs, gradient, create_graph=True, allow_unused=True
            )
        elif ctx.is_total:
            results = tuple(None if g is None else g * gradient for g in ctx.gradients)
        else:
            scale = ctx.scale * ctx.factor * gradient
            bias = rest[0] if ctx.has_bias else None
            _, _, results = _sweep(features, class_weight, bias, index, ctx.curve, scale, True)
        typed = [
            None if g is None else g.to(t.dtype) for g, t in zip(results, inputs, strict=False)
        ]
        return (*typed, *[None] * (8 - len(typed)))


def _sweep(
    features: Tensor,
    class_weight: Tensor,
    bias: Tensor | None,
    index: Tensor,
    curve: Curve,
    scale: Tensor,
    wanted: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:
    """Scaled losses and plain weights of all rows and, if wanted, the three gradients."""
    on_features = torch.empty_like(features) if wanted else None
    on_classes = torch.zeros_like(class_weight) if wanted else None
    on_bias = torch.zeros_like(bias) if wanted and bias is not None else None
    losses, weights = torch.empty_like(scale), torch.empty_like(scale)
    step = max(1, _PIECE // max(1, class_weight.shape[0]))
    for start in range(0, len(features), step):
        rows = slice(start, start + step)
        logits = linear(features[rows], class_weight, bias)
        labels, factor = index[rows].unsqueeze(1), scale[rows].unsqueeze(1)
        buffer, m, sums, _ = exp_of_others(logits, labels)
        certain = m == torch.inf
        slope = curve.slope(m).masked_fill_(certain, 0)
        value = curve.value(m).masked_fill_(certain | (factor == 0), 0)
        losses[rows] = value.squeeze(1)
        weights[rows] = -2 * slope.squeeze(1)
        if not wanted:
            continue
        finish_gradient(buffer, labels, slope * factor, sums.masked_fill_(certain, 1))
        assert on_features is not None
        assert on_classes is not None
        on_features[rows] = buffer @ class_weight
        on_classes.addmm_(buffer.t(), features[rows])
        if on_bias is not None:
            on_bias += buffer.sum(0)
    return losses * scale, weights, (on_features, on_classes, on_bias)


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
