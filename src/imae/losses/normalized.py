"""Normalised cross entropy, and other pairs of an active and a passive loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from imae.curves.classic import MAE, reverse_cross_entropy
from imae.curves.curve import Curve, Scale
from imae.errors import check_interval
from imae.losses.arguments import DistributionLoss, Labels, of_label, reduce_rows
from imae.losses.margin import margin, value_at_margin


def normalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    scale: float = 1.0,
    passive: Curve | None = None,
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy divided by its sum over all labels, optionally plus a passive loss.

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

    Examples:
        >>> import torch
        >>> normalized_cross_entropy(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)

    Reference:
        Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020.
    """
    check_interval("scale", scale, low=0)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        share = _share(-log_p, labels)
        if passive is None:
            return scale * share
        assert labels.index is not None
        return scale * share + value_at_margin(margin(labels.logits, labels.index), passive)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def nce_mae_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Normalised cross entropy times alpha plus MAE times beta; see the functions."""
    passive = Scale(MAE(), beta)
    return normalized_cross_entropy(
        logits, target, scale=alpha, passive=passive, reduction=reduction
    )


def nce_rce_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    A: float = -4.0,  # noqa: N803
    reduction: str = "mean",
) -> Tensor:
    """Normalised cross entropy times alpha plus reverse cross entropy times beta."""
    passive = reverse_cross_entropy(A=A, factor=beta)
    return normalized_cross_entropy(
        logits, target, scale=alpha, passive=passive, reduction=reduction
    )


def asymmetric_mse(
    logits: Tensor,
    target: Tensor,
    *,
    a: float = 30.0,
    alpha: float = 0.0,
    beta: float = 1.0,
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Mean squared distance of the prediction from ``a`` times the one-hot label.

    Formula, with t the one-hot label:

        beta / C sum_k (p_k - a t_k)^2 + alpha log p_y / sum_k log p_k

    From a = 1 on it is an asymmetric loss: its minimum is the clean one as long as right labels
    are the most frequent. With alpha > 0 it is JAL-CE, which adds normalised cross entropy; the
    authors take alpha = 1, a = 30 on CIFAR-10 and alpha = 5, a = 20 on CIFAR-100.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        a: Length of the label's vector, at least 1.
        alpha: Factor of the normalised cross entropy, not negative.
        beta: Factor of the squared distance, not negative.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Examples:
        >>> import torch
        >>> asymmetric_mse(torch.zeros(1, 2), torch.tensor([0]), a=1.0)     # (1/4 + 1/4) / 2
        tensor(0.2500)

    Reference:
        Wang et al., "Joint asymmetric loss for learning with noisy labels", ICCV 2025.
    """
    check_interval("a", a, low=1)
    check_interval("alpha", alpha, low=0)
    check_interval("beta", beta, low=0)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        # By 1 - p_y: the difference of p_y and a would cancel at a = 1.
        distance = (a - 1 + _rest(labels)).square() + _sum_of_others(log_p.exp().square(), labels)
        losses = beta / log_p.shape[1] * distance
        return losses if alpha == 0 else losses + alpha * _share(-log_p, labels)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def active_negative_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 5.0,
    beta: float = 5.0,
    A: float = -16.11809565095832,  # noqa: N803
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Normalised cross entropy plus the normalised negative one: ANL-CE.

    Formula, with l_k = max(A, log p_k):

        alpha log p_y / sum_k log p_k + beta (1 - (l_y - A) / sum_k (l_k - A))

    The second term asks the classes that are not the label to be unlikely, each as far as A. The
    authors add a penalty on the weights of the network, which the method ``anl`` has. A is their
    log(1e-7); alpha = beta = 5 on CIFAR-10, alpha = 10 and beta = 1 on CIFAR-100.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        alpha: Factor of the normalised cross entropy, not negative.
        beta: Factor of the normalised negative cross entropy, not negative.
        A: Smallest logarithm of a probability, negative.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Examples:
        >>> import torch
        >>> active_negative_loss(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0)
        tensor(1.)

    Reference:
        Ye et al., "Active negative loss functions for learning with noisy labels", NeurIPS 2023.
    """
    check_interval("alpha", alpha, low=0)
    check_interval("beta", beta, low=0)
    check_interval("A", A, high=0, open_high=True)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        above = log_p.clamp(min=A) - A
        negative = _part(_sum_of_others(above, labels), of_label(above, labels))
        return alpha * _share(-log_p, labels) + beta * negative

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def _share(cross_entropies: Tensor, labels: Labels) -> Tensor:
    """Normalised cross entropy: the label's part of all cross entropies."""
    return _part(of_label(cross_entropies, labels), _sum_of_others(cross_entropies, labels))


def _part(part: Tensor, others: Tensor) -> Tensor:
    """``part / (part + others)`` of numbers that are not negative; 0 if both are 0."""
    # The derivative by the smaller one is that of a quotient under 1/2, which does not cancel.
    is_smaller = part <= others
    smaller, larger = torch.where(is_smaller, part, others), torch.where(is_smaller, others, part)
    total = smaller + larger
    quotient = smaller / total.masked_fill(total == 0, 1)
    return torch.where(is_smaller, quotient, 1 - quotient)


def _sum_of_others(numbers: Tensor, labels: Labels) -> Tensor:
    """Sum over the classes that are not the label, shape (N, ...)."""
    assert labels.index is not None
    return numbers.scatter(1, labels.index.unsqueeze(1), 0).sum(1)


def _rest(labels: Labels) -> Tensor:
    """``1 - p_y``, shape (N, ...), with the derivative ``-p_y (1 - p_y)`` by the margin."""
    assert labels.index is not None
    return value_at_margin(margin(labels.logits, labels.index), Scale(MAE(), 0.5))


def eps_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    m: float = 1e5,
    alpha: float = 0.01,
    beta: float = 5.0,
    A: float = -18.420680743952367,  # noqa: N803
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of predictions pushed towards a one-hot vector, plus MAE.

    Formula, with t the most likely class:

        -alpha max(A, log((p_y + m [y = t]) / (1 + m))) + 2 beta (1 - p_y)

    The larger m, the less the first term says of rows that are predicted as labelled, and the
    less a row counts whose label is another class: below A it sends no gradient there. Defaults
    are those of the authors' code for CIFAR-10 with symmetric noise; A is their log(1e-8).

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        m: What is added to the largest probability, not negative; 0 for cross entropy plus MAE.
        alpha: Factor of the cross entropy, not negative.
        beta: Factor of the mean absolute error, not negative.
        A: Smallest logarithm of a probability, negative.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> eps_softmax_loss(logits, torch.tensor([0]), m=0.0, alpha=1.0, beta=0.0)
        tensor(0.1269)

    Reference:
        Wang et al., "Epsilon-softmax: approximating one-hot vectors for mitigating label noise",
        NeurIPS 2024.
    """
    check_interval("m", m, low=0)
    check_interval("alpha", alpha, low=0)
    check_interval("beta", beta, low=0)
    check_interval("A", A, high=0, open_high=True)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        rest = _rest(labels)
        assert labels.index is not None
        is_top = labels.logits.argmax(1) == labels.index
        towards = torch.log1p(-rest.masked_fill(~is_top, 0) / (1 + m))
        pushed = torch.where(is_top, towards, of_label(log_p, labels) - math.log1p(m))
        return -alpha * pushed.clamp(min=A) + 2 * beta * rest

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


class NormalizedCELoss(DistributionLoss):
    """Normalised cross entropy; see ``imae.losses.normalized_cross_entropy``."""

    function = staticmethod(normalized_cross_entropy)


class AsymmetricMSELoss(DistributionLoss):
    """Asymmetric squared error, and JAL-CE; see ``imae.losses.asymmetric_mse``."""

    function = staticmethod(asymmetric_mse)


class ActiveNegativeLoss(DistributionLoss):
    """Normalised cross entropy with its negative; see ``imae.losses.active_negative_loss``."""

    function = staticmethod(active_negative_loss)


class EpsSoftmaxLoss(DistributionLoss):
    """Cross entropy after epsilon-softmax, plus MAE; see ``imae.losses.eps_softmax_loss``."""

    function = staticmethod(eps_softmax_loss)
