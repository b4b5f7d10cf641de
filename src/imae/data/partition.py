"""Dividing rows by chance: rows held out, and samples of a given size."""

import numpy as np
from numpy.typing import NDArray

from imae._draws import numpy_generator
from imae.data.split import Split
from imae.errors import ArgumentError, check_integer, check_interval


def hold_out(
    split: Split, fraction: float, seed: int, *, purpose: str = "hold out"
) -> tuple[Split, Split]:
    """The split in two: what stays and what is held out, with the same share of every given label.

    Each class gives its share rounded down; the rows still missing to ``fraction`` of all come
    from the classes that lost most by the rounding. One row of each class always stays. Rows with
    the same content are never divided between the parts, for a network that was trained on a row
    would be tested on it: so a little more or less than the fraction may be held out. If rows with
    the same content are so many that less than half of the fraction could be held out, as in a
    table of few categories, they are divided like all others. Rows keep their order and their ids.

    Args:
        split: Rows to divide.
        fraction: Share of the rows to hold out, in (0, 1).
        seed: Seed of the choice.
        purpose: What the rows are for; each purpose has a choice of its own under a seed.

    Raises:
        ArgumentError: If the fraction is outside (0, 1), or leaves either part without a row.

    Examples:
        >>> from imae.data.features import Table
        >>> labels, names = np.repeat([0, 1], 10), np.arange(20).astype(str)
        >>> table = Table(np.arange(20, dtype=np.float32)[:, None])
        >>> train, held = hold_out(Split(table, labels, names, ("x", "y")), 0.2, seed=1)
        >>> len(train), held.labels.tolist()
        (16, [0, 0, 1, 1])
    """
    check_interval("fraction", fraction, low=0.0, high=1.0, open_low=True, open_high=True)
    wanted = round(fraction * len(split))
    if not 0 < wanted < len(split):
        raise ArgumentError(f"fraction {fraction:g} of {len(split)} rows leaves a part empty")
    totals = np.bincount(split.labels, minlength=split.num_classes)
    counts = _stratified(fraction * totals, wanted, np.maximum(totals - 1, 0))
    if counts.sum() == 0:
        raise ArgumentError(
            f"no row can be held out: each of the {split.num_classes} classes has one row or none"
        )
    order = _class_orders(split, seed, purpose)
    keys = split.inputs.row_keys()
    is_held = _hold_groups(split, order, counts, totals, keys)
    if is_held.sum() * 2 < counts.sum():
        is_held = _hold_groups(split, order, counts, totals, None)
    return split.take(np.flatnonzero(~is_held)), split.take(np.flatnonzero(is_held))


def sample_rows(split: Split, number: int, seed: int, *, purpose: str = "rows") -> Split:
    """Exactly this many rows, with the same share of every given label, in their order.

    Args:
        split: Rows to choose from.
        number: Number of rows, at least 1 and fewer than the split has.
        seed: Seed of the choice.
        purpose: What the rows are for; each purpose has a choice of its own under a seed.

    Raises:
        ArgumentError: If the number is out of range.
    """
    check_integer("number", number, low=1)
    if number >= len(split):
        raise ArgumentError(f"number must be below the {len(split)} rows, got {number}")
    totals = np.bincount(split.labels, minlength=split.num_classes)
    counts = _stratified(number / len(split) * totals, number, totals)
    is_taken = np.zeros(len(split), dtype=bool)
    for rows, count in zip(_class_orders(split, seed, purpose), counts, strict=True):
        is_taken[rows[:count]] = True
    return split.take(np.flatnonzero(is_taken))


def _stratified(
    exact: NDArray[np.floating], wanted: int, limits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Whole numbers near ``exact`` that sum to ``wanted``, if the limits of the classes allow."""
    counts: NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), limits)
    most_lost = np.argsort(counts - exact, kind="stable")
    while (missing := wanted - counts.sum()) > 0:
        open_classes = most_lost[(counts < limits)[most_lost]]
        if len(open_classes) == 0:
            break
        counts[open_classes[:missing]] += 1
    return counts


def _class_orders(split: Split, seed: int, purpose: str) -> list[NDArray[np.int64]]:
    """The rows of each class in an order drawn from the seed."""
    check_integer("seed", seed, low=0)
    generator = numpy_generator(seed, purpose)
    return [
        generator.permutation(np.flatnonzero(split.labels == label))
        for label in range(split.num_classes)
    ]


def _hold_groups(
    split: Split,
    order: list[NDArray[np.int64]],
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    keys: NDArray[np.uint64] | None,
) -> NDArray[np.bool_]:
    """Which rows are held out, if rows of one key stay together; no key means that all differ."""
    groups: dict[int, list[int]] = {}
    if keys is not None:
        _, first, sizes = np.unique(keys, return_index=True, return_counts=True)
        repeated = np.isin(keys, keys[first[sizes > 1]])
        for row in np.flatnonzero(repeated):
            groups.setdefault(int(keys[row]), []).append(int(row))
    is_held = np.zeros(len(split), dtype=bool)
    held = np.zeros(len(totals), dtype=np.int64)
    for label, count in enumerate(counts):
        for row in order[label]:
            if held[label] >= count:
                break
            group = [row] if keys is None else groups.get(int(keys[row]), [row])
            added = np.bincount(split.labels[group], minlength=len(totals))
            fits = held[label] + added[label] <= count and (held + added < totals)[added > 0].all()
            if fits and not is_held[row]:
                is_held[group] = True
                held += added
    return is_held
