"""CSV and Parquet files and data frames, read column by column."""

import codecs
import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from imae.data.arrays import check_unpacked
from imae.data.columns import CellError, ColumnFile, as_number, first_invalid
from imae.errors import DataError, import_extra

_LONGEST_LINE = 10_000_000  # a file without line breaks must not fill the memory
_BLOCK = 8192  # rows whose cells are held as text at the same time
_CACHED_ROWS = 512  # of a few hundred columns, which a processor's cache holds


@final
class CsvFile(ColumnFile):
    """A CSV file with a header line.

    Cells are separated by commas, or by semicolons, tabs or bars if the header has these and no
    commas. With semicolons, numbers may have a decimal comma.

    Args:
        path: The file.

    Raises:
        DataError: If it is empty, not UTF-8, or its header has unnamed or duplicate columns.
    """

    def __init__(self, path: Path) -> None:
        self._separator = _separator(path)
        for _, names in _rows(path, self._separator):
            super().__init__(path, names, "," if self._separator == ";" else ".")
            return
        raise DataError(f"{path}: is empty; the first line must name the columns")

    @property
    def header(self) -> str:
        """The first line."""
        return f"{self.path}: line 1"

    def place(self, row: int) -> str:
        """File and line of a row: the line on which it ends."""
        for number, (line, _) in enumerate(_rows(self.path, self._separator)):
            if number == row + 1:  # after the header
                return f"{self.path}: line {line}"
        return super().place(row)

    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float64]]:
        """The requested columns, all of ``values`` as text."""
        texts: dict[str, list[object]] = {name: [] for name in values}
        blocks = [np.empty((0, len(numbers)))]
        for lines, columns in self._blocks():
            for name in texts:  # each once
                texts[name].extend(columns[self.names.index(name)])
            blocks.append(
                np.stack([self._parse(name, columns, lines) for name in numbers], axis=1)
                if numbers
                else np.empty((len(lines), 0))
            )
        return texts, np.concatenate(blocks)

    def _blocks(self) -> Iterator[tuple[list[int], list[tuple[str, ...]]]]:
        """Line numbers and columns of a few thousand rows at a time."""
        lines: list[int] = []
        cells: list[list[str]] = []
        rows = _rows(self.path, self._separator)
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
                numbers[row] = as_number(cell, self.decimal)
            except ValueError:
                raise CellError(
                    f"{self.path}: line {lines[row]}, column {name!r}: {cell[:80]!r} is not a "
                    "number",
                    "correct it, or leave the column out with drop (--drop)",
                ) from None
        wrong = first_invalid(numbers)
        if wrong is not None:
            raise CellError(
                f"{self.path}: line {lines[wrong]}, column {name!r} is {numbers[wrong]}",
                "numbers must be finite and fit float32",
            )
        return numbers


def _separator(path: Path) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    with _opened(path) as file:
        header = next((line for line in _lines(file, path) if line.strip()), "")
    return "," if "," in header else next((each for each in ";\t|" if each in header), ",")


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the last line, and the cells, of every row, the header first; no blank lines."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))  # of all readers here
    with _opened(path) as file:
        reader = csv.reader(_lines(file, path), delimiter=separator, strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num}: {error}") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        with path.open("rb") as start:
            is_wide = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        with path.open(encoding="utf-16" if is_wide else "utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not {error.encoding.upper()} text (byte {error.start}: {error.reason}); "
            "save it as CSV UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), start=1):
        if len(line) >= _LONGEST_LINE:
            raise DataError(f"{path}: line {number} is longer than {_LONGEST_LINE} characters")
        if "\0" in line:
            raise DataError(f"{path}: line {number} holds a NUL byte; this is not a CSV file")
        yield line


_BYTES_OF_A_VALUE = 40  # as an object of Python, with its place in a list
_INDEX = re.compile(r"__index_level_\d+__")
_NESTED = (list, tuple, dict, set, np.ndarray)
_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


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
                schema, self._rows = file.schema_arrow, file.metadata.num_rows
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._damaged(path, error) from error
        # The column that pandas keeps its index in is not the user's; pandas drops it too.
        named = [name for name in schema.names if not _INDEX.fullmatch(name)]
        super().__init__(path, named)
        self._types = dict(zip(schema.names, schema.types, strict=True))

    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float64]]:
        """The requested columns; a missing value is None."""
        wanted = list(dict.fromkeys([*values, *numbers]))
        packed = self.path.stat().st_size
        # Equal texts, true and false are one object each, of which a cell has a reference.
        shared = [name for name in values if _is_text(self._types[name]) or self.is_boolean(name)]
        objects = len(values) - len(shared)
        unpacked = self._rows * (_BYTES_OF_A_VALUE * objects + 8 * (len(shared) + len(numbers)))
        check_unpacked(packed, unpacked, where=str(self.path))
        for name in wanted:
            self._check_flat(name)
        texts = [name for name in wanted if _is_text(self._types[name])]
        table = self._table(wanted, texts)
        try:
            columns = {name: _unpacked(table.column(name)) for name in {*values, *texts}}
        except (self._arrow.ArrowException, UnicodeDecodeError) as error:
            raise self._damaged(self.path, error) from error
        for name in texts:
            length = sum(len(text) for text in columns[name] if isinstance(text, str | bytes))
            check_unpacked(packed, length, where=str(self.path))
        parsed = [self._parse(name, table.column(name)) for name in numbers]
        return {name: columns[name] for name in values}, _side_by_side(parsed, len(table))

    def is_boolean(self, name: str) -> bool:
        """Whether a column is of the type boolean."""
        return bool(self._arrow.types.is_boolean(self._types[name]))

    def typed_numbers(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """The columns of integers and floating-point numbers."""
        types = self._arrow.types
        are_numbers = (types.is_integer, types.is_float32, types.is_float64)
        typed = [name for name in names if any(each(self._types[name]) for each in are_numbers)]
        unpacked = self._rows * 8 * len(typed)
        check_unpacked(self.path.stat().st_size, unpacked, where=str(self.path))
        table = self._table(typed)
        return {name: self._cast(table.column(name)) for name in typed}

    def _table(self, names: Sequence[str], texts: Sequence[str] = ()) -> Any:
        """These columns; a repeated text is stored once in the file, and so in memory."""
        library = import_extra("pyarrow.parquet", extra="data")
        try:
            table = library.read_table(
                self.path, columns=list(names), partitioning=None, read_dictionary=list(texts)
            )
            table.validate(full=True)  # else a damaged file may point outside its dictionary
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
            raise self._damaged(self.path, error) from error
        return table

    def _cast(self, column: Any) -> NDArray[np.float64]:
        numbers: NDArray[np.float64] = column.cast(self._arrow.float64(), safe=False).to_numpy()
        return numbers

    def _check_flat(self, name: str) -> None:
        """Raises if a cell of the column may hold several values or bytes."""
        kind = self._types[name]
        types = self._arrow.types
        if types.is_nested(kind) or types.is_fixed_size_binary(kind):
            raise DataError(
                f"{self.path}: column {name!r} holds {kind}, not numbers or texts; spread it over "
                f"several columns or drop it"
            )

    def _parse(self, name: str, column: Any) -> NDArray[np.float64]:
        try:
            numbers = self._cast(column)
        except self._arrow.ArrowException as error:
            raise CellError(
                f"{self.path}: column {name!r} holds {self._types[name]}, not numbers, from row 0 "
                "on",
                "convert it, or leave it out with drop (--drop)",
            ) from error
        wrong = first_invalid(numbers)  # a missing number has become NaN
        if wrong is not None:
            raise CellError(
                f"{self.path}: row {wrong} (counted from 0), column {name!r} is {numbers[wrong]}",
                "numbers must be finite and fit float32",
            )
        return numbers

    @staticmethod
    def _damaged(path: Path, error: Exception) -> DataError:
        reason = " ".join(str(error).split())[:200]
        return DataError(f"{path}: is cut off, damaged or not a Parquet file ({reason})")


@final
class FrameColumns(ColumnFile):
    """A data frame of pandas or polars, read as if it were a file.

    Args:
        frame: The frame.
        where: What it is called in messages.

    Raises:
        DataError: If a column has no name or two have one.
    """

    def __init__(self, frame: Any, where: str) -> None:
        super().__init__(Path(where), [str(name) for name in frame.columns])
        self._frame = frame
        self._keys = dict(zip(self.names, frame.columns, strict=True))

    def __len__(self) -> int:
        return len(self._frame)

    def is_boolean(self, name: str) -> bool:
        """Whether a column holds ``True`` or ``False``."""
        if self._typed(name) is not None:
            return False
        values = np.asarray(self._frame[self._keys[name]])
        if values.dtype.kind != "O":
            return values.dtype.kind == "b"
        return any(isinstance(cell, bool | np.bool_) for cell in self._cells(name))

    def typed_numbers(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """The columns whose type is a number, of numpy, pandas, polars or Arrow."""
        typed = {name: self._typed(name) for name in names}
        return {
            name: values.astype(np.float64) for name, values in typed.items() if values is not None
        }

    def read(
        self, values: Sequence[str], numbers: Sequence[str]
    ) -> tuple[dict[str, list[object]], NDArray[np.float64]]:
        """The columns asked for; a value that is not there is None."""
        matrix = _side_by_side([self._parse(name) for name in numbers], len(self))
        return {name: self._cells(name) for name in values}, matrix

    def _typed(self, name: str) -> NDArray[Any] | None:
        """The column as numbers, NaN where there is none, if its type is a number."""
        column = self._frame[self._keys[name]]
        kind = getattr(column.dtype, "kind", None)  # polars' types have none
        if kind in ("i", "u", "f") and getattr(column.dtype, "na_value", None) is not None:
            values = column.to_numpy(np.float64, na_value=np.nan)  # else an array of objects
        else:
            values = np.asarray(column)
        return values if values.dtype.kind in "iuf" and values.ndim == 1 else None

    def _cells(self, name: str) -> list[object]:
        column = self._frame[self._keys[name]]
        if hasattr(column, "notna"):  # of pandas, where NaN, NaT and NA are values
            column = column.astype(object).where(column.notna(), None)
        cells: list[object] = column.to_list()
        nested = next((cell for cell in cells if isinstance(cell, _NESTED)), None)
        if nested is not None:
            raise DataError(
                f"{self.path}: column {name!r} holds a {type(nested).__name__} in each cell, not "
                "numbers or texts; spread it over several columns or drop it"
            )
        return cells

    def _parse(self, name: str) -> NDArray[Any]:
        typed = self._typed(name)
        values = np.asarray(self._frame[self._keys[name]]) if typed is None else typed
        try:
            if values.dtype.kind not in "iufb" or values.ndim > 1:
                values = np.array([np.nan if cell is None else cell for cell in self._cells(name)])
            if values.dtype.kind == "c":
                raise TypeError("complex")  # numpy would leave a part out
            numbers = values if values.dtype.kind in "iufb" else values.astype(np.float64)
        except (TypeError, ValueError):
            raise CellError(
                f"{self.path}: column {name!r} does not hold numbers only", "convert it"
            ) from None
        wrong = first_invalid(numbers)
        if wrong is not None:
            raise CellError(
                f"{self.place(wrong)}, column {name!r} is {float(numbers[wrong])}",
                "numbers must be finite and fit float32",
            )
        return numbers


def _side_by_side(columns: Sequence[NDArray[Any]], rows: int) -> NDArray[np.float64]:
    """The columns as a matrix, a few rows at a time."""
    matrix = np.empty((rows, len(columns)))
    for start in range(0, rows, _CACHED_ROWS):
        block = slice(start, start + _CACHED_ROWS)
        for index, column in enumerate(columns):
            matrix[block, index] = column[block]
    return matrix


def _is_text(kind: Any) -> bool:
    return str(getattr(kind, "value_type", kind)) in _TEXTS  # a dictionary has values


def _unpacked(column: Any) -> list[object]:
    """The values of a column; if it is dictionary-encoded, equal values are the same object."""
    values: list[object] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            words = chunk.dictionary.to_pylist()
            places = chunk.indices.to_pylist()
            values.extend(None if place is None else words[place] for place in places)
        else:
            values.extend(chunk.to_pylist())
    return values


def open_columns(path: Path) -> ColumnFile:
    """Opens a CSV or Parquet file, by its extension.

    Raises:
        DataError: If it cannot be read, or its header cannot be used.
    """
    if path.exists() and not path.is_file():  # reading a pipe would block forever
        raise DataError(f"{path}: is not a regular file")
    return ParquetFile(path) if path.suffix.lower() == ".parquet" else CsvFile(path)
