"""CSV files: UTF-8 with or without a byte order mark, any line ends, commas (tabs in .tsv)."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, final

import numpy as np
from numpy.typing import NDArray

from imae.data.column_file import ColumnFile, first_unfit
from imae.errors import DataError

_LONGEST_LINE = 10_000_000  # a file without line ends must not fill the memory
_BLOCK = 8192  # rows whose cells are text at one time


@final
class CsvFile(ColumnFile):
    """A CSV file with a header line.

    Args:
        path: The file.

    Raises:
        DataError: If it is empty, not UTF-8, or its header has unnamed or doubled columns.
    """

    def __init__(self, path: Path) -> None:
        for _, names in _rows(path):
            super().__init__(path, names)
            return
        raise DataError(f"{path}: is empty; the first line must name the columns")

    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float64]]:
        """The columns asked for, all of ``values`` as text."""
        texts: dict[str, list[object]] = {name: [] for name in values}
        blocks = [np.empty((0, len(numbers)))]
        for lines, columns in self._blocks():
            for name in values:
                texts[name].extend(columns[self.names.index(name)])
            blocks.append(
                np.stack([self._parse(name, columns, lines) for name in numbers], axis=1)
                if numbers
                else np.empty((len(lines), 0))
            )
        return texts, np.concatenate(blocks)

    def _blocks(self) -> Iterator[tuple[list[int], list[tuple[str, ...]]]]:
        """Line numbers and columns of some thousand rows at a time."""
        lines: list[int] = []
        cells: list[list[str]] = []
        rows = _rows(self.path)
        next(rows)
        for line, row in rows:
            if len(row) != len(self.names):
                raise DataError(
                    f"{self.path}: line {line} has {len(row)} cells where the header has "
                    f"{len(self.names)}; was the file cut off, or a cell with a comma not quoted?"
                )
            lines.append(line)
            cells.append(row)
            if len(cells) == _BLOCK:
                yield lines, list(zip(*cells, strict=True))
                lines, cells = [], []
        if cells:
            yield lines, list(zip(*cells, strict=True))

    def _parse(
        self, name: str, columns: Sequence[Sequence[str]], lines: Sequence[int]
    ) -> NDArray[np.float64]:
        cells = columns[self.names.index(name)]
        numbers = np.empty(len(cells), np.float64)
        for row, cell in enumerate(cells):
            try:
                numbers[row] = float(cell)
            except ValueError:
                raise DataError(
                    f"{self.path}: line {lines[row]}, column {name!r}: {cell[:80]!r} is not a "
                    f"number; mend it or leave the column out with feature_columns"
                ) from None
        wrong = first_unfit(numbers)
        if wrong is not None:
            raise DataError(
                f"{self.path}: line {lines[wrong]}, column {name!r} is {numbers[wrong]}; "
                f"numbers must be finite and fit float32"
            )
        return numbers


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Last line's number and the cells of every row, the header first; no blank lines."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))  # of all readers here
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path), delimiter=delimiter, strict=True)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except csv.Error as error:
                raise DataError(f"{path}: line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not UTF-8 text (byte {error.start}: {error.reason}); save it as CSV UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), start=1):
        if len(line) >= _LONGEST_LINE:
            raise DataError(f"{path}: line {number} is longer than {_LONGEST_LINE} characters")
        if "\0" in line:
            raise DataError(f"{path}: line {number} holds a NUL byte; this is no CSV file")
        yield line
