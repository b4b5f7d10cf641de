"""Losses that need the whole distribution, as methods."""

from collections.abc import Callable
from typing import final

from torch import Tensor

from imae.methods.method import Method, Rows


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
