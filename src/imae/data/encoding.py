"""Real tables: columns of numbers, dates and categories with empty cells, encoded as numbers."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.columns import CellError, as_number
from imae.data.split import Inputs, hash_rows
from imae.errors import ArgumentError

MISSING = frozenset(
    {"", "?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "<na>"}
    | {"nan", "null", "none", "nil", "missing"}
)
"""Cells, in lower case, that mean that a value is not there."""
KINDS = ("number", "date", "category")
MOST_CATEGORIES = 50
"""A column of more categories becomes one number, the rank of its category."""
_FORMATS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%dT%H%M%S")


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as it was read.

    Args:
        name: Name in the file.
        kind: ``"number"``, ``"date"`` or ``"category"``.
        values: Shape (N,): numbers, days since 1970, or positions in ``words``; NaN if missing.
        words: The different words of a category.
    """

    name: str
    kind: str
    values: NDArray[np.float64]
    words: tuple[str, ...] = ()

    @property
    def num_missing(self) -> int:
        """Number of rows without a value."""
        return int(np.isnan(self.values).sum())


@final
@dataclass(frozen=True, eq=False)
class RawTable(Inputs):
    """Rows of a table before it is known which of them are trained on.

    ``imae.data.preparation.fit_scale`` makes a ``Table`` of it.

    Args:
        columns: The columns, each of N rows.
    """

    columns: tuple[RawColumn, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as it was read: (number of columns,)."""
        return (len(self.columns),)

    def gather(
        self,
        rows: NDArray[np.int64],  # noqa: ARG002
        *,
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Raises an ``ArgumentError``: the encoding is not fitted."""
        raise ArgumentError("a raw table gives no batches; load it with imae.data.load")

    def finish(self, gathered: Tensor) -> Tensor:
        """What ``gather`` would return."""
        return gathered

    def take(self, rows: NDArray[np.int64]) -> "RawTable":
        """The rows at these positions."""
        return RawTable(tuple(replace(each, values=each.values[rows]) for each in self.columns))

    def content_hash(self) -> str:
        """Hash of all cells and of the names of the columns."""
        digest = hashlib.sha256(b"raw table")
        for each in self.columns:
            digest.update(repr((each.name, each.kind, each.words)).encode())
            digest.update(np.ascontiguousarray(each.values).data)
        return digest.hexdigest()

    def row_keys(self) -> NDArray[np.uint64]:
        """Hashes of the cells of every row."""
        return hash_rows(row.data for row in np.stack([each.values for each in self.columns], 1))


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column becomes features, fitted on training rows.

    Args:
        name: Name of the column.
        kind: ``"number"``, ``"date"`` or ``"category"``.
        fill: What an empty cell of a number or date becomes: the median.
        has_indicator: Whether a feature of its own says that the cell is empty.
        categories: Words that are known, the most frequent first.
    """

    name: str
    kind: str
    fill: float = 0.0
    has_indicator: bool = False
    categories: tuple[str, ...] = ()

    def feature_names(self) -> list[str]:
        """Names of the features, for instance ``colour=red``."""
        if self.kind != "category":
            return [self.name, *([f"{self.name} is missing"] if self.has_indicator else [])]
        if len(self.categories) > MOST_CATEGORIES:
            return [f"rank of {self.name}"]
        if len(self.categories) == 2 and not self.has_indicator:
            return [f"{self.name}={self.categories[1]}"]
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: RawColumn) -> NDArray[np.float64]:
        """Features of the column, shape (N, number of feature names).

        A category that training rows do not have is like an empty cell: all its features are 0.
        """
        is_missing = np.isnan(column.values)
        if self.kind != "category":
            filled = np.where(is_missing, self.fill, column.values)
            parts = [filled, is_missing.astype(np.float64)] if self.has_indicator else [filled]
            return np.stack(parts, axis=1)
        ranks = {word: rank for rank, word in enumerate(self.categories)}
        known = np.array([ranks.get(word, -1) for word in column.words] or [-1])
        rank = np.where(is_missing, -1, known[np.where(is_missing, 0, column.values).astype(int)])
        if len(self.categories) > MOST_CATEGORIES:
            return np.where(rank < 0, len(self.categories), rank).astype(np.float64)[:, None]
        one_hot: NDArray[np.float64] = (rank[:, None] == np.arange(len(self.categories))).astype(
            np.float64
        )
        return one_hot[:, 1:] if len(self.feature_names()) < len(self.categories) else one_hot


def fit_encoding(table: RawTable) -> tuple[ColumnEncoding, ...]:
    """The encoding of each column, from these rows only."""
    return tuple(map(_fit_column, table.columns))


def _fit_column(column: RawColumn) -> ColumnEncoding:
    present = column.values[~np.isnan(column.values)]
    has_missing = len(present) < len(column.values)
    if column.kind == "category":
        counts = Counter(present.astype(int).tolist())
        ordered = sorted(counts, key=lambda place: (-counts[place], column.words[place]))
        words = tuple(column.words[place] for place in ordered)
        return ColumnEncoding(column.name, column.kind, 0.0, has_missing, words)
    fill = float(np.median(present)) if len(present) else 0.0
    return ColumnEncoding(column.name, column.kind, fill, has_missing)


def encode_table(
    table: RawTable, encodings: Sequence[ColumnEncoding]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Features of the rows, shape (N, F), and their F names."""
    parts = [each.encode(column) for each, column in zip(encodings, table.columns, strict=True)]
    names = [name for each in encodings for name in each.feature_names()]
    return np.concatenate(parts, axis=1), tuple(names)


def describe_encodings(encodings: Sequence[ColumnEncoding]) -> list[dict[str, Any]]:
    """The encodings in values that JSON knows; `read_encodings` reads them."""
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "fill": each.fill,
            "has_indicator": each.has_indicator,
            "categories": list(each.categories),
        }
        for each in encodings
    ]


def read_encodings(described: Sequence[Mapping[str, Any]]) -> tuple[ColumnEncoding, ...]:
    """The encodings that `describe_encodings` described.

    Raises:
        KeyError: If a value is not there.
        ValueError: If one is of another kind.
    """
    encodings = tuple(
        ColumnEncoding(
            str(each["name"]),
            str(each["kind"]),
            float(each["fill"]),
            bool(each["has_indicator"]),
            tuple(map(str, each["categories"])),
        )
        for each in described
    )
    if not all(each.kind in KINDS and np.isfinite(each.fill) for each in encodings):
        raise ValueError("a column is neither number, date nor category")
    return encodings


def is_missing(cell: object) -> bool:
    """Whether a cell is empty or says that its value is missing.

    Examples:
        >>> is_missing(" NA "), is_missing(None), is_missing("0")
        (True, True, False)
    """
    return cell is None or str(cell).strip().lower() in MISSING


def as_column(
    name: str, cells: Sequence[object], place: Callable[[int], str], *, decimal: str = "."
) -> RawColumn:
    """The column of these cells as numbers, dates or words, whichever they are.

    Args:
        name: Name of the column.
        cells: Its cells.
        place: Where a row is, by its number, for messages.
        decimal: What a number may have in place of its point.

    Raises:
        CellError: If a few cells of a column of numbers are none, or not finite.
    """
    numbers = np.full(len(cells), np.nan)
    strange = []
    for row, cell in enumerate(cells):
        if is_missing(cell):
            continue
        try:
            if isinstance(cell, bool):
                raise ValueError
            numbers[row] = as_number(str(cell), decimal)
        except ValueError:
            strange.append(row)
    present = sum(not is_missing(cell) for cell in cells)
    if len(strange) < present / 2:
        with np.errstate(over="ignore"):
            infinite = np.flatnonzero(np.isinf(numbers.astype(np.float32)))
        if strange:
            raise CellError(
                f"{place(strange[0])}, column {name!r}: {str(cells[strange[0]])[:80]!r} is not a "
                f"number, as most others are; correct it, empty it or drop the column (--drop)"
            )
        if len(infinite):
            raise CellError(
                f"{place(infinite[0])}, column {name!r} is {numbers[infinite[0]]}; numbers must be "
                f"finite and fit float32"
            )
        return RawColumn(name, "number", numbers)
    return as_dates(name, cells) or as_category(name, cells)


def as_category(name: str, cells: Sequence[object]) -> RawColumn:
    """A column of words, without blanks around them."""
    texts = [None if is_missing(cell) else str(cell).strip() for cell in cells]
    words = tuple(sorted({text for text in texts if text is not None}))
    places = {word: float(place) for place, word in enumerate(words)}
    values = [np.nan if text is None else places[text] for text in texts]
    return RawColumn(name, "category", np.array(values, np.float64), words)


def as_dates(name: str, cells: Sequence[object]) -> RawColumn | None:
    """A column of dates as days since 1970, or None if a cell is no date or all are missing.

    ISO 8601, 2024/05/17, 17.05.2024, 05/17/2024 and 17/05/2024 are known; where the last two
    both fit all cells, the month comes first.
    """
    texts = [None if is_missing(cell) else str(cell).strip() for cell in cells]
    first = next((text for text in texts if text is not None), None)
    if first is None:
        return None
    for style in (None, *_FORMATS):
        if _days(first, style) is None:
            continue
        days = [np.nan if text is None else _days(text, style) for text in texts]
        if None not in days:
            return RawColumn(name, "date", np.array(days, np.float64))
    return None


def _days(text: str, style: str | None) -> float | None:
    try:
        if style is None:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        else:
            moment = datetime.strptime(text, style)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp() / 86_400
