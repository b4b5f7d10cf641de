"""Accuracy against training steps, as a mean over the seeds of a method."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from imae.report.read import RunRecord

Item = TypeVar("Item")

# The paper's figures: a measure of the history and what it is called.
ACCURACY_FIGURES = (
    ("test_accuracy", "Test rows (higher is better)"),
    ("noisy_accuracy", "Noisy subset (lower is better)"),
    ("clean_accuracy", "Clean subset (higher is better)"),
)


@dataclass(frozen=True)
class Series:
    """A line with the range it is the mean of.

    Args:
        label: What the line is called.
        x: Positions, rising.
        y: Mean at each position, None where it is unknown.
        low: Lowest of the seeds at each position.
        high: Highest of the seeds at each position.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()

    @property
    def known(self) -> list[tuple[float, float]]:
        """Positions and heights where the height is known."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None]


def accuracy_series(label: str, runs: Sequence[RunRecord], key: str) -> Series:
    """The measure ``key`` of the history in percent, over the runs that have reached each step."""
    at: dict[float, list[float]] = {}
    for run in runs:
        for row in run.history:
            values = at.setdefault(row["step"], [])
            if row.get(key) is not None:
                values.append(100 * row[key])
    steps = sorted(at)
    return Series(
        label,
        tuple(steps),
        tuple(fmean(at[step]) if at[step] else None for step in steps),
        tuple(min(at[step], default=None) for step in steps),
        tuple(max(at[step], default=None) for step in steps),
    )


def thin(items: Sequence[Item], *, limit: int) -> list[Item]:
    """At most ``limit`` of the items, evenly spread, the first and the last among them.

    Examples:
        >>> thin(range(100), limit=4)
        [0, 33, 66, 99]
    """
    if len(items) <= limit:
        return list(items)
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]
