"""Epochs of batches that do not depend on workers, processes or where a run was resumed."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from imae._draws import numpy_generator, torch_generator
from imae.data.split import Inputs, Split
from imae.errors import ArgumentError, ImaeError, check_integer


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that a network processes at once.

    Args:
        inputs: Images or features, float32, shape (B, C, H, W) or (B, F).
        target: Given labels, int64, shape (B,).
        row: Positions in the split, int64, shape (B,).
        weight: Weights of the rows, float32, shape (B,), if the split has any.
    """

    inputs: Tensor
    target: Tensor
    row: Tensor
    weight: Tensor | None

    def __len__(self) -> int:
        return len(self.target)


class Batches:
    """The batches of a split, epoch by epoch.

    Every random draw follows from the seed, its purpose, the epoch and the row. So an epoch can be
    started at any step, ``workers`` changes nothing but the speed, and the concatenated shares of
    several ranks are the batches of one process.

    The last batch holds what is left; a batch size beyond the number of rows gives one batch.

    Args:
        split: The rows.
        batch_size: Rows in a batch, over all ranks together.
        seed: Seed of the order and of the augmentation.
        shuffle: Whether each epoch has its own random order, or the order of the split.
        augment: Whether images are cropped and mirrored at random.
        drop_last: Whether a last batch that is not full is skipped.
        balanced: Rows of each class in a batch, by given label: ``batch_size / balanced`` classes
            are drawn for every batch, and as many rows of each. An epoch then has only full
            batches, and may hold a row several times or not at all. None to use each row once in
            an epoch.
        workers: Processes that read and decode ahead; 0 does it in this one. They help with
            images on disk. Arrays in memory are faster without.
        rank: Number of this process among those that train together.
        num_ranks: Number of processes that train together.

    Raises:
        ArgumentError: If a number is out of range, there is no batch at all, or the last
            batch would leave a rank without a row.

    Examples:
        >>> from imae.data.features import Table
        >>> table, names = Table(np.eye(3, dtype=np.float32)), np.array(["a", "b", "c"])
        >>> split = Split(table, np.array([0, 1, 0]), names, ("x", "y"))
        >>> [batch.row.tolist() for batch in Batches(split, 2, seed=1).epoch(0)]
        [[1, 0], [2]]
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int,
        shuffle: bool = True,
        augment: bool = True,
        drop_last: bool = False,
        balanced: int | None = None,
        workers: int = 0,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        check_integer("num_ranks", num_ranks, low=1)
        check_integer("rank", rank, low=0)
        check_integer("batch_size", batch_size, low=num_ranks)
        check_integer("seed", seed, low=0)
        check_integer("workers", workers, low=0)
        if rank >= num_ranks:
            raise ArgumentError(f"rank must be below num_ranks, got {rank} of {num_ranks}")
        self._classes = () if balanced is None else _balanced_classes(split, batch_size, balanced)
        full, rest = divmod(len(split), batch_size)
        self._steps = full if drop_last or rest == 0 or balanced is not None else full + 1
        if self._steps == 0:
            raise ArgumentError(f"{len(split)} rows do not fill a batch of {batch_size}")
        if self._steps > full and rest < num_ranks:
            raise ArgumentError(
                f"the last batch has {rest} rows for {num_ranks} ranks; "
                f"use drop_last=True or another batch_size"
            )
        self.split = split
        self.batch_size = batch_size
        self._seed, self._shuffle, self._augment = seed, shuffle, augment
        self._workers, self._rank, self._num_ranks = workers, rank, num_ranks
        self._balanced = balanced

    @property
    def smallest_share(self) -> int:
        """Smallest number of rows that a rank has in a step."""
        is_last_full = self._steps * self.batch_size <= len(self.split)
        rows = self.batch_size if is_last_full else len(self.split) % self.batch_size
        return rows // self._num_ranks

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._steps

    def epoch(self, epoch: int, *, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, in order.

        Args:
            epoch: Number of the epoch, from 0.
            start_step: Batches of this epoch to skip, for a run that is resumed within it.

        Raises:
            ArgumentError: If a number is negative or the epoch has no such step.
            DataError: If an input cannot be read.
        """
        check_integer("epoch", epoch, low=0)
        check_integer("start_step", start_step, low=0)
        if start_step > self._steps:
            raise ArgumentError(f"start_step must be at most {self._steps}, got {start_step}")
        shares = _Shares(self.split.inputs, self._rows(epoch), self._key(epoch))
        return self._read(shares, range(start_step, self._steps), epoch)

    def _rows(self, epoch: int) -> list[NDArray[np.int64]]:
        """Rows of this rank in every step of the epoch."""
        order = np.arange(len(self.split), dtype=np.int64)
        if self._balanced is not None:
            order = self._balanced_order(epoch, self._balanced)
        elif self._shuffle:
            order = numpy_generator(self._seed, "shuffle", epoch).permutation(order)
        steps = (order[step * self.batch_size :][: self.batch_size] for step in range(self._steps))
        return [np.array_split(rows, self._num_ranks)[self._rank] for rows in steps]

    def _balanced_order(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Rows of all batches of the epoch, one batch after another."""
        generator = numpy_generator(self._seed, "balanced", epoch)
        waiting = [generator.permutation(rows) for rows in self._classes]
        order = []
        for _ in range(self._steps):
            for chosen in generator.choice(
                len(self._classes), self.batch_size // number, replace=False
            ):
                if (
                    len(waiting[chosen]) < number
                ):  # from the beginning, so that no row appears twice
                    waiting[chosen] = generator.permutation(self._classes[chosen])
                order.append(waiting[chosen][:number])
                waiting[chosen] = waiting[chosen][number:]
        return np.concatenate(order)

    def _key(self, epoch: int) -> tuple[int, int] | None:
        return (self._seed, epoch) if self._augment else None

    def _read(self, shares: "_Shares", steps: range, epoch: int) -> Iterator[Batch]:
        loader = DataLoader(
            shares,
            batch_size=None,
            sampler=steps,
            num_workers=self._workers,
            worker_init_fn=_ignore_interrupts,
            # Seeds the workers' global generators, which a user's own data set may draw from.
            generator=torch_generator(self._seed, "workers", epoch),
        )
        for step, gathered in zip(steps, loader, strict=True):
            if isinstance(gathered, ImaeError):
                raise gathered
            yield self._batch(shares.rows[step], self.split.inputs.finish(gathered))

    def _batch(self, rows: NDArray[np.int64], inputs: Tensor) -> Batch:
        weights = self.split.weights
        return Batch(
            inputs=inputs,
            target=torch.from_numpy(self.split.labels[rows]),
            row=torch.from_numpy(rows.copy()),
            weight=None if weights is None else torch.from_numpy(weights[rows]),
        )


_FEWEST_OF_A_CLASS = 2  # rows; with fewer a class is not learned, however often it is drawn


def balanced_sizes(counts: NDArray[np.int64], batch_size: int) -> tuple[int, int] | None:
    """Sizes of balanced batches that hold all classes: rows of each class, and of the batch.

    Args:
        counts: Training rows of each class, shape (C,); classes without any do not count.
        batch_size: Most rows in a batch.

    Returns:
        ``balanced`` and ``batch_size`` for ``Batches``; None if a class has too few rows.

    Examples:
        >>> balanced_sizes(np.array([1980, 20]), 64)
        (20, 40)
    """
    counts = counts[counts > 0]
    number = min(int(counts.min()), max(1, batch_size // len(counts)))
    if counts.min() < _FEWEST_OF_A_CLASS:
        return None
    return number, number * min(len(counts), batch_size // number)


def _balanced_classes(
    split: Split, batch_size: int, balanced: int
) -> tuple[NDArray[np.int64], ...]:
    """The rows of every class that has any, checked for batches of ``balanced`` rows a class."""
    check_integer("balanced", balanced, low=1)
    if batch_size % balanced:
        raise ArgumentError(
            f"batch_size (train.batch_size) must be a multiple of balanced, got {batch_size} and "
            f"{balanced}"
        )
    classes = [np.flatnonzero(split.labels == label) for label in np.unique(split.labels)]
    fitting = balanced_sizes(np.array([len(rows) for rows in classes]), batch_size)
    remedy = (
        f"; {fitting[0]} rows of each in batches of {fitting[1]} fit these rows "
        f"(--set data.balanced={fitting[0]} --set train.batch_size={fitting[1]})"
        if fitting
        else ""
    )
    if batch_size // balanced > len(classes):
        raise ArgumentError(
            f"batches of {batch_size} with {balanced} rows of a class need "
            f"{batch_size // balanced} classes, and there are {len(classes)}{remedy}"
        )
    smallest = min(classes, key=len)
    if len(smallest) < balanced:
        name = split.class_names[split.labels[smallest[0]]]
        raise ArgumentError(
            f"balanced must be at most {len(smallest)}, the rows of class {name!r}, got "
            f"{balanced}{remedy}"
        )
    return tuple(classes)


class _Shares(Dataset[Tensor | ImaeError]):
    """What a worker gathers for each step: the inputs, or the error that prevented it."""

    def __init__(
        self, inputs: Inputs, rows: list[NDArray[np.int64]], key: tuple[int, int] | None
    ) -> None:
        self._inputs = inputs
        self.rows = rows
        self._key = key

    def __getitem__(self, step: int) -> Tensor | ImaeError:
        generator = None
        if self._key is not None:
            seed, epoch = self._key
            generator = torch_generator(seed, "augment", epoch)
        try:
            return self._inputs.gather(self.rows[step], generator=generator)
        except ImaeError as error:  # DataLoader would wrap it in a worker's traceback
            return error


def _ignore_interrupts(worker: int) -> None:  # noqa: ARG001
    # Ctrl-C in a terminal reaches the workers too; the run still needs what they read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
