"""Real tables: columns of numbers, dates and categories with empty cells, encoded as numbers."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.columns import (
    DATE_FORMATS,
    DAY_FIRST,
    MONTH_FIRST,
    NUMBER_FORMATS,
    CellError,
    as_number,
    first_invalid,
    listing,
    number_format,
    written_date,
    written_number,
)
from imae.data.split import Inputs, hash_rows
from imae.errors import ArgumentError, DataError

MISSING = frozenset(
    {"", "?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "<na>"}
    | {"nan", "null", "none", "nil", "missing"}
)
"""Cells, in lower case, that mean that a value is missing."""
KINDS = ("number", "date", "category")
MOST_CATEGORIES = 50
"""A column with more categories becomes one number, the rank of its category."""
_TRIED_CELLS = 100
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0", "0.0"), False),
}


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as it was read.

    Args:
        name: Name in the file.
        kind: ``"number"``, ``"date"`` or ``"category"``.
        values: Shape (N,): numbers, days since 1970, or positions in ``words``; NaN if missing.
        words: The different words of a category.
        date_format: How dates are written, one of ``DATE_FORMATS``.
        note: What a user should know about how it was read, if anything.
        number_format: How numbers are written, one of ``NUMBER_FORMATS``; None for plain ones.
    """

    name: str
    kind: str
    values: NDArray[np.float64]
    words: tuple[str, ...] = ()
    date_format: str | None = None
    note: str | None = None
    number_format: str | None = None

    @property
    def num_missing(self) -> int:
        """Number of rows without a value."""
        return int(np.isnan(self.values).sum())


@final
@dataclass(frozen=True, eq=False)
class RawTable(Inputs):
    """Rows of a table before it is known which of them are trained on.

    ``imae.data.preparation.fit_scale`` turns it into a ``Table``.

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
        raise ArgumentError("a raw table has no batches; load it with imae.data.load")

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
        """Hashes of the cells of every row, which are the same in every file."""
        return hash_rows(row.data for row in np.stack([_cell_keys(c) for c in self.columns], 1))


def _cell_keys(column: RawColumn) -> NDArray[np.uint64]:
    """A number for each cell: its bits, or the hash of its word."""
    values = column.values.astype(np.float64)
    if column.kind != "category":
        return values.view(np.uint64)
    words = hash_rows(word.encode("utf-8", "surrogatepass") for word in (*column.words, ""))
    return words[np.where(np.isnan(values), -1, values).astype(np.int64)]  # the last one is empty


@dataclass(frozen=True)
class ColumnEncoding:
    """How a column becomes features; fitted on training rows.

    Args:
        name: Name of the column.
        kind: ``"number"``, ``"date"`` or ``"category"``.
        fill: What an empty cell of a number or date becomes: the median.
        has_indicator: Whether a feature of its own says that the cell is empty.
        categories: Words that are known, the most frequent first.
        date_format: How dates were written, one of ``DATE_FORMATS``; None if that is not known, as
            in runs of earlier versions.
        number_format: How numbers were written, one of ``NUMBER_FORMATS``; None for plain ones.
    """

    name: str
    kind: str
    fill: float = 0.0
    has_indicator: bool = False
    categories: tuple[str, ...] = ()
    date_format: str | None = None
    number_format: str | None = None

    def feature_names(self) -> list[str]:
        """Names of the features, for instance ``colour=red``."""
        if self.kind != "category":
            return [self.name, *([f"{self.name} is missing"] if self.has_indicator else [])]
        if len(self.categories) > MOST_CATEGORIES:
            return [f"rank of {self.name}"]
        if self._is_binary:
            return [f"{self.name}={self.categories[1]}"]
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: RawColumn) -> NDArray[np.float64]:
        """Features of the column, shape (N, number of feature names).

        A category that training rows do not have is treated like an empty cell: all its features
        are 0. Where two categories are encoded as one feature of 0 and 1, it is 1/2.
        """
        is_missing = np.isnan(column.values)
        if self.kind != "category":
            filled = np.where(is_missing, self.fill, column.values)
            parts = [filled, is_missing.astype(np.float64)] if self.has_indicator else [filled]
            return np.stack(parts, axis=1)
        rank = self._ranks(column)
        if len(self.categories) > MOST_CATEGORIES:
            return np.where(rank < 0, len(self.categories), rank).astype(np.float64)[:, None]
        if self._is_binary:
            return np.where(rank < 0, 0.5, rank)[:, None]
        one_hot: NDArray[np.float64] = (rank[:, None] == np.arange(len(self.categories))).astype(
            np.float64
        )
        return one_hot

    def unseen_values(self, column: RawColumn) -> list[str]:
        """What new rows contain that training rows did not: unknown words, and empty cells.

        Examples:
            >>> trained = fit_encoding(RawTable((as_category("colour", ["red", "blue"]),)))[0]
            >>> trained.unseen_values(as_category("colour", ["RED", "green"]))
            ["column 'colour': 1 of 2 cells holds a word that no training row has ('green')"]
        """
        found = []
        if unknown := self.unknown_words(column):
            number = sum(unknown.values())
            verb = "holds a word" if number == 1 else "hold words"
            found.append(
                f"{number} of {len(column.values)} cells {verb} that no training row has "
                f"({listing(list(unknown))})"
            )
        if column.num_missing and not self.has_indicator:
            verb = "is" if column.num_missing == 1 else "are"
            found.append(
                f"{column.num_missing} of {len(column.values)} cells {verb} empty, and no training "
                f"row has an empty one"
            )
        return [f"column {self.name!r}: {each}" for each in found]

    def unknown_words(self, column: RawColumn) -> dict[str, int]:
        """Number of cells by word, for words that are not in any category."""
        if self.kind != "category":
            return {}
        is_unknown = ~np.isnan(column.values) & (self._ranks(column) < 0)
        places = Counter(column.values[is_unknown].astype(int).tolist())
        return {column.words[place]: number for place, number in sorted(places.items())}

    @property
    def _is_binary(self) -> bool:
        return len(self.categories) == 2 and not self.has_indicator

    def _ranks(self, column: RawColumn) -> NDArray[np.int64]:
        """Rank of every cell's category, -1 for an empty cell or an unknown word."""
        is_missing = np.isnan(column.values)
        known = np.array([*map(self._rank_by_word(), column.words)] or [-1])
        places = np.where(is_missing, 0, column.values).astype(int)
        return np.where(is_missing, -1, known[places])

    def _rank_by_word(self) -> Callable[[str], int]:
        """The rank of a word's category: the same word, or the only one with the same meaning.

        Words that differ in case mean the same; so do ``True``, ``yes`` and ``1`` where the
        categories are a pair of such words.
        """
        exact = {word: rank for rank, word in enumerate(self.categories)}
        values = {_BOOLEANS.get(word.lower()) for word in self.categories}
        is_boolean = len(self.categories) == 2 and values == {True, False}

        def meaning(word: str) -> str | bool:
            lower = word.lower()
            return _BOOLEANS.get(lower, lower) if is_boolean else lower

        counts = Counter(map(meaning, self.categories))
        alike = {meaning(word): rank for word, rank in exact.items() if counts[meaning(word)] == 1}
        return lambda word: exact.get(word, alike.get(meaning(word), -1))


def fit_encoding(table: RawTable) -> tuple[ColumnEncoding, ...]:
    """Fits the encoding of each column to these rows."""
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
    return ColumnEncoding(
        column.name,
        column.kind,
        fill,
        has_missing,
        date_format=column.date_format,
        number_format=column.number_format,
    )


def encode_table(
    table: RawTable, encodings: Sequence[ColumnEncoding]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Features of the rows, shape (N, F), and their F names."""
    parts = [each.encode(column) for each, column in zip(encodings, table.columns, strict=True)]
    names = [name for each in encodings for name in each.feature_names()]
    return np.concatenate(parts, axis=1), tuple(names)


def describe_encodings(encodings: Sequence[ColumnEncoding]) -> list[dict[str, Any]]:
    """The encodings as values that JSON can hold; `read_encodings` reads them."""
    return [
        {
            **{key: value for key, value in asdict(each).items() if value is not None},
            "categories": list(each.categories),
        }
        for each in encodings
    ]


def read_encodings(described: Sequence[Mapping[str, Any]]) -> tuple[ColumnEncoding, ...]:
    """The encodings that `describe_encodings` described.

    Raises:
        KeyError: If a value is missing.
        ValueError: If a value is invalid.
    """
    encodings = tuple(
        ColumnEncoding(
            str(each["name"]),
            str(each["kind"]),
            float(each["fill"]),
            bool(each["has_indicator"]),
            tuple(map(str, each["categories"])),
            each.get("date_format"),
            each.get("number_format"),
        )
        for each in described
    )
    if not all(each.kind in KINDS and np.isfinite(each.fill) for each in encodings):
        raise ValueError("a column is neither number, date nor category")
    if not all(each.date_format in (None, *DATE_FORMATS) for each in encodings):
        raise ValueError("dates have an unknown format")
    if not all(each.number_format in (None, *NUMBER_FORMATS) for each in encodings):
        raise ValueError("numbers have an unknown format")
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
        place: Describes where a row is, by its number, for messages.
        decimal: The decimal sign that numbers may have.

    Raises:
        CellError: If a few cells of a column of numbers are not numbers, or not finite.
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
    written = as_written_numbers(name, cells, decimal=decimal) if strange else None
    if written is not None:
        numbers, strange = written.values, []
    if len(strange) < present / 2:
        if strange:
            raise CellError(
                f"{place(strange[0])}, column {name!r}: {str(cells[strange[0]])[:80]!r} is not a "
                "number, as most others are",
                "correct it, empty it or drop the column (--drop)",
            )
        column = typed_column(name, numbers, place)
        return written or column
    dates = as_dates(name, cells)
    if dates is not None:
        return dates
    note = (
        _note_odd_cells(name, cells, NUMBER_FORMATS, written_number, "numbers")
        or _note_odd_cells(name, cells, DATE_FORMATS, written_date, "dates")
        or _note_units(name, cells)
    )
    return as_category(name, cells, note)


def typed_column(name: str, numbers: NDArray[np.float64], place: Callable[[int], str]) -> RawColumn:
    """A column of numbers, as ``as_column`` gives it for their cells.

    Args:
        name: Name of the column.
        numbers: Shape (N,), NaN where a cell is empty.
        place: Describes where a row is, by its number, for messages.

    Raises:
        CellError: If a number is infinite, or too large for float32.
    """
    is_empty = np.isnan(numbers)
    if is_empty.all():
        return as_category(name, [None] * len(numbers))
    wrong = first_invalid(np.where(is_empty, 0.0, numbers))
    if wrong is not None:
        raise CellError(
            f"{place(wrong)}, column {name!r} is {numbers[wrong]}",
            "numbers must be finite and fit float32",
        )
    return RawColumn(name, "number", numbers)


def as_written_numbers(
    name: str, cells: Sequence[object], *, decimal: str = ".", trained: str | None = None
) -> RawColumn | None:
    """A column of numbers with units or thousands separators, or None if a cell is not one.

    $1.23, 12.3%, 1,234,567 and 1.234,5 are known; all cells must have the same unit. Where all
    can be read with either decimal sign, the column has a note.

    Args:
        name: Name of the column.
        cells: Its cells.
        decimal: The decimal sign of the file.
        trained: Format of the numbers in training, for new rows.
    """
    texts = _texts(cells)
    present = [text for text in texts if text is not None]
    style, is_clear = number_format(present, decimal) if trained is None else (trained, True)
    if style is None:
        return None
    values = [np.nan if text is None else written_number(text, style) for text in texts]
    if None in values:
        return None
    note = None
    if trained is None:
        example = max(present, key=len)
        value = f"{written_number(example, style):.12g}"
        note = f"column {name!r}: cells such as {example!r} are read as numbers, here {value}"
        if not is_clear:
            note += "; a comma or point before three digits may mean thousands or decimals: "
            note += "write them plainly, as 1234.5, to be sure"
    return RawColumn(name, "number", np.array(values, np.float64), note=note, number_format=style)


def read_as(encoding: ColumnEncoding, cells: Sequence[object], *, where: str) -> RawColumn:
    """A column of new dates, words or numbers with a unit, read as it was in training.

    Args:
        encoding: A column of dates or categories, or of numbers that were not written plainly.
        cells: Its new cells.
        where: The file, for messages.

    Raises:
        DataError: If a cell is not a date, or not such a number; if no word is known, and all are
            numbers or all are dates while those of training were not.
    """
    name, style = encoding.name, encoding.date_format
    column = as_category(name, cells)
    if not column.words:
        return column
    here = f"{where}: column {name!r} was a {encoding.kind} in training and is"
    if encoding.number_format is not None:
        numbers = as_written_numbers(name, cells, trained=encoding.number_format)
        if numbers is not None:
            return numbers
        bad = [
            word for word in column.words if written_number(word, encoding.number_format) is None
        ]
        raise DataError(
            f"{here} not one here, for example {bad[0]!r}; numbers were written as "
            f"{encoding.number_format}"
        )
    if encoding.kind == "date":
        dates = as_dates(name, cells, style)
        if dates is not None:
            return dates
        strange = [
            word for word in column.words if style is None or written_date(word, style) is None
        ]
        written = "" if style is None else f"; dates were written as {DATE_FORMATS[style]}"
        raise DataError(f"{here} not one here, for example {strange[0]!r}{written}")
    if len(encoding.unknown_words(column)) == len(column.words):
        kind = _kind(column.words)
        if kind not in ("category", _kind(encoding.categories)):
            raise DataError(f"{here} a {kind} here, for example {column.words[0]!r}")
    return column


def _kind(words: Sequence[str]) -> str:
    try:
        np.array(words, np.float64)
    except ValueError:
        return "category" if as_dates("", words) is None else "date"
    return "number"


def as_category(name: str, cells: Sequence[object], note: str | None = None) -> RawColumn:
    """A column of words, stripped of surrounding blanks."""
    texts = _texts(cells)
    words = tuple(sorted({text for text in texts if text is not None}))
    places = {word: float(place) for place, word in enumerate(words)}
    values = [np.nan if text is None else places[text] for text in texts]
    return RawColumn(name, "category", np.array(values, np.float64), words, note=note)


def as_dates(name: str, cells: Sequence[object], trained: str | None = None) -> RawColumn | None:
    """A column of dates as days since 1970, or None if a cell is not a date or all are missing.

    ISO 8601, 2024/05/17, 17.05.2024, 05/17/2024 and 17/05/2024 are known, also with a time after a
    blank (13:00, 13:00:59, 1:00 PM). Where the last two formats both fit all cells, the month
    comes first, unless the training dates had the other, and the column has a note.

    Args:
        name: Name of the column.
        cells: Its cells.
        trained: How dates were written in training, for new rows. Then day and month are never
            exchanged: other formats are used only if they are unambiguous.
    """
    texts = _texts(cells)
    fitting = [each for each in DATE_FORMATS if _fits(texts, each)]
    is_clear = not {MONTH_FIRST, DAY_FIRST} <= set(fitting)
    if trained in fitting:
        fitting = [trained]
    elif trained in (MONTH_FIRST, DAY_FIRST):
        fitting = [each for each in fitting if each not in (MONTH_FIRST, DAY_FIRST)]
    elif trained is not None and not is_clear:
        return None
    if not fitting:
        return None
    days = [np.nan if text is None else written_date(text, fitting[0]) for text in texts]
    note = None
    if not is_clear and trained is None:
        example = next(text for text in texts if text is not None)
        note = (
            f"column {name!r}: all dates, such as {example!r}, can be read as month/day and as "
            f"day/month; they are read as month/day; write them as 2024-05-17 to be sure"
        )
    return RawColumn(name, "date", np.array(days, np.float64), date_format=fitting[0], note=note)


def _texts(cells: Sequence[object]) -> list[str | None]:
    return [None if is_missing(cell) else str(cell).strip() for cell in cells]


def _fits(texts: Sequence[str | None], style: str) -> bool:
    """Whether all cells that are not empty are dates of this format, and there is one."""
    present = [text for text in texts if text is not None]
    return bool(present) and all(written_date(text, style) is not None for text in present)


def _note_odd_cells(
    name: str,
    cells: Sequence[object],
    styles: Iterable[str],
    value: Callable[[str, str], float | None],
    kind: str,
) -> str | None:
    """A note on a column of numbers or dates that became words because of a few cells, if it did.

    Args:
        name: Name of the column.
        cells: Its cells.
        styles: How such cells can be written.
        value: The value of a text in one of the styles; None if it is not in that style.
        kind: ``"numbers"`` or ``"dates"``.
    """
    words, few = _words_and_few(cells)
    for style in styles:
        if 2 * sum(value(word, style) is not None for word in few) > len(few):
            strange = [word for word in words if value(word, style) is None]
            if strange and 2 * len(strange) < len(words):
                written = DATE_FORMATS.get(style, style)
                return (
                    f"column {name!r}: {len(strange)} of {len(words)} cells, such as "
                    f"{strange[0]!r}, are not {kind} written as the others are ({written}), so "
                    "all count as words; correct or empty them"
                )
    return None


def _note_units(name: str, cells: Sequence[object]) -> str | None:
    """What to say of a column of numbers with several units, none of them in most cells."""
    words, few = _words_and_few(cells)
    by_unit: dict[str, str] = {}
    for word in few:
        style = next((each for each in NUMBER_FORMATS if _is_written(word, each)), None)
        if style is None:
            return None
        by_unit.setdefault(NUMBER_FORMATS[style][0], word)
    if len(by_unit) < 2:
        return None
    return (
        f"column {name!r}: its {len(words)} numbers have several units, such as "
        f"{listing(list(by_unit.values()))}, so all count as words; convert them to one unit"
    )


def _is_written(word: str, style: str) -> bool:
    return written_number(word, style) is not None


def _words_and_few(cells: Sequence[object]) -> tuple[list[str], list[str]]:
    """The cells that are not empty, and about a hundred of them: to try all takes long."""
    words = [text for text in _texts(cells) if text is not None]
    return words, words[:: len(words) // _TRIED_CELLS + 1]
