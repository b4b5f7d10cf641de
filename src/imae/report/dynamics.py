"""Probability and weight of every training row over the epochs, and their distribution."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError
from imae.records import RunFolder
from imae.report.chart import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDE,
    WIDTH,
    Axis,
    Chart,
    Series,
    line_chart,
)
from imae.report.formats import percent

NUM_BINS = 20


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels that a run trained on.

    Args:
        given: Labels as given, shape (N,).
        clean: True labels if they are known, shape (N,).
        class_names: Names of the classes.
    """

    given: NDArray[np.int64]
    clean: NDArray[np.int64] | None
    class_names: tuple[str, ...]

    @property
    def wrong_share(self) -> float | None:
        """Fraction of the rows whose given label is wrong, if the truth is known."""
        if self.clean is None or len(self.given) == 0:
            return None
        return float((self.given != self.clean).mean())

    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Which rows are clean and which are wrong; all together if the truth is unknown."""
        if self.clean is None:
            return {"all": np.ones(len(self.given), dtype=bool)}
        return {"clean": self.given == self.clean, "wrong": self.given != self.clean}


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows of one kind in one epoch, over one or several runs.

    Args:
        counts: Rows by p, the probability of their given label, in bins of equal width from 0
            to 1, shape (NUM_BINS,).
        weight: Sum of the measured weights.
        num_weights: Rows whose weight was measured.
    """

    counts: NDArray[np.int64]
    weight: float
    num_weights: int

    def __add__(self, other: "Gathered") -> "Gathered":
        return Gathered(
            self.counts + other.counts,
            self.weight + other.weight,
            self.num_weights + other.num_weights,
        )

    @property
    def mean_weight(self) -> float | None:
        """Mean measured weight, None if no row was seen."""
        return self.weight / self.num_weights if self.num_weights else None

    @property
    def shares(self) -> NDArray[np.float64]:
        """Fraction of the rows in each bin, shape (NUM_BINS,); zeros if no row was seen."""
        return self.counts / max(int(self.counts.sum()), 1)


def read_labels(folder: Path) -> Labels | None:
    """The labels of a run folder, or None if the run has not written them yet.

    Raises:
        DataError: If the file is damaged.
    """
    run = RunFolder(folder)
    if not run.has_labels():
        return None
    labels = run.labels()
    return Labels(labels.given, labels.clean, tuple(labels.class_names.tolist()))


def list_epochs(folder: Path) -> list[int]:
    """The epochs whose dynamics a run folder holds, in order."""
    return RunFolder(folder).epochs()


def gather(folder: Path, labels: Labels, epochs: Collection[int]) -> dict[int, dict[str, Gathered]]:
    """Probabilities and weights of the rows of each kind in these epochs of one run.

    Args:
        folder: Run folder.
        labels: Labels of that run, which tell the kinds apart.
        epochs: Epochs to read; one that the folder does not hold is left out.

    Raises:
        DataError: If a file is damaged or has another number of rows than the labels.
    """
    kinds = labels.kinds()
    run = RunFolder(folder)
    present = set(run.epochs())
    gathered: dict[int, dict[str, Gathered]] = {}
    for epoch in epochs:
        if epoch not in present:
            continue
        shown = run.dynamics(epoch)
        if len(shown.margin) != len(labels.given):
            raise DataError(
                f"{folder}: epoch {epoch} has {len(shown.margin)} rows, but there are "
                f"{len(labels.given)} labels; the dynamics do not belong to this run"
            )
        gathered[epoch] = {
            kind: _gather_rows(shown.margin[rows], shown.weight[rows])
            for kind, rows in kinds.items()
        }
    return gathered


def pool(parts: Iterable[Mapping[int, Mapping[str, Gathered]]]) -> dict[int, dict[str, Gathered]]:
    """What several runs gathered, added up by epoch and kind, in order of the epochs."""
    total: dict[int, dict[str, Gathered]] = {}
    for part in parts:
        for epoch, kinds in part.items():
            pooled = total.setdefault(epoch, {})
            for kind, gathered in kinds.items():
                pooled[kind] = pooled[kind] + gathered if kind in pooled else gathered
    return dict(sorted(total.items()))


def _gather_rows(margin: NDArray[np.floating], weight: NDArray[np.floating]) -> Gathered:
    seen = margin[~np.isnan(margin)].astype(np.float64)
    p = (1 + np.tanh(seen / 2)) / 2  # the sigmoid, without an overflow at either end
    counts, _ = np.histogram(p, bins=NUM_BINS, range=(0, 1))
    measured = weight[np.isfinite(weight)].astype(np.float64)
    return Gathered(counts.astype(np.int64), float(measured.sum()), len(measured))


KINDS = ("clean", "wrong", "all")

# Most rows are in the outermost bins; square roots keep the few in between visible.
X_AXIS = Axis(0, 1, LEFT, RIGHT, (0, 0.25, 0.5, 0.75, 1))
WIDE_X_AXIS = replace(X_AXIS, last=WIDE - (WIDTH - RIGHT))
Y_AXIS = Axis(0, 100, BOTTOM, TOP, (0, 1, 10, 25, 50, 100), scale=math.sqrt)


@dataclass(frozen=True)
class Frame:
    """One epoch of one method.

    Args:
        epoch: Its number.
        shares: Fraction of the rows in each bin of p, by the kind of rows.
        outlines: The same as closed paths.
        words: What it shows, in a sentence.
    """

    epoch: int
    shares: Mapping[str, tuple[float, ...]]
    outlines: Mapping[str, str]
    words: str


@dataclass(frozen=True)
class Panel:
    """The frames of one method, one for each stop of the slider."""

    method: str
    kinds: tuple[str, ...]
    frames: tuple[Frame, ...]


def panel(
    method: str, pooled: Mapping[int, Mapping[str, Gathered]], epochs: Sequence[int]
) -> Panel | None:
    """The frames of a method at these epochs, or None if it has no dynamics.

    For an epoch that the method does not have, the last one before it is shown, with its number.

    Args:
        method: Title of the panel.
        pooled: Probabilities and weights of the method's rows, by epoch and kind.
        epochs: Stops of the slider, rising.
    """
    if not pooled:
        return None
    frames = []
    for stop in epochs:
        epoch = max((epoch for epoch in pooled if epoch <= stop), default=min(pooled))
        frames.append(_frame(epoch, pooled[epoch]))
    kinds = tuple(kind for kind in KINDS if any(kind in frame.outlines for frame in frames))
    return Panel(method, kinds, tuple(frames))


def _frame(epoch: int, kinds: Mapping[str, Gathered]) -> Frame:
    shares = {kind: tuple(map(float, gathered.shares)) for kind, gathered in kinds.items()}
    said = [
        f"{percent(sum(parts[NUM_BINS // 2 :]))}% of {'' if kind == 'all' else 'the '}{kind} rows"
        for kind, parts in shares.items()
        if any(parts)
    ]
    words = f"Epoch {epoch}: p of at least 1/2 for {' and '.join(said) or 'no row'}."
    return Frame(epoch, shares, {kind: _outline(parts) for kind, parts in shares.items()}, words)


def _outline(shares: Sequence[float]) -> str:
    steps = [f"M{LEFT} {BOTTOM}"]
    for number, share in enumerate(shares):
        right = X_AXIS.place((number + 1) / NUM_BINS)
        steps.append(f"V{Y_AXIS.place(100 * share):g}H{right:g}")
    return "".join(steps) + f"V{BOTTOM}Z"


def weight_chart(
    method: str, pooled: Mapping[int, Mapping[str, Gathered]], *, is_wide: bool
) -> Chart | None:
    """Mean weight of the rows of each kind over the epochs of one method."""
    present = {kind for parts in pooled.values() for kind in parts}
    lines = [
        Series(
            f"{kind} rows",
            tuple(pooled),
            tuple(parts[kind].mean_weight if kind in parts else None for parts in pooled.values()),
        )
        for kind in KINDS
        if kind in present
    ]
    return line_chart(method, lines, x_label="epoch", unit="", from_zero=True, is_wide=is_wide)


def share_chart(
    pooled: Mapping[str, Mapping[int, Mapping[str, Gathered]]], labels: Sequence[Labels]
) -> Chart | None:
    """Share of the weight that went to wrong rows; None if no wrong row is known."""
    wrong_shares = [share for own in labels if (share := own.wrong_share) is not None]
    if not any(wrong_shares):  # unknown, or no wrong row to give weight to
        return None
    lines = [
        Series(method, tuple(parts), tuple(_wrong_weight(kinds) for kinds in parts.values()))
        for method, parts in pooled.items()
    ]
    return line_chart(
        "Share of the weight that went to wrong rows (lower is better)",
        lines,
        x_label="epoch",
        unit="%",
        limit=(0, 100),
        from_zero=True,
        reference=100 * fmean(wrong_shares),
        is_wide=True,
    )


def _wrong_weight(kinds: Mapping[str, Gathered]) -> float | None:
    total = sum(kinds[kind].weight for kind in ("clean", "wrong") if kind in kinds)
    return 100 * kinds["wrong"].weight / total if "wrong" in kinds and total > 0 else None
