"""What the two kinds of column files, CSV and Parquet, have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError


class ColumnFile(ABC):
    """A file of named columns that is read once its reader knows which column means what.

    Args:
        path: The file.
        names: Names of its columns.

    Raises:
        DataError: If a column has no name or two have one.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = tuple(names)
        for position, name in enumerate(self.names):
            if not name.strip():
                raise DataError(
                    f"{path}: column {position + 1} has no name; name it or drop it "
                    f"(pandas: to_csv(index=False))"
                )
            if name in self.names[:position]:
                raise DataError(f"{path}: two columns are named {name!r}")

    @abstractmethod
    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float64]]:
        """The columns asked for.

        Args:
            values: Names of columns to be read as they are.
            numbers: Names of F columns to be read as numbers.

        Returns:
            The values by column, and the numbers, shape (N, F).

        Raises:
            DataError: If the file is damaged or a number is none.
        """


def first_unfit(numbers: NDArray[Any]) -> int | None:
    """Where the first number stands that is NaN, infinite or too large for float32, if any does.

    Examples:
        >>> first_unfit(np.array([1.0, 1e300]))
        1
    """
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(numbers.astype(np.float32))
    return None if is_finite.all() else int(is_finite.argmin())
