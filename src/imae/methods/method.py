"""What a training run optimises: a loss, and the state that it needs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Rows:
    """What a method sees of a batch.

    Args:
        logits: Unnormalised scores of the network, shape (B, C).
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

    def counts(self) -> Tensor:
        """How much each row counts, shape (B,), float32; 1 if the data do not say."""
        if self.weight is None:
            return torch.ones_like(self.target, dtype=torch.float32)
        return self.weight.float()


@dataclass(frozen=True, eq=False)
class Restart:
    """A run in two stages: from an epoch on the networks are trained anew.

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
    """What a method is told of the run before its first step.

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

    @abstractmethod
    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row of the batch, shape (B,)."""

    def start(self, facts: Facts) -> None:
        """Gets ready for a run: here a memory takes its size."""
        self.facts = facts

    def restart(self) -> Restart | None:
        """When the networks are to be trained anew, if ever; asked once, after ``start``."""
        return None

    def start_epoch(self, epoch: int) -> None:
        """Enters an epoch, from 0; on resume also in its middle, so it must not count calls."""

    def end_epoch(self, epoch: int) -> None:
        """Leaves an epoch, from 0, after its last step; not called for one that is cut short."""

    def share(self) -> None:
        """Makes the state the same on all ranks: before every checkpoint and epoch end."""
