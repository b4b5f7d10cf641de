"""Modules of the losses that need the whole distribution."""

from torch import Tensor, nn

from imae.curves.curve import Curve
from imae.losses.general import (
    backward_correction,
    bootstrap_loss,
    forward_correction,
    label_smoothing_loss,
    normalized_cross_entropy,
)


class _DistributionLoss(nn.Module):
    """The arguments that these modules share."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction


class LabelSmoothingLoss(_DistributionLoss):
    """Smoothed cross entropy; see ``imae.losses.label_smoothing_loss``."""

    def __init__(
        self,
        smoothing: float = 0.1,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.smoothing = smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        return label_smoothing_loss(
            logits,
            target,
            smoothing=self.smoothing,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class BootstrapLoss(_DistributionLoss):
    """Bootstrapped cross entropy; see ``imae.losses.bootstrap_loss``."""

    def __init__(
        self,
        beta: float = 0.95,
        *,
        hard: bool = False,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.beta = beta
        self.hard = hard

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        return bootstrap_loss(
            logits,
            target,
            beta=self.beta,
            hard=self.hard,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CorrectedLoss(_DistributionLoss):
    """Cross entropy corrected by a transition matrix, which moves with the module.

    See ``imae.losses.forward_correction`` and ``imae.losses.backward_correction``.

    Args:
        transition: Probability of given label j where the true one is i, at [i, j]; shape (C, C).
        backward: Whether to correct the losses and not the predictions.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".
    """

    transition: Tensor

    def __init__(
        self,
        transition: Tensor,
        *,
        backward: bool = False,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.register_buffer("transition", transition)
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


class NormalizedCELoss(_DistributionLoss):
    """Normalised cross entropy, alone or with a passive curve.

    See ``imae.losses.normalized_cross_entropy``.
    """

    def __init__(
        self,
        scale: float = 1.0,
        *,
        passive: Curve | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.scale = scale
        self.passive = passive

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        return normalized_cross_entropy(
            logits,
            target,
            scale=self.scale,
            passive=self.passive,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )
