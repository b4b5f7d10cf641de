"""What each training pass shows of every row, gathered without a pass of its own."""

import math

import numpy as np
import torch
from torch import Tensor

from imae.losses.margin import margin
from imae.records import EpochDynamics


class Dynamics:
    """Margin, predicted class and weight of every row in the epoch that runs.

    Args:
        num_rows: Number of training rows N.
        device: Where the rows are gathered: there is no copy to the host in a step.
    """

    def __init__(self, num_rows: int, device: torch.device | str = "cpu") -> None:
        # Zero and "seen 0 times" for a row not seen: so the shares of several ranks just add up.
        self._shown = torch.zeros(4, num_rows, device=device)

    @torch.no_grad()
    def see(self, row: Tensor, logits: Tensor, target: Tensor, weight: Tensor) -> None:
        """Takes in a batch of the training pass.

        Args:
            row: Positions of the rows, shape (B,).
            logits: Unnormalised scores, shape (B, C).
            target: Given labels, shape (B,).
            weight: L1 norm of the gradient of each row's own loss at its logits, shape (B,).
        """
        logits = logits.float()
        columns = (margin(logits, target), logits.argmax(1), weight, torch.ones_like(weight))
        self._shown[:, row] = torch.stack([column.float() for column in columns])

    def clear(self) -> None:
        """Forgets the epoch."""
        self._shown.zero_()

    def state(self) -> Tensor:
        """The epoch so far, shape (4, N): summed over ranks it is the whole."""
        return self._shown

    def restore(self, state: Tensor) -> None:
        """Goes on from the state of a checkpoint."""
        self._shown.copy_(state)

    @staticmethod
    def record(state: Tensor) -> EpochDynamics:
        """The epoch as it is written down, from a state that holds the rows of all ranks."""
        shown, predicted, weight, seen = state.cpu().numpy()
        is_seen = seen > 0
        return EpochDynamics(
            margin=np.where(is_seen, shown, np.float32(math.nan)).astype(np.float32),
            predicted=np.where(is_seen, predicted, -1).astype(np.int32),
            weight=np.where(is_seen, weight, np.float32(math.nan)).astype(np.float32),
        )
