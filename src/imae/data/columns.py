"""Columns of a file: what each is used for, and how numbers and dates are written in cells."""

import contextlib
import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError


class CellError(DataError):
    """A cell that is not a usable number, in a column that is read as numbers.

    Args:
        problem: The cell, and what is wrong with it.
        remedy: What a user can do.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem


class ColumnFile(ABC):
    """A file of named columns, whose columns are read when their roles are known.

    Args:
        path: The file.
        names: Names of its columns.
        decimal: The decimal sign that numbers may have, besides the point.

    Raises:
        DataError: If a column has no name, or two have the same name.
    """

    def __init__(self, path: Path, names: Sequence[str], decimal: str = ".") -> None:
        self.path = path
        self.decimal = decimal
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
        """The requested columns.

        Args:
            values: Names of columns to be read as they are.
            numbers: Names of F columns to be read as numbers.

        Returns:
            The values by column, and the numbers, shape (N, F).

        Raises:
            CellError: If a cell that should be a number is not one, or is not finite.
            DataError: If the file is damaged.
        """

    def is_boolean(self, name: str) -> bool:  # noqa: ARG002 - not of a CSV file
        """Whether a column holds true and false as such, which a CSV file holds as words."""
        return False

    def typed_numbers(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:  # noqa: ARG002
        """Those of the columns that are stored as numbers, not as cells that may be anything.

        Returns:
            The numbers by column, shape (N,), NaN where a cell is empty; they may be infinite. No
            column of a CSV file, whose cells are text.
        """
        return {}

    @property
    def header(self) -> str:
        """What names the columns, for messages."""
        return f"{self.path}:"

    def place(self, row: int) -> str:
        """Where the row of this number, counted from 0, is in the file, for messages."""
        return f"{self.path}: row {row} (counted from 0)"


def as_number(cell: str, decimal: str = ".") -> float:
    """The number that a cell holds.

    Raises:
        ValueError: If it is not a number.

    Examples:
        >>> as_number("17,5", decimal=","), as_number("1e3")
        (17.5, 1000.0)
    """
    if decimal != "." and _DECIMAL_COMMA.fullmatch(cell.strip()):
        cell = cell.replace(decimal, ".")
    return float(cell)


_UNITS = ("", "%", "$", "€", "£", "¥", "₹")
NUMBER_FORMATS = {
    (number + unit if unit == "%" else unit + number): (unit, decimal)
    for unit in _UNITS
    for number, decimal in (("1,234.5", "."), ("1.234,5", ","))
}
"""How numbers are written: an example, with its unit and its decimal sign."""
_WRITTEN = {
    decimal: re.compile(
        rf"[+-]?(?:(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)(?:{point}\d*)?|{point}\d+)"
        r"(?:[eE][+-]?\d+)?"
    )
    for decimal, point, group in ((".", r"\.", ","), (",", ",", r"\."))
}


def written_number(text: str, style: str) -> float | None:
    """The number in a text of this format, one of ``NUMBER_FORMATS``; None if it is not one.

    Examples:
        >>> written_number("-$1,234.50", "$1,234.5"), written_number("12,5 %", "1.234,5%")
        (-1234.5, 12.5)
    """
    unit, decimal = NUMBER_FORMATS[style]
    text, sign = text.strip(), 1.0
    if unit:
        before, found, after = text.partition(unit)
        if not found or (before.strip() not in ("", "+", "-") and after.strip()):
            return None
        if after.strip():
            sign, text = (-1.0 if before.strip() == "-" else 1.0), after.strip()
            if before.strip() and text[0] in "+-":
                return None
        else:
            text = before.strip()
    if not _WRITTEN[decimal].fullmatch(text):
        return None
    group = "," if decimal == "." else "."
    return sign * float(text.replace(group, "").replace(decimal, "."))


def number_format(texts: Sequence[str], decimal: str = ".") -> tuple[str | None, bool]:
    """How all of these numbers are written, and whether there is only one way to read them.

    Args:
        texts: Cells that are not empty.
        decimal: The decimal sign of the file, for texts that can be read in two ways.

    Returns:
        One of ``NUMBER_FORMATS``, or None if a text is not a number or units differ.

    Examples:
        >>> number_format(["$1.50", "$1,200"]), number_format(["1,5", "12"])
        (('$1,234.5', True), ('1.234,5', True))
        >>> number_format(["1,234", "17"]), number_format(["3%", "$4"])
        (('1,234.5', False), (None, True))
    """
    unit = next((each for each in _UNITS[1:] if texts and each in texts[0]), "")
    fitting = [
        style
        for style, (of_style, _) in NUMBER_FORMATS.items()
        if texts
        and of_style == unit
        and all(written_number(each, style) is not None for each in texts)
    ]
    if len(fitting) < 2:
        return (fitting[0] if fitting else None), True
    one, two = fitting
    is_clear = all(written_number(each, one) == written_number(each, two) for each in texts)
    return (one if decimal == "." else two), is_clear


MONTH_FIRST, DAY_FIRST = "%m/%d/%Y", "%d/%m/%Y"
DATE_FORMATS = {
    "iso": "2024-05-17",
    "%Y/%m/%d": "2024/05/17",
    "%d.%m.%Y": "17.05.2024",
    MONTH_FIRST: "month/day/year",
    DAY_FIRST: "day/month/year",
    "%Y%m%dT%H%M%S": "20240517T120000",
}
"""How dates are written, with an example for messages; the first that fits is used."""
_TIMES = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")


def written_date(text: str, style: str) -> float | None:
    """Days since 1970 of a date in this format, one of ``DATE_FORMATS``; None if it is not one.

    Examples:
        >>> written_date("1970-01-03", "iso"), written_date("02/01/1970 6:00 PM", DAY_FIRST)
        (2.0, 1.75)
    """
    try:
        if style == "iso":
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        else:
            day, _, clock = text.partition(" ")
            moment = datetime.strptime(day, style)
            if clock:
                moment = datetime.combine(moment, _clock(clock.strip()))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp() / 86_400


def _clock(text: str) -> time:
    """A time of day.

    Raises:
        ValueError: If it is not a time.
    """
    for style in _TIMES:
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, style).time()
    raise ValueError(text)


def first_invalid(numbers: NDArray[Any]) -> int | None:
    """Position of the first number that is NaN, infinite or too large for float32, if any is.

    Examples:
        >>> first_invalid(np.array([1.0, 1e300]))
        1
    """
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(numbers.astype(np.float32))
    return None if is_finite.all() else int(is_finite.argmin())


_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
LABEL_NAMES = ("label", "labels", "target", "y")
ID_NAMES = ("row_id", "id")


@dataclass(frozen=True)
class Roles:
    """Names of the columns by what they mean; None if there is no such column.

    The inputs are in exactly one of ``path``, ``text`` and ``features``; ``unused`` are
    columns beside paths or texts that are not read.
    """

    label: str
    row_id: str | None
    clean_label: str | None
    split: str | None
    weight: str | None
    path: str | None
    text: str | None
    features: tuple[str, ...]
    unused: tuple[str, ...] = ()

    def values(self) -> list[str]:
        """Columns that are read as they are."""
        named = (self.label, self.row_id, self.clean_label, self.split, self.path, self.text)
        return [name for name in named if name is not None]

    def uses(self) -> dict[str, str]:
        """What each column other than the features is used as, by its name."""
        used = {
            self.label: "label",
            self.row_id: "row id",
            self.clean_label: "true label, not trained on",
            self.split: "part of the data",
            self.weight: "weight of the row",
            self.path: "path of an image",
            self.text: "text",
        }
        return {name: use for name, use in used.items() if name is not None}


def find_roles(
    file: ColumnFile,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
) -> Roles:
    """The roles of the columns, as given by the caller or else by their names.

    Args:
        file: The file.
        label_column: Column of the labels; else the one called label, labels, target or y.
        id_column: Column of the row ids; else the one called row_id or id.
        path_column: Column of image paths; else the one called path.
        text_column: Column of texts; else the one called text.
        feature_columns: Columns of features; else, without paths and texts, all remaining ones.
        drop: Columns that are not read.

    Raises:
        ArgumentError: If a name is not a string.
        DataError: If a column does not exist, or it is not clear which one is meant.
    """
    feature_columns = None if feature_columns is None else _names(file, feature_columns)
    dropped = _names(file, drop or ())
    named = (label_column, id_column, path_column, text_column)
    given = [*(name for name in named if name is not None), *(feature_columns or ())]
    for name in (*given, *dropped):
        _check_column_exists(file, name)
    for name in given:
        if name in dropped:
            raise DataError(f"{file.path}: column {name!r} is both used and dropped")
    others_named = {name for name in named if name is not None}
    if clash := others_named & set(feature_columns or ()):
        raise DataError(f"{file.path}: column {min(clash)!r} is a feature and has another role")
    if label_column is not None and label_column in named[1:]:
        raise DataError(f"{file.path}: column {label_column!r} holds the labels and is named again")
    free = [name for name in file.names if name not in (*given, *dropped)]
    label = label_column or only_column(file, free, LABEL_NAMES, option="label_column")
    if label is None and (lost := [name for name in LABEL_NAMES if name in dropped]):
        raise DataError(
            f"{file.path}: column {lost[0]!r} holds the labels and is dropped; keep it, or name "
            "another column of labels with label_column (--label-column)"
        )
    if label is None:
        raise DataError(
            f"{file.header} has no column {' or '.join(LABEL_NAMES)}; "
            f"say which holds the labels with label_column (in settings data.options.label_column, "
            f"on the command line --label-column); columns: {listing(file.names)}"
        )
    path = path_column or only_column(file, free, ("path",))
    text = text_column or only_column(file, free, ("text",))
    others = {
        "row_id": id_column or only_column(file, free, ID_NAMES, option="id_column"),
        "clean_label": only_column(file, free, ("clean_label",)),
        "split": only_column(file, free, ("split",)),
        "weight": only_column(file, free, ("weight",)),
    }
    features = tuple(feature_columns or ())
    if path is None and text is None and feature_columns is None:
        used = {label, *others.values(), *dropped}
        features = tuple(name for name in file.names if name not in used)
        doubtful = [name for name in features if name in (*LABEL_NAMES, "clean_label")]
        if doubtful:
            raise DataError(
                f"{file.header} has {listing(doubtful)} beside the labels in {label!r}; "
                f"leave it out with drop (--drop), or name the features with feature_columns"
            )
    if sum(map(bool, (path, text, features))) != 1:
        found = [name for name in (path, text, *features) if name]
        raise DataError(
            f"{file.header} must name either paths or texts or features as inputs, "
            f"found {listing(found)}"
        )
    unused = tuple(
        name for name in free if name not in (label, path, text, *features, *others.values())
    )
    return Roles(label=label, path=path, text=text, features=features, unused=unused, **others)


def _names(file: ColumnFile, names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns; one text may hold several, separated by commas."""
    if not isinstance(names, str):
        return tuple(names)
    return (names,) if names in file.names else tuple(name.strip() for name in names.split(","))


def _check_column_exists(file: ColumnFile, name: object) -> None:
    if not isinstance(name, str):
        raise ArgumentError(f"columns are given by name, got {name!r}")
    if name not in file.names:
        near = difflib.get_close_matches(name, file.names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"columns: {listing(file.names)}"
        raise DataError(f"{file.header} has no column {name!r}; {hint}")


def only_column(
    file: ColumnFile, free: Sequence[str], names: Sequence[str], *, option: str = ""
) -> str | None:
    """The one column of these names, None if there is none.

    Args:
        file: The file, for messages.
        free: Columns of the file that have no other role.
        names: Names that the column may have.
        option: Option that chooses between several names.

    Raises:
        DataError: If there are several.
    """
    found = [name for name in names if name in free]
    if len(found) > 1:
        flag = f"--{option.replace('_', '-')}"
        which = f"say which is meant with {option} ({flag} {found[0]})" if option else "rename one"
        raise DataError(f"{file.header} has both {' and '.join(found)}; {which}")
    return found[0] if found else None


def listing(names: Sequence[str]) -> str:
    """The names for messages; if there are many, only the first and last few.

    Examples:
        >>> listing(["age", "height"])
        "'age', 'height'"
        >>> listing("abcdefghijk")
        "'a', 'b', 'c', 'd', 'e', ..., 'i', 'j', 'k'"
    """
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names]
    if len(shown) > 8:
        shown[5:-3] = ["..."]
    return ", ".join(shown) or "none"
