"""Parquet files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from imae._extras import import_extra
from imae.data.arrays import check_unpacked
from imae.data.column_file import ColumnFile, narrowed
from imae.errors import DataError


@final
class ParquetFile(ColumnFile):
    """A Parquet file of flat columns.

    Args:
        path: The file.

    Raises:
        DataError: If it is empty, cut off or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._arrow = import_extra("pyarrow", extra="data")
        library = import_extra("pyarrow.parquet", extra="data")
        if path.stat().st_size == 0:
            raise DataError(f"{path}: is empty (0 bytes)")
        try:
            with library.ParquetFile(path) as file:
                names, self._rows = file.schema_arrow.names, file.metadata.num_rows
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(path, error) from error
        super().__init__(path, names)

    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float32]]:
        """The columns asked for; a value that is not there is None."""
        wanted = list(dict.fromkeys([*values, *numbers]))
        check_unpacked(self.path.stat().st_size, 8 * self._rows * len(wanted), where=str(self.path))
        library = import_extra("pyarrow.parquet", extra="data")
        try:
            table = library.read_table(self.path, columns=wanted, partitioning=None)
            texts = {name: table.column(name).to_pylist() for name in values}
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._damaged(self.path, error) from error
        matrix = np.empty((len(table), len(numbers)), np.float32)
        for index, name in enumerate(numbers):
            matrix[:, index] = self._parse(name, table.column(name))
        return texts, matrix

    def _parse(self, name: str, column: Any) -> NDArray[np.float32]:
        try:
            numbers = column.cast(self._arrow.float64(), safe=False).to_numpy()
        except self._arrow.ArrowException as error:
            raise DataError(
                f"{self.path}: column {name!r} holds {column.type}, not numbers, from row 0 on; "
                f"convert it or leave it out with feature_columns"
            ) from error
        narrow, wrong = narrowed(numbers)  # a number that is not there has become NaN
        if wrong is not None:
            raise DataError(
                f"{self.path}: row {wrong} (counted from 0), column {name!r} is {numbers[wrong]}; "
                f"numbers must be finite and fit float32"
            )
        return narrow

    @staticmethod
    def _damaged(path: Path, error: Exception) -> DataError:
        reason = " ".join(str(error).split())[:200]
        return DataError(f"{path}: is cut off, damaged or no Parquet file ({reason})")
