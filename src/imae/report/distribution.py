"""The distribution of p over clean and wrong rows, one frame an epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imae.report.chart import BOTTOM, LEFT, RIGHT, TOP, Axis
from imae.report.dynamics import NUM_BINS, Gathered
from imae.report.formats import percent

KINDS = ("clean", "wrong", "all")

# Most rows lie in the outermost bins; square roots keep the few between them visible.
X_AXIS = Axis(0, 1, LEFT, RIGHT, (0, 0.25, 0.5, 0.75, 1))
Y_AXIS = Axis(0, 100, BOTTOM, TOP, (0, 1, 10, 25, 50, 100), is_square_root=True)


@dataclass(frozen=True)
class Frame:
    """One epoch of one method.

    Args:
        epoch: Its number.
        shares: Part of the rows in each bin of p, by the kind of rows.
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

    An epoch that the method does not have shows the last one before it, under that one's number.

    Args:
        method: What the panel is called.
        pooled: What the method's rows went through, by epoch and kind.
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
        f"{percent(sum(parts[NUM_BINS // 2 :]))}% of the {kind} rows"
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
