"""Transition matrices that a user gives, and structures that say which entries may be nonzero."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError, check_choice, check_integer
from imae.noise.by_class import as_array

MatrixSource: TypeAlias = str | Sequence[Sequence[float]]


def read_matrix(name: str, source: MatrixSource) -> NDArray[np.float64]:
    """A square matrix from nested lists, or from a ``.csv`` or ``.npy`` file.

    Args:
        name: The argument, for messages.
        source: Rows of numbers, or a path. A ``.csv`` file holds numbers and no header.

    Raises:
        ArgumentError: If it is neither rows of numbers nor such a path, or not square.
        DataError: If the file cannot be read; the message names it and the line.

    Examples:
        >>> read_matrix("matrix", [[0.9, 0.1], [0.2, 0.8]])
        array([[0.9, 0.1],
               [0.2, 0.8]])
    """
    if isinstance(source, str):
        matrix = _from_file(name, Path(source))
        name = f"{name} ({source})"
    else:
        matrix = as_array(name, source)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ArgumentError(f"{name} must have shape (C, C) with C at least 2, got {matrix.shape}")
    if matrix.dtype.kind not in "biuf" or not np.isfinite(matrix).all():
        raise ArgumentError(f"{name} must hold finite numbers")
    return matrix.astype(np.float64)


def is_matrix_file(value: object) -> bool:
    """Whether the value of an argument is the name of a file of numbers.

    Examples:
        >>> is_matrix_file("T.csv"), is_matrix_file("estimate")
        (True, False)
    """
    return isinstance(value, str) and Path(value).suffix in (".csv", ".npy")


def _from_file(name: str, path: Path) -> NDArray[Any]:
    readers = {".csv": _from_csv, ".npy": _from_npy}
    if path.suffix not in readers:
        raise ArgumentError(
            f"{name} must be rows of numbers or a path that ends in .csv or .npy, got {str(path)!r}"
        )
    try:
        return readers[path.suffix](path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _from_csv(path: Path) -> NDArray[Any]:
    rows: list[list[float]] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            for line, cells in enumerate(csv.reader(file), start=1):
                if not cells:
                    continue  # an empty line
                rows.append(_numbers(path, line, cells))
                if len(cells) != len(rows[0]):
                    raise DataError(
                        f"{path}, line {line}: {len(cells)} numbers, but the first line has "
                        f"{len(rows[0])}"
                    )
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: not a text file of numbers: {error}") from error
    return np.array(rows, dtype=np.float64)


def _numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise DataError(
            f"{path}, line {line}: {error}; write numbers only, without a header"
        ) from error


def _from_npy(path: Path) -> NDArray[Any]:
    try:
        # Memory-mapped, so that a header that claims a huge array takes no memory.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not an array file: {reason}") from error
    if not isinstance(mapped, np.ndarray):
        raise DataError(f"{path}: not an array file: it holds several arrays")
    if mapped.ndim != 2 or mapped.shape[0] != mapped.shape[1]:
        raise DataError(f"{path}: the array must have shape (C, C), got {mapped.shape}")
    return np.array(mapped)


KINDS = ("open", "column", "tridiagonal", "block")


@final
class Structure:
    """Where a transition matrix may differ from 0.

    Args:
        kind: "open" for everywhere, "column" for the diagonal and some columns (labels that rows
            of any class are given), "tridiagonal" for neighbours, "block" for classes of one
            group; or a matrix of zeros and ones, as nested lists or as a path.
        columns: For "column", the classes whose columns are open.
        groups: For "block", the classes of each group; every class is in one of them.

    Raises:
        ArgumentError: If the arguments contradict each other.
        DataError: If the file cannot be read.

    Examples:
        >>> Structure("tridiagonal").mask(4).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 1, 0],
               [0, 1, 1, 1],
               [0, 0, 1, 1]])
    """

    def __init__(
        self,
        kind: str | Sequence[Sequence[float]],
        *,
        columns: Sequence[int] | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        name = kind if isinstance(kind, str) else None  # an array cannot be compared
        if (name == "column") != (columns is not None):
            raise ArgumentError("columns must be given for the structure 'column' and no other")
        if (name == "block") != (groups is not None):
            raise ArgumentError("groups must be given for the structure 'block' and no other")
        if isinstance(kind, str) and not is_matrix_file(kind):
            check_choice("structure", kind, (*KINDS, "a .csv or .npy file"))
        self.kind = name if name in KINDS else "given"
        self.columns = columns
        self.groups = groups
        self.given = None if name in KINDS else _given(kind)

    def mask(self, num_classes: int) -> NDArray[np.bool_]:
        """Whether label j may be given where the true one is i, shape (C, C).

        Raises:
            ArgumentError: If the structure does not fit this number of classes.
        """
        place = np.arange(num_classes)
        if self.given is not None:
            if len(self.given) != num_classes:
                raise ArgumentError(
                    f"structure must be for {num_classes} classes, got {self.given.shape}"
                )
            return self.given
        if self.columns is not None:
            columns = _classes("columns", self.columns, num_classes)
            return np.asarray((place[:, None] == place) | np.isin(place, columns))
        if self.groups is not None:
            return _blocks(self.groups, num_classes)
        reach = 1 if self.kind == "tridiagonal" else num_classes
        return np.asarray(np.abs(place[:, None] - place) <= reach)


def _blocks(groups: Sequence[Sequence[int]], num_classes: int) -> NDArray[np.bool_]:
    group_of = np.full(num_classes, -1)
    for number, group in enumerate(groups):
        for member in _classes("groups", group, num_classes):
            if group_of[member] >= 0:
                raise ArgumentError(
                    f"groups must hold every class once, class {member} comes twice"
                )
            group_of[member] = number
    if (group_of < 0).any():
        raise ArgumentError(f"groups must hold every class, class {group_of.argmin()} is in none")
    return np.asarray(group_of[:, None] == group_of)


def _classes(name: str, classes: Sequence[int], num_classes: int) -> list[int]:
    if not isinstance(classes, (list, tuple)) or len(classes) == 0:
        raise ArgumentError(f"{name} must list classes, got {classes!r}")
    for each in classes:
        check_integer(name, each, low=0)
        if each >= num_classes:
            raise ArgumentError(f"{name} must hold classes under {num_classes}, got {each}")
    return list(classes)


def _given(source: str | Sequence[Sequence[float]]) -> NDArray[np.bool_]:
    matrix = read_matrix("structure", source)
    if not np.isin(matrix, (0, 1)).all():
        raise ArgumentError("structure must hold only zeros and ones")
    mask: NDArray[np.bool_] = matrix == 1
    if not mask.any(axis=1).all():
        row = int(mask.any(axis=1).argmin())
        raise ArgumentError(f"structure must leave every class a label, row {row} has none")
    return mask
