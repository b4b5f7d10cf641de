"""Labels: from the values in a source to class numbers, with checks and notes on doubtful ones."""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

if TYPE_CHECKING:
    from imae.data.split import Data


@dataclass(frozen=True)
class LabelColumn:
    """Labels as written in a source, and how to name a row of it in a message.

    Args:
        source: File or folder they come from.
        row_ids: Id of every row, shape (N,).
        values: N names, whole numbers or booleans; None, NaN, pandas' NA and NaT, and blank mean
            that the label is missing.
        are_names: Whether the values are names, such as those of folders, in which neither ``nan``
            nor a trailing blank has a special meaning.
    """

    source: str
    row_ids: NDArray[np.str_]
    values: Sequence[object]
    are_names: bool = False

    def error(self, row: int, problem: str) -> DataError:
        """The error for this row."""
        return DataError(f"{self.source}: row {str(self.row_ids[row])!r}: {problem}")


def encode_labels(
    train: Sequence[LabelColumn],
    others: Sequence[LabelColumn],
    *,
    class_names: Sequence[str] | None = None,
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Class numbers of all columns, the training columns first, and the names of the classes.

    The classes are those of the training columns, in order: as numbers if all labels are whole
    numbers (``1.0`` is one), which need not count from 0, else by name. -1 is a class like any
    other; -100, which PyTorch ignores, is refused. If ``class_names`` are given, a text that equals
    one of them means that class, and whole numbers count them from 0.

    Args:
        train: Columns that determine the classes.
        others: Columns that may use these classes only.
        class_names: Names of the classes, if they are known.

    Raises:
        DataError: If a label is missing, neither a whole number nor a name, -100, or unknown, or
            there are fewer than two classes.

    Examples:
        >>> ids = np.array(["a", "b", "c"])
        >>> encode_labels([LabelColumn("pets.csv", ids, ["dog", "cat", "dog"])], [])
        ([array([1, 0, 1])], ('cat', 'dog'))
    """
    columns = [*train, *others]
    if class_names is not None:
        names = tuple(map(str, class_names))
        return [_encode_known(column, names) for column in columns], names
    written = [_tidy(column) for column in columns]
    tidy = [
        [_whole(value, column) for value in values]
        for column, values in zip(columns, written, strict=True)
    ]
    if all(isinstance(value, int) for values in tidy for value in values) and not all(
        isinstance(value, bool) for values in tidy for value in values
    ):
        for column, whole in zip(columns, tidy, strict=True):
            _check_not_ignored(column, whole)
        tidy = [[int(value) for value in values] for values in tidy]  # a boolean among numbers
    else:
        tidy = [[str(value) for value in values] for values in written]
    numbers = _number(value for values in tidy[: len(train)] for value in values)
    _check_several(numbers, train[0])
    encoded = [
        _encode(column, values, numbers, known=index < len(train))
        for index, (column, values) in enumerate(zip(columns, tidy, strict=True))
    ]
    return encoded, tuple(map(str, numbers))


def _encode_known(column: LabelColumn, class_names: Sequence[str]) -> NDArray[np.int64]:
    """Numbers count the classes from 0; texts are names if any of them is one, else numbers."""
    by_name: dict[int | str, int] = {name: number for number, name in enumerate(class_names)}
    if len(by_name) < len(class_names):
        raise DataError(
            f"{column.source}: two classes have the same name ({_listing(class_names)})"
        )
    _check_several(by_name, column)
    written = _tidy(column)
    whole = [_whole(value, column) for value in written]
    by_count: dict[int | str, int] = {number: number for number in range(len(class_names))}
    if all(isinstance(value, int) for value in written):
        _check_not_ignored(column, whole)
        return _encode(column, written, by_count, known=True)
    # 1.0 and 1 are the same number, 1.
    names = [
        str(value) if str(value) in by_name else str(number)
        for value, number in zip(written, whole, strict=True)
    ]
    is_count = all(isinstance(value, int) for value in whole)
    if is_count and not any(name in by_name for name in names):
        _check_not_ignored(column, whole)
        return _encode(column, whole, by_count, known=True)
    return _encode(column, names, by_name, known=True)


def _check_several(numbers: Mapping[int | str, int], column: LabelColumn) -> None:
    if len(numbers) < 2:
        raise DataError(
            f"{column.source}: {_listing(numbers)} is the only class; "
            f"give rows of at least two classes"
        )


def _tidy(column: LabelColumn) -> list[int | str]:
    """The labels as texts without blanks around them, or as whole numbers if they were numbers."""
    values: list[int | str] = []
    for row, value in enumerate(column.values):
        if isinstance(value, np.ndarray) and value.size != 1:
            raise column.error(row, f"a label of shape {value.shape}: give the class, not one-hot")
        if isinstance(value, np.generic | np.ndarray):  # in an array of objects
            value = value.item()
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and not column.are_names:
            value = value.strip()
        if _is_absent(value, column):
            missing = sum(_is_absent(each, column) for each in column.values[row:])
            more = f" (and of {missing - 1} more rows)" if missing > 1 else ""
            raise column.error(row, f"the label is missing{more}; fill it in or remove the row")
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # whole numbers beside a missing one become floats in pandas
        if not isinstance(value, int | str):
            raise column.error(row, f"label {value!r} is neither a name nor a whole number")
        values.append(value)
    return values


def _whole(value: int | str, column: LabelColumn) -> int | str:
    """The number in a text, unless that number is normally written differently (``007``)."""
    if isinstance(value, int):
        return value
    text = value if column.are_names else re.sub(r"\.0+$", "", value)
    digits = text.removeprefix("-")
    if len(digits) > 18 or not (digits.isascii() and digits.isdigit()):
        return value
    return int(text) if str(int(text)) == text else value


def _is_absent(value: object, column: LabelColumn) -> bool:
    if isinstance(value, str | bytes) and not column.are_names:
        value = value.strip()
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas; neither can be compared
        return True
    if isinstance(value, np.ndarray):
        return False
    return value is None or value in ("", b"") or (_is_nan(value) and not column.are_names)


def _is_nan(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() == "nan"
    return isinstance(value, float) and math.isnan(value)


IGNORED = -100  # the ignore_index of torch.nn.CrossEntropyLoss


def _check_not_ignored(column: LabelColumn, values: Sequence[int | str]) -> None:
    for row, value in enumerate(values):
        if value == IGNORED:
            raise column.error(row, f"label {value} means no label in PyTorch; remove such rows")


LABEL_KINDS = ("name", "integer", "boolean")


def label_kind(values: Sequence[object]) -> str:
    """What labels were in their source, one of ``LABEL_KINDS``; whole floats count as integers.

    Examples:
        >>> label_kind([-1, 1.0]), label_kind([True, False]), label_kind(["1", "2"])
        ('integer', 'boolean', 'name')
    """
    if all(isinstance(value, bool | np.bool_) for value in values):
        return "boolean"
    are_numbers = all(isinstance(value, int | float | np.number | np.bool_) for value in values)
    return "integer" if are_numbers else "name"


def _number(values: Iterable[int | str]) -> dict[int | str, int]:
    # The values are all of one type here, and either sorts.
    ordered = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    return {value: number for number, value in enumerate(ordered)}


def _encode(
    column: LabelColumn,
    values: Sequence[int | str],
    numbers: Mapping[int | str, int],
    *,
    known: bool,
) -> NDArray[np.int64]:
    encoded = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        number = numbers.get(value)
        if number is None:
            rule = "is not one of the classes" if known else "was never seen in training"
            raise column.error(row, f"label {value!r} {rule} ({_listing(numbers)})")
        encoded[row] = number
    return encoded


def _listing(names: Iterable[object]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "") if shown else "nothing"


_MANY_CLASSES = 20
_DECIMAL = re.compile(r"-?\d*\.\d+(e-?\d+)?", re.IGNORECASE)


def _folded(name: str) -> str:
    """The name in lower case, with single blanks and normalised Unicode, to find similar ones."""
    plain = unicodedata.normalize("NFKC", name).lower()
    shown = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(shown.split())


def label_notes(data: "Data") -> list[str]:
    """Doubts about the labels: measured numbers, classes that may be the same or missing labels.

    Examples:
        >>> from imae.data import from_arrays
        >>> label_notes(from_arrays(np.eye(6), ["cat", "Cat", "dog"] * 2))
        ["classes 'Cat' and 'cat' differ only in case or blanks; are they one class?"]
    """
    from imae.data.encoding import is_missing  # it needs this module

    notes = []
    counts = np.bincount(data.train.labels, minlength=data.num_classes)
    for number, name in zip(counts.tolist(), data.class_names, strict=True):
        if is_missing(name):
            notes.append(
                f"{number} training rows have the label {name!r}, which counts as a class; remove "
                f"them if it means that the label is missing"
            )
    if "-1" in data.class_names and "0" in data.class_names:
        notes.append(
            f"{counts[data.class_names.index('-1')]} training rows have the label -1, which counts "
            "as a class; remove them if it means that the label is missing"
        )
    alike = defaultdict(list)
    for name in data.class_names:
        alike[_folded(name)].append(name)
    for same in alike.values():
        if len(same) > 1:
            listed = " and ".join(map(repr, same))
            is_plain = len({" ".join(name.lower().split()) for name in same}) == 1
            way = "case or blanks" if is_plain else "how letters are coded (Unicode)"
            notes.append(f"classes {listed} differ only in {way}; are they one class?")
    names = data.class_names
    decimals = sum(_DECIMAL.fullmatch(name) is not None for name in names)
    if decimals > len(names) / 2:
        notes.append(
            f"the labels are {len(names)} different numbers with decimals, for example {names[0]}; "
            f"they look like measurements, and this program predicts classes"
        )
    elif len(names) > max(_MANY_CLASSES, len(data.train) / 2):
        notes.append(f"there are {len(names)} classes for {len(data.train)} training rows")
    rare = [names[label] for label in np.flatnonzero(counts == 1)]
    if rare:
        which = f"class {rare[0]!r} has" if len(rare) == 1 else f"{len(rare)} classes have"
        notes.append(f"{which} only one training row")
    return notes


def check_labels(
    name: str, labels: np.ndarray | None, row_ids: NDArray[np.str_], num_classes: int
) -> None:
    """Raises a ``DataError`` that names the row unless labels are int64 in [0, C)."""
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


_LIGHTEST, _HEAVIEST = 1e-20, 1e20  # beyond, the sum of a batch may leave single precision


def check_weights(weights: NDArray[np.floating], row_ids: NDArray[Any]) -> None:
    """Raises a ``DataError`` that names the row unless weights can be summed: 0, or 1e-20 to 1e20.

    With a weight of 1e38 the sum of a batch is infinite in single precision, and the weighted mean
    of the losses nothing: such a run would train nothing.
    """
    with np.errstate(invalid="ignore"):
        is_usable = (weights >= _LIGHTEST) & (weights <= _HEAVIEST)
    wrong = ~(is_usable | (weights == 0))
    if not wrong.any():
        return
    row = int(wrong.argmax())
    value, name = weights[row], str(row_ids[row])
    if not (np.isfinite(value) and value >= 0):
        raise DataError(f"weight of row {name!r} must be finite and not negative, got {value}")
    raise DataError(
        f"weight of row {name!r} must be 0 or from {_LIGHTEST:g} to {_HEAVIEST:g}, got {value:g}; "
        "only ratios of weights count: divide all of them by one number"
    )
