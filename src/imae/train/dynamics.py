"""What each training step shows: every row's margin and weight, and numbers that go wrong."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.errors import DataError, ImaeError
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
    def see(self, row: Tensor, logits: Tensor, margin: Tensor, weight: Tensor) -> None:
        """Takes in a batch of the training pass.

        Args:
            row: Positions of the rows, shape (B,).
            logits: Unnormalised scores, shape (B, C).
            margin: Margins of the given labels, shape (B,).
            weight: L1 norm of the gradient of each row's own loss at its logits, shape (B,).
        """
        columns = (margin, logits.argmax(1), weight, torch.ones_like(weight))
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


LARGE_LOGIT = 1e4
_REMEDIES = (
    "try a smaller optimizer.lr, or the method's options normalize=batch, bound=5 or window_high=8"
)


class Watch:
    """Looks at every step on the device, and reads what it saw when asked.

    Args:
        device: Where the run computes. On a CPU every step is read; elsewhere reading would make
            the host wait for the device, so it is done now and then.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_reading_cheap = device.type == "cpu"
        self._largest = torch.zeros((), device=device)
        self._is_finite = torch.ones((), dtype=torch.bool, device=device)
        self.has_warned = False

    @torch.no_grad()
    def see(self, losses: Tensor, logits: Tensor) -> None:
        """Takes in the losses, shape (B,), and logits, shape (B, C), of a step."""
        self._largest = torch.maximum(self._largest, logits.detach().abs().amax().float())
        self._is_finite = self._is_finite & losses.detach().isfinite().all()

    def check_finite(
        self,
        step: int,
        inputs: Tensor | None = None,
        row_ids: NDArray[np.str_] | None = None,
    ) -> None:
        """Raises if a loss was not finite, before it reaches a checkpoint.

        Args:
            step: Steps that were done, for the message.
            inputs: Inputs of the last batch, shape (B, ...), to look for the reason in.
            row_ids: Their ids, shape (B,).

        Raises:
            DataError: If an input of the batch is not finite; it names the row.
            ImaeError: If the loss was not finite for another reason; it names remedies.
        """
        if bool(self._is_finite):
            return
        if inputs is not None and row_ids is not None:
            is_bad = ~inputs.isfinite().flatten(1).all(1)
            if bool(is_bad.any()):
                row = str(row_ids[int(is_bad.int().argmax())])
                raise DataError(f"row {row!r} holds a number that is not finite; mend or remove it")
        raise ImaeError(f"the loss is not finite after {step} steps; {_REMEDIES}")

    def growth(self) -> str | None:
        """One line if the logits have grown very large, the first time; else None."""
        if self.has_warned or float(self._largest) <= LARGE_LOGIT:
            return None
        self.has_warned = True
        return (
            f"logits have grown beyond {LARGE_LOGIT:g}, and the run may not end well; {_REMEDIES}"
        )
