"""Losses that need the whole distribution, and so are not curves."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from imae._checks import check_interval
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.errors import ArgumentError
from imae.losses.arguments import (
    Labels,
    check_labels,
    is_plain,
    refuse_classes_out_of_range,
)
from imae.losses.margin import margin, precise, value_at_margin

# Beyond this the inverse of a transition matrix is rounding, not noise undone.
LARGEST_CONDITION = 1e6

# Loss of each row, shape (N, ...), from log-probabilities, shape (N, C, ...), and the arguments.
_RowLoss = Callable[[Tensor, Labels], Tensor]


def label_smoothing_loss(
    logits: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy with labels smoothed towards the uniform distribution.

    Formula, with e the smoothing:

        -(1 - e) log p_y - e / C sum_k log p_k

    It is ``torch.nn.functional.cross_entropy(..., label_smoothing=e)`` under the name by which
    the paper compares with it.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes or probabilities, as for ``imae.curve_loss``.
        smoothing: Part of the label spread evenly over all classes, in [0, 1].
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of the class targets.

    Examples:
        >>> label_smoothing_loss(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)

    Reference:
        Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016.
    """
    check_interval("smoothing", smoothing, low=0, high=1)
    return torch.nn.functional.cross_entropy(
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=smoothing,
    )


def bootstrap_loss(
    logits: Tensor,
    target: Tensor,
    *,
    beta: float = 0.95,
    hard: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy against a mixture of the label and the network's own prediction.

    Formula, with t the one-hot label:

        soft: -sum_k (beta t_k + (1 - beta) p_k) log p_k, differentiated through p_k too
        hard: -sum_k (beta t_k + (1 - beta) [k = argmax p]) log p_k

    The paper's settings: beta = 0.95 soft, beta = 0.8 hard.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        beta: Trust in the label, in [0, 1].
        hard: Whether the prediction enters as its most likely class.
        weight: Factor of each class of the label, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> bootstrap_loss(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)

    Reference:
        Reed et al., "Training deep neural networks on noisy labels with bootstrapping",
        ICLR workshop 2015.
    """
    check_interval("beta", beta, low=0, high=1)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        if hard:
            own_view = -log_p.amax(1)
        else:
            # A class that is impossible adds 0 to the entropy, not 0 * inf.
            impossible = log_p == -torch.inf
            own_view = -(log_p.exp() * log_p.masked_fill(impossible, 0)).sum(1)
        return -beta * _of_label(log_p, labels) + (1 - beta) * own_view

    return _reduce_rows(logits, target, rows, weight, ignore_index, reduction)


def forward_correction(
    logits: Tensor,
    target: Tensor,
    transition: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of the noisy label that the network and the noise together predict.

    Formula:

        -log sum_i p_i transition[i, y]

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        transition: Probability of given label j where the true one is i, at [i, j]; shape
            (C, C), rows that sum to 1.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Raises:
        ArgumentError: If ``transition`` is not a square matrix of probabilities.

    Examples:
        >>> forward_correction(torch.zeros(1, 4), torch.tensor([0]), torch.eye(4))
        tensor(1.3863)

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017.
    """
    _check_transition(transition, logits)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        assert labels.index is not None
        to_label = transition.to(log_p).log().t()[labels.index].movedim(-1, 1)
        return -torch.logsumexp(log_p + to_label, 1)

    return _reduce_rows(logits, target, rows, weight, ignore_index, reduction)


def backward_correction(
    logits: Tensor,
    target: Tensor,
    transition: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy made unbiased by the inverse of the noise; it may be negative.

    Formula:

        -sum_j inverse(transition)[y, j] log p_j

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        transition: Probability of given label j where the true one is i, at [i, j]; shape
            (C, C), rows that sum to 1, invertible.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Raises:
        ArgumentError: If ``transition`` is not a square matrix of probabilities or has no
            inverse.

    Examples:
        >>> backward_correction(torch.zeros(1, 4), torch.tensor([0]), torch.eye(4))
        tensor(1.3863)

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017.
    """
    _check_transition(transition, logits)
    if is_plain(transition) and torch.linalg.cond(transition.double()) > LARGEST_CONDITION:
        raise ArgumentError("transition has no inverse, so backward correction is not defined")
    inverse = torch.linalg.inv(transition.double())

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        assert labels.index is not None
        shares: Tensor = inverse.to(log_p)[labels.index].movedim(-1, 1)
        # A class that has no share adds 0, also where it is impossible, and not 0 * inf.
        return -(shares * log_p.masked_fill(shares == 0, 0)).sum(1)

    return _reduce_rows(logits, target, rows, weight, ignore_index, reduction)


def normalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    scale: float = 1.0,
    passive: Curve | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy divided by its sum over all labels, alone or with a passive loss.

    Formula:

        scale log p_y / sum_k log p_k + phi(m), phi the passive curve

    The active-passive pairs of the paper are ``passive=MAE()`` and, for reverse cross entropy
    with log 0 := A, ``passive=reverse_cross_entropy(A=-4.0)``; both with factors of their own.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        scale: Factor of the normalised cross entropy, not negative.
        passive: Curve to add; None for none.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> normalized_cross_entropy(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)

    Reference:
        Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020.
    """
    check_interval("scale", scale, low=0)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        total = log_p.sum(1)
        # With one class both are 0, and the loss is 0 as cross entropy is.
        share = _of_label(log_p, labels) / total.masked_fill(total == 0, 1)
        if passive is None:
            return scale * share
        assert labels.index is not None
        return scale * share + value_at_margin(margin(labels.logits, labels.index), passive)

    return _reduce_rows(logits, target, rows, weight, ignore_index, reduction)


def reverse_cross_entropy(*, A: float = -4.0, factor: float = 1.0) -> Curve:  # noqa: N803
    """The curve of cross entropy with label and prediction exchanged, a multiple of MAE.

    Formula:

        phi(m) = -factor A (1 - p)

    Args:
        A: The number that stands for log 0, negative.
        factor: Factor of the loss, not negative.

    Examples:
        >>> reverse_cross_entropy(A=-4.0).weight(torch.tensor([0.5]))
        tensor([2.])

    Reference:
        Wang et al., "Symmetric cross entropy for robust learning with noisy labels", ICCV 2019.
    """
    check_interval("A", A, high=0, open_high=True)
    return Scale(MAE(), -A / 2 * factor)


def _reduce_rows(
    logits: Tensor,
    target: Tensor,
    rows: _RowLoss,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    if target.is_floating_point():
        raise RuntimeError(f"target must hold classes (int64 or uint8), got {target.dtype}")
    labels = check_labels(
        logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    labels = replace(labels, logits=precise(labels.logits))
    if is_plain(target):
        refuse_classes_out_of_range(target, labels.logits.shape[1], ignore_index)
    losses = rows(labels.logits.log_softmax(1), labels)
    if labels.class_weight is not None:
        losses = losses * labels.class_weight[labels.index]
    return labels.reduce(losses, reduction)


def _of_label(log_p: Tensor, labels: Labels) -> Tensor:
    assert labels.index is not None
    return log_p.gather(1, labels.index.unsqueeze(1)).squeeze(1)


def _check_transition(transition: Tensor, logits: Tensor) -> None:
    num_classes = logits.shape[min(1, logits.dim() - 1)]
    if transition.shape != (num_classes, num_classes):
        raise ArgumentError(
            f"transition must have shape ({num_classes}, {num_classes}), "
            f"got {tuple(transition.shape)}"
        )
    if not is_plain(transition):
        return
    sums = transition.cpu().double().sum(1)  # not every device has double precision
    if bool((transition < 0).any()) or not torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        raise ArgumentError("transition must hold probabilities whose rows sum to 1")
