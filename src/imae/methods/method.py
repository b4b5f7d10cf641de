"""The interface of methods: what a training run optimises, and the state that it needs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from imae.losses.limits import LogitLimit
from imae.losses.margin import margin, precise


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch as a method sees it.

    Args:
        logits: Unnormalised scores that the model outputs, shape (B, C).
        target: Given labels, shape (B,).
        row: Positions in the training split, shape (B,): the key of a memory.
        inputs: What the network saw, shape (B, ...).
        features: Input of the last layer, shape (B, E), if the method asks for it.
        other_logits: Scores of the second and further networks, if the method asks for them.
        weight: How much each row counts in the mean over the batch, shape (B,), if the data say.
    """

    logits: Tensor
    target: Tensor
    row: Tensor
    inputs: Tensor | None = None
    features: Tensor | None = None
    other_logits: tuple[Tensor, ...] = ()
    weight: Tensor | None = None

    @cached_property
    def margin(self) -> Tensor:
        """Margin of the given label, shape (B,), float32 or more; computed once for all users."""
        return margin(precise(self.logits), self.target)

    def counts(self) -> Tensor:
        """How much each row counts, shape (B,), float32; 1 if the data do not say."""
        if self.weight is None:
            return torch.ones_like(self.target, dtype=torch.float32)
        return self.weight.float()


@dataclass(frozen=True, eq=False)
class Restart:
    """A run in two stages: from some epoch on, new networks are trained.

    Args:
        epoch: First epoch of the second stage, counted from 0; the networks get new start
            weights, the optimiser forgets, and the schedule of the learning rate begins again.
        is_rate_constant: Whether the first stage keeps the learning rate it starts with; else it
            goes through the whole schedule, as the second does.
    """

    epoch: int
    is_rate_constant: bool = False


@dataclass(frozen=True, eq=False)
class TrustedRows:
    """Rows whose labels are known to be right, for methods that learn from some.

    Args:
        inputs: What the network sees of them, without augmentation, shape (M, ...).
        labels: Their true labels, shape (M,).
    """

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Facts:
    """What a method knows about the run before its first step.

    Args:
        labels: Given labels of all training rows, shape (N,).
        num_classes: Number of classes C.
        num_epochs: Epochs that will be trained.
        seed: Seed of the run; draws of a method follow from it, their purpose and the epoch.
        networks: The networks, as they are being trained.
        predict: Logits of all training rows, shape (N, C), by the network as it is now; one
            pass over the data for each call, in evaluation mode. All ranks must call it.
        features: Input of the last layer for some training rows, shape (M, E), given their
            positions (M,), by the network as it is now, in evaluation mode; the same on all ranks.
        total: Sum of a tensor over all ranks; the tensor itself if there is one.
        gather: Rows of all ranks one after another, shape (B1 + B2 + ..., ...), the same on all
            ranks.
        transition: Chance of each given label, by true label, shape (C, C), where it is known.
        trusted: Rows with labels known to be right, if the run has them.
    """

    labels: Tensor
    num_classes: int
    num_epochs: int
    seed: int
    networks: tuple[nn.Module, ...] = ()
    predict: Callable[[], Tensor] | None = field(default=None, repr=False)
    features: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)
    total: Callable[[Tensor], Tensor] = field(default=lambda tensor: tensor, repr=False)
    gather: Callable[[Tensor], Tensor] = field(default=lambda tensor: tensor, repr=False)
    transition: Tensor | None = None
    trusted: TrustedRows | None = None


class Method(nn.Module, ABC):
    """A loss with the state it needs; a plain loss is a method without state.

    The loop calls ``start`` once, then for each epoch ``start_epoch``, the method itself for each
    batch, and ``end_epoch``. What a method learns lives in parameters (they are optimised along
    with the network), buffers, or ``get_extra_state``, and is saved with every checkpoint; a
    resumed run calls ``start`` again before it is restored.

    A leaf class may set ``needs_features``, ``needs_trusted``, ``works_on_weights`` if it reads or
    changes the weights of the networks itself, and ``num_networks`` for more than one network.
    """

    needs_features: bool = False
    needs_trusted: ClassVar[bool] = False
    works_on_weights: ClassVar[bool] = False
    num_networks: ClassVar[int] = 1
    learning_rate: float = 0.0  # of the step that is taken; the loop sets it

    def total(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over all ranks; the tensor itself before ``start``."""
        return self.facts.total(tensor) if hasattr(self, "facts") else tensor

    @abstractmethod
    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row of the batch, shape (B,)."""

    def output(self) -> LogitLimit | None:
        """The last step of the model, from logits to logits, if the method has one.

        A cap on the confidence is such a step. It belongs to the network: ``Rows.logits`` have
        passed it, and so have evaluation, predictions and exports.
        """
        return None

    def shown(self) -> dict[str, float]:
        """Numbers of its own for each row of the history, such as a T that follows the training."""
        return {}

    def start(self, facts: Facts) -> None:
        """Prepares for a run: here a memory gets its size."""
        self.facts = facts

    def restart(self) -> Restart | None:
        """When new networks are to be trained, if ever; called once, after ``start``."""
        return None

    def start_epoch(self, epoch: int) -> None:
        """Called before an epoch, from 0, and on resume in its middle: it must not count calls."""

    def end_epoch(self, epoch: int) -> None:
        """Called after the last step of an epoch, from 0; not for one that is cut short."""

    def share(self) -> None:
        """Makes the state the same on all ranks: before every checkpoint and epoch end."""


def first_stage(part: float, num_epochs: int) -> int:
    """Epochs of the first stage: its part of the run, at least one, and one left if there are two.

    Args:
        part: Part of the run, in (0, 1).
        num_epochs: Epochs of the whole run.

    Examples:
        >>> first_stage(0.25, 40), first_stage(0.01, 40), first_stage(0.99, 10), first_stage(0.5, 1)
        (10, 1, 9, 1)
    """
    return min(max(1, round(part * num_epochs)), max(1, num_epochs - 1))


def is_renewal(epoch: int, num_epochs: int, *, warm_up: float, every: float) -> bool:
    """Whether what is known of the rows is to be renewed before this epoch, counted from 0.

    The first renewal comes after ``warm_up * num_epochs`` epochs, further ones ``every *
    num_epochs`` epochs apart, each rounded to whole epochs and at least one; none comes after the
    last epoch, where nothing is trained any more.

    Args:
        epoch: The epoch that comes next.
        num_epochs: Epochs of the whole run.
        warm_up: Part of the run before the first renewal, in (0, 1].
        every: Part of the run between two renewals, in (0, 1].

    Examples:
        >>> [epoch for epoch in range(12) if is_renewal(epoch, 12, warm_up=0.5, every=0.25)]
        [6, 9]
    """
    first = max(1, round(warm_up * num_epochs))
    apart = max(1, round(every * num_epochs))
    return first <= epoch < num_epochs and (epoch - first) % apart == 0


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
