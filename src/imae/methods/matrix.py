"""Square matrices that a user gives: as nested lists, or as a file."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError
from imae.noise.labels import as_array

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
    return isinstance(value, str) and value.endswith((".csv", ".npy"))


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
            f"{path}, line {line}: {error}; write numbers alone, without a header"
        ) from error


def _from_npy(path: Path) -> NDArray[Any]:
    try:
        # Mapped, so that a header that promises a huge array takes no memory.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not an array file: {reason}") from error
    if mapped.ndim != 2 or mapped.shape[0] != mapped.shape[1]:
        raise DataError(f"{path}: the array must have shape (C, C), got {mapped.shape}")
    return np.array(mapped)
