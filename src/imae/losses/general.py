"""Cross entropy smoothed, bootstrapped or corrected: losses that need the whole distribution."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from imae.errors import ArgumentError, check_interval
from imae.losses.arguments import (
    DistributionLoss,
    Labels,
    as_class_weight,
    is_exact,
    is_plain,
    of_label,
    reduce_rows,
)


def label_smoothing_loss(
    logits: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    weight: Tensor | Sequence[float] | None = None,
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

    Examples:
        >>> label_smoothing_loss(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)

    Reference:
        Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016.
    """
    check_interval("smoothing", smoothing, low=0, high=1)
    weight = as_class_weight(weight, logits)
    if weight is not None and isinstance(logits, Tensor) and is_exact(weight, logits):
        weight = weight.to(logits.dtype)
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
    weight: Tensor | Sequence[float] | None = None,
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
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

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
            top = labels.logits.detach().argmax(1, keepdim=True)  # one class, also among equals
            own_view = -log_p.gather(1, top).squeeze(1)
        else:
            # A class that is impossible adds 0 to the entropy, not 0 * inf.
            impossible = log_p == -torch.inf
            own_view = -(log_p.exp() * log_p.masked_fill(impossible, 0)).sum(1)
        return -beta * of_label(log_p, labels) + (1 - beta) * own_view

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


class LabelSmoothingLoss(DistributionLoss):
    """Smoothed cross entropy; see ``imae.losses.label_smoothing_loss``."""

    function = staticmethod(label_smoothing_loss)


class BootstrapLoss(DistributionLoss):
    """Bootstrapped cross entropy; see ``imae.losses.bootstrap_loss``."""

    function = staticmethod(bootstrap_loss)


# Beyond this the inverse of a transition matrix is rounding error.
LARGEST_CONDITION = 1e6
_LARGEST_EXPONENT = 80.0


def forward_correction(
    logits: Tensor,
    target: Tensor,
    transition: Tensor | Sequence[Sequence[float]],
    *,
    weight: Tensor | Sequence[float] | None = None,
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

    Raises:
        ArgumentError: If ``transition`` is not a square matrix of probabilities.

    Examples:
        >>> forward_correction(torch.zeros(1, 4), torch.tensor([0]), torch.eye(4))
        tensor(1.3863)

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017.
    """
    transition = _as_transition(transition, logits)
    _check_transition(transition, logits)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        assert labels.index is not None
        to_label = transition.to(log_p).t()[labels.index].movedim(-1, 1)
        # Not the logarithm of the matrix: its derivative at an entry of 0 is infinite. The largest
        # possible term is factored out; what is impossible and larger must not overflow.
        possible = log_p.detach().masked_fill(to_label == 0, -torch.inf)
        shift = possible.amax(1, keepdim=True).clamp(min=torch.finfo(log_p.dtype).min)
        total = ((log_p - shift).clamp(max=_LARGEST_EXPONENT).exp() * to_label).sum(1)
        is_impossible = total == 0
        losses = -total.masked_fill(is_impossible, 1).log() - shift.squeeze(1)
        losses = losses.masked_fill(is_impossible, torch.inf)
        # If the most likely class t can get the label: T_ty + sum_{i != t} p_i (T_iy - T_ty). Its
        # derivative is through the small p_i only; that of the sum above cancels.
        top = log_p.detach().argmax(1, keepdim=True)
        of_top = to_label.gather(1, top)
        others = log_p.scatter(1, top, -torch.inf).exp()
        total = of_top.squeeze(1) + (others * (to_label - of_top)).sum(1)
        is_above_zero = of_top.squeeze(1) > 0
        direct = -total.masked_fill(~is_above_zero, 1).log()
        return torch.where(is_above_zero, direct, losses)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def backward_correction(
    logits: Tensor,
    target: Tensor,
    transition: Tensor | Sequence[Sequence[float]],
    *,
    weight: Tensor | Sequence[float] | None = None,
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

    Raises:
        ArgumentError: If ``transition`` is not a matrix of probabilities or has no inverse.

    Examples:
        >>> backward_correction(torch.zeros(1, 4), torch.tensor([0]), torch.eye(4))
        tensor(1.3863)

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017.
    """
    transition = _as_transition(transition, logits)
    _check_transition(transition, logits)
    if is_plain(transition) and torch.linalg.cond(transition.double()) > LARGEST_CONDITION:
        raise ArgumentError("transition has no inverse, so backward correction is not defined")
    inverse = torch.linalg.inv(transition.double())

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        assert labels.index is not None
        shares: Tensor = inverse.to(log_p)[labels.index].movedim(-1, 1)
        # An impossible class that has no share adds 0, and not 0 * inf.
        is_void = (shares == 0) & (log_p == -torch.inf)
        return -(shares * log_p.masked_fill(is_void, 0)).sum(1)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


class CorrectedLoss(nn.Module):
    """Cross entropy corrected by a transition matrix, which moves with the module.

    See ``imae.losses.forward_correction`` and ``imae.losses.backward_correction``.

    Args:
        transition: Probability of given label j where the true one is i, at [i, j]; shape (C, C).
        backward: Whether to correct the losses instead of the predictions.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Examples:
        >>> criterion = CorrectedLoss(torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
        >>> criterion(torch.zeros(1, 2), torch.tensor([0]))
        tensor(0.4308)
    """

    transition: Tensor
    weight: Tensor | None

    def __init__(
        self,
        transition: Tensor | Sequence[Sequence[float]],
        *,
        backward: bool = False,
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("weight", as_class_weight(weight))
        self.register_buffer("transition", _as_transition(transition))
        self.ignore_index = ignore_index
        self.reduction = reduction
        self._correct = backward_correction if backward else forward_correction

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        return self._correct(
            logits,
            target,
            self.transition,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


def _as_transition(transition: object, logits: Tensor | None = None) -> Tensor:
    """A matrix as a tensor of floats, on the device of the logits if it was none."""
    if not isinstance(transition, Tensor):
        device = logits.device if isinstance(logits, Tensor) else None
        try:
            transition = torch.as_tensor(transition, device=device)
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentError(
                f"transition must be a square matrix of numbers, got {transition!r}"
            ) from None
    return (
        transition if transition.is_floating_point() else transition.to(torch.get_default_dtype())
    )


def _check_transition(transition: Tensor, logits: Tensor) -> None:
    if not isinstance(logits, Tensor) or logits.dim() == 0:
        return  # refused with the other arguments
    num_classes = logits.shape[min(1, logits.dim() - 1)]
    if transition.shape != (num_classes, num_classes):
        raise ArgumentError(
            f"transition must have shape ({num_classes}, {num_classes}), "
            f"got {tuple(transition.shape)}"
        )
    if not is_plain(transition):
        return
    sums = transition.detach().cpu().double().sum(1)  # not every device has double precision
    rounding = torch.finfo(transition.dtype).resolution  # of half precision, above all
    is_one = torch.allclose(sums, torch.ones_like(sums), rtol=rounding, atol=1e-4)
    if bool((transition < 0).any()) or not is_one:
        raise ArgumentError("transition must hold probabilities whose rows sum to 1")
