"""A memory with a place for every training row, right under several processes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class RowMemory(nn.Module):
    """Numbers that a method keeps of every training row; saved with the method that holds it.

    A row is seen by one process in an epoch and by another in the next, so a method calls
    ``share`` from its own ``share``: the loop does that before checkpoints and at epoch ends.

    Args:
        start: What is known of the rows before the first step, shape (N, ...).

    Examples:
        >>> memory = RowMemory(torch.zeros(3))
        >>> memory.write(torch.tensor([2]), torch.tensor([5.0]))
        >>> memory.values
        tensor([0., 0., 5.])
    """

    values: Tensor
    is_fresh: Tensor

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", start.clone())
        fresh = torch.zeros(len(start), dtype=torch.bool, device=start.device)
        self.register_buffer("is_fresh", fresh, persistent=False)

    def read(self, row: Tensor) -> Tensor:
        """What is known of these rows, shape (B, ...), for positions (B,)."""
        return self.values[row]

    def write(self, row: Tensor, values: Tensor) -> None:
        """Keeps new values (B, ...) of these rows (B,), without their history."""
        self.values[row] = values.detach().to(self.values.dtype)
        self.is_fresh[row] = True

    def share(self, total: Callable[[Tensor], Tensor]) -> None:
        """Gives all ranks what each has written since the last call; all must call it.

        Args:
            total: Sum of a tensor over all ranks, as in ``Facts``.
        """
        shape = (-1,) + (1,) * (self.values.dim() - 1)
        # No two ranks train on one row in an epoch, so a sum is what its one writer wrote.
        is_written = total(self.is_fresh.to(torch.int32)).view(shape) > 0
        mine = torch.where(self.is_fresh.view(shape), self.values, torch.zeros_like(self.values))
        self.values.copy_(torch.where(is_written, total(mine), self.values))
        self.is_fresh.zero_()
