"""Rows with labels: what every data source returns and everything else reads."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.errors import DataError

_LONGEST_ID = 512  # ids are an array as wide as the longest


class Inputs(ABC):
    """What the rows of a split are made of, given out in batches."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a network sees it: (C, H, W) for images, (F,) for features."""

    @abstractmethod
    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions in their smallest form: what a worker process hands over.

        One number is drawn from the generator for the whole call, and the augmentation of a row
        follows from that number and the row. So a row does not change with its neighbours: any
        share of a batch, drawn from a generator in the same state, is a share of the same batch.

        Args:
            rows: Positions in the split, shape (B,).
            generator: Source of augmentation, or None for the plain inputs of evaluation.
        """

    @abstractmethod
    def finish(self, gathered: Tensor) -> Tensor:
        """What ``gather`` gave, as float32 ready for a network."""

    def batch(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions, float32, ready for a network.

        Args:
            rows: Positions in the split, shape (B,).
            generator: Source of augmentation, or None for the plain inputs of evaluation.
        """
        return self.finish(self.gather(rows, generator=generator))

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> "Inputs":
        """The inputs at these positions, in this order."""

    @abstractmethod
    def content_hash(self) -> str:
        """Hash of what evaluation sees: every row's content, in order, and its preparation."""

    def row_keys(self) -> NDArray[np.uint64] | None:
        """A number for each row, shape (N,), that equal rows share; None if it costs too much."""
        return None


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled rows that keep the id they had in the file they came from.

    Args:
        inputs: Images, file names or features, one for each row.
        labels: Given labels, possibly wrong, shape (N,), integers in [0, C).
        row_ids: Name of every row in its source, shape (N,), strings, no two alike.
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
            _check_labels(name, columns[name], self.row_ids, len(self.class_names))
        if self.weights is not None:
            _check_weights(self.weights, self.row_ids)
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
        """The same rows under other labels; the present ones count as clean unless others do."""
        clean = self.labels if self.clean_labels is None else self.clean_labels
        return replace(self, labels=labels, clean_labels=clean)

    def take(self, rows: NDArray[np.int64]) -> "Split":
        """The rows at these positions, in this order, under the ids they have."""
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
        validation: Rows to choose by, if the source sets them apart.
        test: Rows to report on, if the source sets them apart.
        skipped: Rows left out because their image cannot be read.
        notes: What a person should know before training on it, each in one line.
    """

    name: str
    train: Split
    validation: Split | None = None
    test: Split | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in label order."""
        return self.train.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return self.train.num_classes

    def splits(self) -> dict[str, Split]:
        """The splits that are there, by name: train, then validation, then test."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    def map_splits(self, change: Callable[[Split], Split]) -> "Data":
        """The data with every split that is there replaced by what ``change`` makes of it."""
        changed: dict[str, Any] = {name: change(each) for name, each in self.splits().items()}
        return replace(self, **changed)

    def with_notes(self, *notes: str) -> "Data":
        """The data with further notes."""
        return replace(self, notes=(*self.notes, *notes))


def hash_rows(rows: Iterable[bytes | memoryview]) -> NDArray[np.uint64]:
    """A number for each row that depends on nothing but its bytes.

    Examples:
        >>> first, second, third = hash_rows([b"a", b"b", b"a"])
        >>> first == third, first == second
        (np.True_, np.False_)
    """
    hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(hashes), np.uint64)


def _check_labels(
    name: str, labels: np.ndarray | None, row_ids: NDArray[np.str_], num_classes: int
) -> None:
    if labels is None or len(labels) == 0:
        return
    if labels.dtype != np.int64:
        raise DataError(f"{name} must be int64, got {labels.dtype}")
    outside = (labels < 0) | (labels >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise DataError(
            f"{name}: row {str(row_ids[row])!r} has label {labels[row]}, "
            f"outside the {num_classes} classes"
        )


def _check_weights(weights: NDArray[np.float32], row_ids: NDArray[np.str_]) -> None:
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"weight of row {str(row_ids[row])!r} must be finite and not negative, "
            f"got {weights[row]}"
        )


def position_ids(number: int) -> NDArray[np.str_]:
    """Ids of rows that have none of their own: their position, counted from 0.

    Examples:
        >>> position_ids(3).tolist()
        ['0', '1', '2']
    """
    return np.arange(number).astype(np.str_)


def written_ids(ids: Sequence[str], *, source: str) -> NDArray[np.str_]:
    """Ids of rows as their source gives them, checked.

    Raises:
        DataError: If an id is blank, overlong, no UTF-8 text, holds a NUL or appears twice.
    """
    seen: dict[str, int] = {}
    for row, row_id in enumerate(ids):
        if not row_id.strip():
            raise DataError(f"{source}: row {row} (counted from 0) has no id")
        if len(row_id) > _LONGEST_ID or "\0" in row_id:
            raise DataError(
                f"{source}: row {row} (counted from 0) has an id of {len(row_id)} characters; ids "
                f"have at most {_LONGEST_ID} and no NUL"
            )
        if not _is_utf8(row_id):
            raise DataError(
                f"{source}: row {row} (counted from 0) has an id that is not UTF-8 text, so no "
                f"report could hold it: {row_id!r}; rename it"
            )
        if row_id in seen:
            raise DataError(
                f"{source}: row id {row_id!r} appears twice, in rows {seen[row_id]} and {row} "
                f"(counted from 0)"
            )
        seen[row_id] = row
    return np.array(ids, dtype=np.str_)


def _is_utf8(text: str) -> bool:
    """Whether it can be written; the name of a file need not be UTF-8 on Linux."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
