"""Rows with labels: what every data source gives and everything else reads."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.errors import DataError


class Inputs(ABC):
    """What the rows of a split are made of, given out in batches."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions, float32, ready for a network.

        Args:
            rows: Positions in the split, shape (B,).
            generator: Source of augmentation, or None for the plain inputs of evaluation.
        """


@dataclass(frozen=True)
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
        DataError: If lengths differ, a label is out of range or a row id stands twice.
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
        if self.weights is not None and not (
            np.isfinite(self.weights).all() and (self.weights >= 0).all()
        ):
            row = int(np.argmin(np.where(np.isfinite(self.weights), self.weights, -np.inf)))
            raise DataError(
                f"weight of row {self.row_ids[row]!r} must be finite and not negative, "
                f"got {self.weights[row]}"
            )
        ids, counts = np.unique(self.row_ids, return_counts=True)
        if len(ids) != len(self.row_ids):
            raise DataError(f"row id {str(ids[counts.argmax()])!r} stands {counts.max()} times")

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


@dataclass(frozen=True)
class Data:
    """A data set: the rows to train on and, where the source has them, held-out rows."""

    name: str
    train: Split
    validation: Split | None = None
    test: Split | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in label order."""
        return self.train.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return self.train.num_classes


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
