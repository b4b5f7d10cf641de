"""Rows with labels, which every data source returns, and their random division."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae._draws import numpy_generator
from imae.data.labels import check_labels, check_weights
from imae.errors import ArgumentError, DataError, check_integer, check_interval


class Inputs(ABC):
    """The inputs of the rows of a split, which can be read in batches."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a network sees it: (C, H, W) for images, (F,) for features."""

    @abstractmethod
    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions in their smallest form, which a worker process passes on.

        One number is drawn from the generator for the whole call, and the augmentation of a row
        follows from that number and the row. So a row does not depend on the others in the batch:
        any part of a batch, drawn with a generator in the same state, is the same.

        Args:
            rows: Positions in the split, shape (B,).
            generator: Source of augmentation, or None for the plain inputs of evaluation.
        """

    @abstractmethod
    def finish(self, gathered: Tensor) -> Tensor:
        """The result of ``gather`` as float32, ready for a network."""

    def batch(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions, float32, ready for a network; see ``gather``."""
        return self.finish(self.gather(rows, generator=generator))

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> "Inputs":
        """The inputs at these positions, in this order."""

    @abstractmethod
    def content_hash(self) -> str:
        """Hash of what evaluation sees: every row's content, in order, and its preparation."""

    def row_keys(self) -> NDArray[np.uint64] | None:
        """A hash of each row, shape (N,), equal for equal rows; None if it costs too much."""
        return None


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled rows that keep the id they had in the file they came from.

    Args:
        inputs: Images, file names or features, one for each row.
        labels: Given labels, possibly wrong, shape (N,), integers in [0, C).
        row_ids: Name of every row in its source, shape (N,), strings, all different.
        class_names: Names of the C classes.
        clean_labels: True labels where they are known, shape (N,).
        weights: Weight of each row, shape (N,), not negative.

    Raises:
        DataError: If lengths differ, a label is out of range or a row id appears twice.
    """

    inputs: Inputs
    labels: NDArray[np.int64]
    row_ids: NDArray[np.str_]
    class_names: tuple[str, ...]
    clean_labels: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        columns = {
            "labels": self.labels,
            "row ids": self.row_ids,
            "clean labels": self.clean_labels,
            "weights": self.weights,
        }
        for name, column in columns.items():
            if column is not None and column.shape != (len(self.inputs),):
                raise DataError(f"{len(self.inputs)} rows but {name} of shape {column.shape}")
        for name in ("labels", "clean labels"):
            check_labels(name, columns[name], self.row_ids, len(self.class_names))
        if self.weights is not None:
            check_weights(self.weights, self.row_ids)
        ids, counts = np.unique(self.row_ids, return_counts=True)
        if len(ids) != len(self.row_ids):
            raise DataError(f"row id {str(ids[counts.argmax()])!r} appears {counts.max()} times")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    def relabel(self, labels: NDArray[np.int64]) -> "Split":
        """The same rows with other labels; the old ones become clean labels if there are none."""
        clean = self.labels if self.clean_labels is None else self.clean_labels
        return replace(self, labels=labels, clean_labels=clean)

    def take(self, rows: NDArray[np.int64]) -> "Split":
        """The rows at these positions, in this order, with their ids."""
        return replace(
            self,
            inputs=self.inputs.take(rows),
            labels=self.labels[rows],
            row_ids=self.row_ids[rows],
            clean_labels=None if self.clean_labels is None else self.clean_labels[rows],
            weights=None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True)
class Skipped:
    """A row that was left out, and why."""

    row_id: str
    reason: str


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: the rows to train on and, where the source has them, held-out rows.

    Args:
        name: Name of the set or of the file it came from.
        train: Rows to train on.
        validation: Rows to choose a model by, if the source has such a part.
        test: Rows to report on, if the source has such a part.
        skipped: Rows left out because their image cannot be read.
        notes: What a person should know before training on it, each in one line.
        columns: For a table, each column and how it is used, or why it is not.
        label_kind: What the labels were in the source: names, which ``class_names`` are, or
            integers or booleans, whose texts these are; one of ``imae.data.labels.LABEL_KINDS``.
    """

    name: str
    train: Split
    validation: Split | None = None
    test: Split | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    label_kind: str = "name"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in label order."""
        return self.train.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return self.train.num_classes

    def splits(self) -> dict[str, Split]:
        """The existing splits by name: train, then validation, then test."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    def map_splits(self, change: Callable[[Split], Split]) -> "Data":
        """The data with ``change`` applied to every split."""
        changed: dict[str, Any] = {name: change(each) for name, each in self.splits().items()}
        return replace(self, **changed)

    def with_notes(self, *notes: str) -> "Data":
        """The data with further notes."""
        return replace(self, notes=(*self.notes, *notes))


def hash_rows(rows: Iterable[bytes | memoryview]) -> NDArray[np.uint64]:
    """A hash of each row that depends only on its bytes, shape (N,)."""
    hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(hashes), np.uint64)


def hold_out(
    split: Split, fraction: float, seed: int, *, purpose: str = "hold out"
) -> tuple[Split, Split]:
    """Splits rows in two: those that stay and those held out, with equal shares of each label.

    The number of rows of each given label is rounded so that the total is right, and at least one
    stays. Duplicates stay on one side, since a network must not be tested on a row it was trained
    on, so slightly more or fewer rows may be held out. If there are so many that less than half of
    the fraction could be held out, as in a table of few categories, they are divided like other
    rows. Rows keep their order and their ids.

    Args:
        split: Rows to divide.
        fraction: Share of the rows to hold out, in (0, 1).
        seed: Seed of the choice.
        purpose: What the rows are for; each purpose has its own random choice.

    Raises:
        ArgumentError: If the fraction is outside (0, 1), or leaves either part without a row.

    Examples:
        >>> from imae.data.features import Table
        >>> labels, names = np.repeat([0, 1], 10), np.arange(20).astype(str)
        >>> table = Table(np.arange(20, dtype=np.float32)[:, None])
        >>> train, held = hold_out(Split(table, labels, names, ("x", "y")), 0.2, seed=1)
        >>> len(train), held.labels.tolist()
        (16, [0, 0, 1, 1])
    """
    check_interval("fraction", fraction, low=0.0, high=1.0, open_low=True, open_high=True)
    wanted = round(fraction * len(split))
    if not 0 < wanted < len(split):
        raise ArgumentError(f"fraction {fraction:g} of {len(split)} rows leaves a part empty")
    totals = np.bincount(split.labels, minlength=split.num_classes)
    counts = _stratified(fraction * totals, wanted, np.maximum(totals - 1, 0))
    if counts.sum() == 0:
        raise ArgumentError("no row can be held out: every class has one row or none")
    order = _class_orders(split, seed, purpose)
    keys = split.inputs.row_keys()
    is_held = _hold_groups(split, order, counts, totals, keys)
    if is_held.sum() * 2 < counts.sum():
        is_held = _hold_groups(split, order, counts, totals, None)
    return split.take(np.flatnonzero(~is_held)), split.take(np.flatnonzero(is_held))


def sample_rows(split: Split, number: int, seed: int, *, purpose: str = "rows") -> Split:
    """Exactly this many rows, with the same share of every given label, in their order.

    Raises:
        ArgumentError: If the number is below 1, or not below the rows of the split.
    """
    check_integer("number", number, low=1)
    if number >= len(split):
        raise ArgumentError(f"number must be below the {len(split)} rows, got {number}")
    totals = np.bincount(split.labels, minlength=split.num_classes)
    counts = _stratified(number / len(split) * totals, number, totals)
    is_taken = np.zeros(len(split), dtype=bool)
    for rows, count in zip(_class_orders(split, seed, purpose), counts, strict=True):
        is_taken[rows[:count]] = True
    return split.take(np.flatnonzero(is_taken))


def _stratified(
    exact: NDArray[np.floating], wanted: int, limits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Whole numbers near ``exact`` that sum to ``wanted``, if the limits of classes allow it."""
    counts: NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), limits)
    most_lost = np.argsort(counts - exact, kind="stable")
    while (missing := wanted - counts.sum()) > 0:
        open_classes = most_lost[(counts < limits)[most_lost]]
        if len(open_classes) == 0:
            break
        counts[open_classes[:missing]] += 1
    return counts


def _class_orders(split: Split, seed: int, purpose: str) -> list[NDArray[np.int64]]:
    """The rows of each class in an order drawn from the seed."""
    check_integer("seed", seed, low=0)
    generator = numpy_generator(seed, purpose)
    rows = (np.flatnonzero(split.labels == label) for label in range(split.num_classes))
    return [generator.permutation(each) for each in rows]


def _hold_groups(
    split: Split,
    order: list[NDArray[np.int64]],
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    keys: NDArray[np.uint64] | None,
) -> NDArray[np.bool_]:
    """Which rows are held out if rows with equal keys stay together; without keys all differ."""
    groups: dict[int, list[int]] = {}
    if keys is not None:
        _, first, sizes = np.unique(keys, return_index=True, return_counts=True)
        repeated = np.isin(keys, keys[first[sizes > 1]])
        for row in np.flatnonzero(repeated):
            groups.setdefault(int(keys[row]), []).append(int(row))
    is_held = np.zeros(len(split), dtype=bool)
    held = np.zeros(len(totals), dtype=np.int64)
    for label, count in enumerate(counts):
        tried: set[int] = set()  # a group that does not fit now does not fit later
        for row in order[label]:
            if held[label] >= count:
                break
            if keys is not None:
                if int(keys[row]) in tried:
                    continue
                tried.add(int(keys[row]))
            group = [row] if keys is None else groups.get(int(keys[row]), [row])
            added = np.bincount(split.labels[group], minlength=len(totals))
            fits = held[label] + added[label] <= count and (held + added < totals)[added > 0].all()
            if fits and not is_held[row]:
                is_held[group] = True
                held += added
    return is_held
