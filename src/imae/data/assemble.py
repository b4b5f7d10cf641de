"""From the columns of a source to data: labels become class numbers, rows find their split."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae.data.split import Data, Inputs, Split
from imae.errors import DataError

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


@dataclass(frozen=True)
class LabelColumn:
    """Labels as they are in a source, and how to name a row of it in a message.

    Args:
        source: File or folder they come from.
        row_ids: Id of every row, shape (N,).
        values: N names or whole numbers; None, NaN and blank mean that the label is missing.
        are_names: Whether the values are names, such as those of folders, in which neither ``nan``
            nor a blank at the end has a meaning.
    """

    source: str
    row_ids: NDArray[np.str_]
    values: Sequence[object]
    are_names: bool = False

    def error(self, row: int, problem: str) -> DataError:
        """The error for this row."""
        return DataError(f"{self.source}: row {str(self.row_ids[row])!r}: {problem}")


@dataclass(frozen=True, eq=False)
class Columns:
    """Rows of one source before their labels are numbers.

    Args:
        source: File or folder, for messages.
        inputs: One for each of the N rows.
        labels: N labels as they were written.
        row_ids: N ids.
        clean_labels: N true labels as they were written, if there are any.
        weights: N weights, if there are any.
        are_names: Whether the labels are names; see ``LabelColumn``.
    """

    source: str
    inputs: Inputs
    labels: Sequence[object]
    row_ids: NDArray[np.str_]
    clean_labels: Sequence[object] | None = None
    weights: NDArray[np.float32] | None = None
    are_names: bool = False

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """The rows at these positions."""
        clean = self.clean_labels
        return Columns(
            source=self.source,
            inputs=self.inputs.take(rows),
            labels=[self.labels[row] for row in rows],
            row_ids=self.row_ids[rows],
            clean_labels=None if clean is None else [clean[row] for row in rows],
            weights=None if self.weights is None else self.weights[rows],
            are_names=self.are_names,
        )


def assemble(
    parts: Mapping[str, Columns], *, name: str, class_names: Sequence[str] | None = None
) -> Data:
    """Data from the columns of its splits.

    The classes are those of the training rows, given and clean labels together.

    Args:
        parts: Columns by split: ``"train"``, and if they are there ``"validation"``, ``"test"``.
        name: Name of the data.
        class_names: Names of the classes, if they are known.

    Raises:
        DataError: If there are no training rows, a column has another length, a label or weight is
            wrong, or a row id appears twice.
    """
    first = next(iter(parts.values()))
    if "train" not in parts or len(parts["train"].inputs) == 0:
        raise DataError(f"{first.source}: there are no rows to train on")
    order = ["train", *(part for part in parts if part != "train")]
    written = {part: _label_columns(parts[part]) for part in order}
    others = [column for part in order[1:] for column in written[part]]
    encoded, names = encode_labels(written["train"], others, class_names=class_names)
    splits: dict[str, Split] = {}
    for part in order:
        labels, *clean = (encoded.pop(0) for _ in written[part])
        splits[part] = _split(parts[part], labels, clean[0] if clean else None, names)
    return Data(name, splits["train"], splits.get("validation"), splits.get("test"))


def divide(columns: Columns, splits: Sequence[str] | None) -> dict[str, Columns]:
    """The columns by split, for a source that names the split of every row.

    Args:
        columns: All rows.
        splits: Split of every row (train, validation, val, test ...), or None if all train.

    Raises:
        DataError: If a row names no split that we know.
    """
    if splits is None:
        return {"train": columns}
    rows: dict[str, list[int]] = {}
    for row, written in enumerate(splits):
        part = SPLIT_NAMES.get(written.strip().lower())
        if part is None:
            raise DataError(
                f"{columns.source}: row {str(columns.row_ids[row])!r}: split {written!r} is "
                f"none of train, validation, test"
            )
        rows.setdefault(part, []).append(row)
    return {part: columns.take(np.array(positions)) for part, positions in rows.items()}


def _label_columns(part: Columns) -> list[LabelColumn]:
    written = [part.labels] if part.clean_labels is None else [part.labels, part.clean_labels]
    return [LabelColumn(part.source, part.row_ids, values, part.are_names) for values in written]


def _split(
    part: Columns,
    labels: NDArray[np.int64],
    clean: NDArray[np.int64] | None,
    class_names: tuple[str, ...],
) -> Split:
    try:
        return Split(part.inputs, labels, part.row_ids, class_names, clean, part.weights)
    except DataError as error:
        raise DataError(f"{part.source}: {error}") from error


def encode_labels(
    train: Sequence[LabelColumn],
    others: Sequence[LabelColumn],
    *,
    class_names: Sequence[str] | None = None,
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Class numbers of all columns, the training columns first, and the names of the classes.

    The classes are those of the training columns, in order: as numbers if all labels are whole
    numbers (``1.0`` is one), else by name. If ``class_names`` are given, a text that is one of them
    means it, and whole numbers count them from 0.

    Args:
        train: Columns that say which classes there are.
        others: Columns that may use these classes only.
        class_names: Names of the classes, if they are known.

    Raises:
        DataError: If a label is missing, no whole number or name, negative, not one of the classes,
            or there are fewer than two classes.

    Examples:
        >>> ids = np.array(["a", "b", "c"])
        >>> encode_labels([LabelColumn("pets.csv", ids, ["dog", "cat", "dog"])], [])
        ([array([1, 0, 1])], ('cat', 'dog'))
    """
    columns = [*train, *others]
    if class_names is not None:
        return [_encode_known(column, class_names) for column in columns], tuple(class_names)
    written = [_tidy(column) for column in columns]
    tidy = [
        [_whole(value, column) for value in values]
        for column, values in zip(columns, written, strict=True)
    ]
    if all(isinstance(value, int) for values in tidy for value in values):
        for column, whole in zip(columns, tidy, strict=True):
            _check_not_negative(column, whole)
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
        raise DataError(f"{column.source}: two classes have one name ({_listing(class_names)})")
    _check_several(by_name, column)
    written = _tidy(column)
    whole = [_whole(value, column) for value in written]
    by_count: dict[int | str, int] = {number: number for number in range(len(class_names))}
    if all(isinstance(value, int) for value in written):
        _check_not_negative(column, whole)
        return _encode(column, written, by_count, known=True)
    # What 1.0 and 1 have in common is the 1.
    names = [
        str(value) if str(value) in by_name else str(number)
        for value, number in zip(written, whole, strict=True)
    ]
    is_count = all(isinstance(value, int) for value in whole)
    if is_count and not any(name in by_name for name in names):
        _check_not_negative(column, whole)
        return _encode(column, whole, by_count, known=True)
    return _encode(column, names, by_name, known=True)


def _check_several(numbers: Mapping[int | str, int], column: LabelColumn) -> None:
    if len(numbers) < 2:
        raise DataError(
            f"{column.source}: {_listing(numbers)} is the only class; "
            f"there is nothing to tell apart, give rows of at least two"
        )


def _tidy(column: LabelColumn) -> list[int | str]:
    """The labels as texts without blanks around them, or as whole numbers if they were numbers."""
    values: list[int | str] = []
    for row, value in enumerate(column.values):
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and not column.are_names:
            value = value.strip()
        if value is None or value == "" or (_is_nan(value) and not column.are_names):
            raise column.error(row, "the label is missing; fill it in or remove the row")
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # whole numbers beside a missing one become floats in pandas
        if not isinstance(value, int | str):
            raise column.error(row, f"label {value!r} is neither a name nor a whole number")
        values.append(value if isinstance(value, str) else int(value))
    return values


def _whole(value: int | str, column: LabelColumn) -> int | str:
    """The number that a text is, unless that number would be written otherwise (``007``)."""
    if isinstance(value, int):
        return value
    text = value if column.are_names else re.sub(r"\.0+$", "", value)
    digits = text.removeprefix("-")
    if len(digits) > 18 or not (digits.isascii() and digits.isdigit()):
        return value
    return int(text) if str(int(text)) == text else value


def _is_nan(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() == "nan"
    return isinstance(value, float) and math.isnan(value)


def _check_not_negative(column: LabelColumn, values: Sequence[int | str]) -> None:
    for row, value in enumerate(values):
        if isinstance(value, int) and value < 0:
            raise column.error(row, f"label {value} is negative; number the classes from 0")


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
