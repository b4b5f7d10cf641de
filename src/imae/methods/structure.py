"""Which ways a label can go wrong at all: masks over transition matrices."""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from imae._checks import check_choice, check_integer
from imae.errors import ArgumentError
from imae.methods.matrix import is_matrix_file, read_matrix

KINDS = ("open", "column", "tridiagonal", "block")


@final
class Structure:
    """Where a transition matrix may differ from 0.

    Args:
        kind: "open" for everywhere, "column" for the diagonal and some columns (labels that rows
            of any class are given), "tridiagonal" for neighbours, "block" for classes of one
            group; or a matrix of zeros and ones, as nested lists or as a path.
        columns: For "column", the classes whose columns are open.
        groups: For "block", the classes of each group; every class stands in one of them.

    Raises:
        ArgumentError: If the parts do not fit together.
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
        if (kind == "column") != (columns is not None):
            raise ArgumentError("columns must be given for the structure 'column' and no other")
        if (kind == "block") != (groups is not None):
            raise ArgumentError("groups must be given for the structure 'block' and no other")
        if isinstance(kind, str) and not is_matrix_file(kind):
            check_choice("structure", kind, (*KINDS, "a .csv or .npy file"))
        self.kind = kind if kind in KINDS else "given"
        self.columns = columns
        self.groups = groups
        self.given = None if kind in KINDS else _given(kind)

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
        raise ArgumentError("structure must hold zeros and ones alone")
    mask: NDArray[np.bool_] = matrix == 1
    if not mask.any(axis=1).all():
        row = int(mask.any(axis=1).argmin())
        raise ArgumentError(f"structure must leave every class a label, row {row} has none")
    return mask
