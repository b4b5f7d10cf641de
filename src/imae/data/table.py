"""Rows of numbers held in memory."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.split import Inputs
from imae.errors import DataError


@final
@dataclass(frozen=True, eq=False)
class Table(Inputs):
    """A table of features, given out as it is: nothing is augmented.

    Args:
        values: Features, shape (N, F), finite; float32, or float64 until they are brought to one
            scale, for which a time in seconds has too many digits.
        columns: Names of the F features, if they have names.
        mean: What was taken away from each feature, if anything was.
        std: What each feature was then divided by.

    Raises:
        DataError: If the shape or dtype is another, or a value is NaN or infinite.

    Examples:
        >>> table = Table(np.eye(3, dtype=np.float32))
        >>> table.batch(np.array([2]), generator=None)
        tensor([[0., 0., 1.]])
    """

    values: NDArray[np.float32] | NDArray[np.float64]
    columns: tuple[str, ...] | None = field(default=None, kw_only=True)
    mean: tuple[float, ...] | None = field(default=None, kw_only=True)
    std: tuple[float, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype not in (np.float32, np.float64):
            raise DataError(
                f"a table must be float32 or float64 of shape (N, F), "
                f"got {self.values.dtype} of shape {self.values.shape}"
            )
        # The sum of a column is finite only if all of it is: no mask of the table's size.
        with np.errstate(invalid="ignore", over="ignore"):
            totals = self.values.sum(axis=0, dtype=np.float64)
        for column, total in enumerate(totals):
            if not np.isfinite(total) and not np.isfinite(self.values[:, column]).all():
                row = int(np.isfinite(self.values[:, column]).argmin())
                value = self.values[row, column]
                raise DataError(f"row {row}, column {column} is {value}; features must be finite")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: (F,)."""
        return self.values.shape[1:]

    def gather(
        self,
        rows: NDArray[np.int64],
        *,
        generator: torch.Generator | None,  # noqa: ARG002 - nothing to augment
    ) -> Tensor:
        """The features at these positions, shape (B, F)."""
        return torch.from_numpy(self.values[rows]).to(torch.float32)

    def finish(self, gathered: Tensor) -> Tensor:
        """The features as they are, shape (B, F)."""
        return gathered

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """The rows at these positions alone."""
        return replace(self, values=self.values[rows])

    def content_hash(self) -> str:
        """Hash of all values, their number and order."""
        digest = hashlib.sha256(repr(("table", self.values.shape)).encode())
        digest.update(np.ascontiguousarray(self.values).data)
        return digest.hexdigest()
