"""Losses as methods, with a window, normalisation and a bound on the logits."""

import math
from collections.abc import Callable
from typing import final

from torch import Tensor

from imae._checks import check_choice, check_interval
from imae.curves.curve import Curve, Scale, Window
from imae.losses.bound import bound_logits
from imae.losses.functional import NORMALIZATIONS
from imae.losses.margin import (
    batch_weight,
    margin,
    precise,
    value_at_margin,
    weight_at_margin,
)
from imae.methods.method import Method, Rows


@final
class CurveMethod(Method):
    """Training on the loss of a curve.

    Args:
        curve: The loss.
        window_low: Rows whose margin is smaller do not count; None for no such edge.
        window_high: Rows whose margin is larger do not count; None for no such edge.
        normalize: "batch" divides by the mean weight of the batch, over all ranks; None does not.
        bound: Largest length of a logit vector that the loss sees; None for no bound.
        factor: Constant that the loss is multiplied by.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> import torch
        >>> from imae.curves import CCE
        >>> rows = Rows(torch.zeros(2, 4), torch.tensor([0, 1]), torch.tensor([5, 7]))
        >>> CurveMethod(CCE())(rows)
        tensor([1.3863, 1.3863])
    """

    def __init__(
        self,
        curve: Curve,
        *,
        window_low: float | None = None,
        window_high: float | None = None,
        normalize: str | None = None,
        bound: float | None = None,
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("normalize", normalize, NORMALIZATIONS)
        check_interval("factor", factor, low=0, open_low=True, open_high=True)
        if bound is not None:
            check_interval("bound", bound, low=0, open_low=True, open_high=True)
        if window_low is not None or window_high is not None:
            low = -math.inf if window_low is None else window_low
            curve = Window(curve, low=low, high=math.inf if window_high is None else window_high)
        self.curve = curve if factor == 1 else Scale(curve, factor)
        self.normalize = normalize
        self.bound = bound

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        m = rows.margin
        if self.bound is not None:
            m = margin(bound_logits(precise(rows.logits), self.bound), rows.target)
        losses = value_at_margin(m, self.curve)
        if self.normalize is None:
            return losses
        return losses / batch_weight(weight_at_margin(m, self.curve), rows.counts(), self.total)

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        return f"{self.curve!r}, normalize={self.normalize!r}, bound={self.bound!r}"


@final
class LossMethod(Method):
    """Training on a loss that is given as a function.

    Args:
        loss: Called as ``loss(logits, target, reduction="none")``; gives a loss for each row.

    Examples:
        >>> import torch
        >>> from imae.losses import label_smoothing_loss
        >>> rows = Rows(torch.zeros(1, 4), torch.tensor([0]), torch.tensor([0]))
        >>> LossMethod(label_smoothing_loss)(rows)
        tensor([1.3863])
    """

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        return self.loss(rows.logits, rows.target, reduction="none")
