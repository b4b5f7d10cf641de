"""Normalised cross entropy, and the passive losses that are added to it."""

from collections.abc import Sequence

from torch import Tensor

from imae._checks import check_interval
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.losses.arguments import Labels, of_label, reduce_rows
from imae.losses.general import DistributionLoss
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

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> import torch
        >>> normalized_cross_entropy(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)

    Reference:
        Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020.
    """
    check_interval("scale", scale, low=0)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        share = _share(log_p, labels)
        if passive is None:
            return scale * share
        assert labels.index is not None
        return scale * share + value_at_margin(margin(labels.logits, labels.index), passive)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def reverse_cross_entropy(*, A: float = -4.0, factor: float = 1.0) -> Curve:  # noqa: N803
    """The curve of cross entropy with label and prediction exchanged, a multiple of MAE.

    Formula:

        phi(m) = -factor A (1 - p)

    Args:
        A: The value used for log 0, negative.
        factor: Factor of the loss, not negative.

    Examples:
        >>> import torch
        >>> reverse_cross_entropy(A=-4.0).weight(torch.tensor([0.5]))
        tensor([2.])

    Reference:
        Wang et al., "Symmetric cross entropy for robust learning with noisy labels", ICCV 2019.
    """
    check_interval("A", A, high=0, open_high=True)
    return Scale(MAE(), -A / 2 * factor)


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

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

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
        p = log_p.exp()
        own = of_label(p, labels)
        distance = p.square().sum(1) - 2 * a * own + a**2
        losses = beta / p.shape[1] * distance
        return losses if alpha == 0 else losses + alpha * _share(log_p, labels)

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

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

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
        negative = 1 - of_label(above, labels) / above.sum(1)
        return alpha * _share(log_p, labels) + beta * negative

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def _share(log_p: Tensor, labels: Labels) -> Tensor:
    """Normalised cross entropy: the label's part of all cross entropies."""
    total = log_p.sum(1)
    # With one class both are 0, and the loss is 0 as cross entropy is.
    return of_label(log_p, labels) / total.masked_fill(total == 0, 1)


class NormalizedCELoss(DistributionLoss):
    """Normalised cross entropy; see ``imae.losses.normalized_cross_entropy``."""

    function = staticmethod(normalized_cross_entropy)


class AsymmetricMSELoss(DistributionLoss):
    """Asymmetric squared error, and JAL-CE; see ``imae.losses.asymmetric_mse``."""

    function = staticmethod(asymmetric_mse)


class ActiveNegativeLoss(DistributionLoss):
    """Normalised cross entropy with its negative; see ``imae.losses.active_negative_loss``."""

    function = staticmethod(active_negative_loss)
