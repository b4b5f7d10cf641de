"""The geometry of line charts, and accuracy against training steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from imae.report.formats import shorten_middle, thin
from imae.report.read import RunRecord


@dataclass(frozen=True)
class Series:
    """A line, and the range whose mean it is.

    Args:
        label: Name of the line.
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


def accuracy_series(
    label: str, runs: Sequence[RunRecord], key: str, *, factor: float = 100
) -> Series:
    """The value ``key`` of the history, by default in percent, over the runs at each step."""
    at: dict[float, list[float]] = {}
    for run in runs:
        for row in run.history:
            values = at.setdefault(row["step"], [])
            if row.get(key) is not None:
                values.append(factor * row[key])
    steps = sorted(at)
    return Series(
        label,
        tuple(steps),
        tuple(fmean(at[step]) if at[step] else None for step in steps),
        tuple(min(at[step], default=None) for step in steps),
        tuple(max(at[step], default=None) for step in steps),
    )


WIDTH, HEIGHT = 360, 236
WIDE = 960  # pixels of a chart that has a row to itself
LEFT, RIGHT, TOP, BOTTOM = 46, 350, 12, 196
_TICKS = 5
_MOST_LOG_TICKS = 7
_MOST_NAMED = 6  # lines that have room for their name
_NAME_HEIGHT = 12
_NAME_LENGTH = 16
_LETTER = 6.8  # pixels of a letter of a name
_NAME_GAP = 10  # from the end of a line to its name
_MOST_HOVERED = 200
_MOST_POINTS = 400  # a line of more has more points than a screen has columns


@dataclass(frozen=True)
class Axis:
    """A range of numbers mapped to a range of pixels.

    Args:
        low: Number at the first pixel.
        high: Number at the last pixel.
        first: Where the axis begins.
        last: Where it ends.
        ticks: Numbers that are written beside it.
        scale: Function whose values are evenly spaced, such as ``math.sqrt`` or ``math.log``.
    """

    low: float
    high: float
    first: float
    last: float
    ticks: tuple[float, ...]
    scale: Callable[[float], float] = float

    def place(self, number: float) -> float:
        """Pixel of this number."""
        low, high = self.scale(self.low), self.scale(self.high)
        part = (self.scale(number) - low) / (high - low)
        return round(self.first + (self.last - self.first) * part, 1)

    def marks(self) -> list[tuple[float, str]]:
        """Pixel and text of each tick."""
        return [(self.place(tick), tick_text(tick)) for tick in self.ticks]


@dataclass(frozen=True)
class Mark:
    """One drawn line: its number among the series, its label, its path and that of its range.

    ``name_at`` is the place of its name beside its right end, None if names have no room, and
    ``leader`` the path from the end to the name.
    """

    series: int
    label: str
    path: str
    band: str
    name_at: tuple[float, float] | None = None
    leader: str = ""


@dataclass(frozen=True)
class Chart:
    """A line chart, ready to be drawn.

    Args:
        title: What is drawn.
        description: The same in words, for screen readers.
        x_label: Under the horizontal axis.
        x: Horizontal axis.
        y: Vertical axis.
        marks: The lines.
        series: What they were drawn from.
        reference: A height that is drawn as a thin line across, in pixels.
        width: Pixels from side to side.
        wide: The same for a wide screen, if the chart has a row for itself.
    """

    title: str
    description: str
    x_label: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    series: tuple[Series, ...]
    reference: float | None = None
    width: int = WIDTH
    wide: "Chart | None" = None

    @property
    def sizes(self) -> "tuple[Chart, ...]":
        """The chart and, where there is one, that for a wide screen."""
        return (self,) if self.wide is None else (self, self.wide)

    @property
    def hovered(self) -> dict[str, object]:
        """What the pointer shows: positions in pixels, their text, heights of each line."""
        every = sorted({x for line in self.series for x, _ in line.known})
        places = thin(every, limit=_MOST_HOVERED)
        heights = [dict(line.known) for line in self.series]
        return {
            "x": [self.x.place(place) for place in places],
            "at": [f"{self.x_label} {place:,.0f}" for place in places],
            "lines": [
                [None if (y := known.get(x)) is None else f"{y:.4g}" for x in places]
                for known in heights
            ],
        }


def line_chart(
    title: str,
    lines: Sequence[Series],
    *,
    x_label: str,
    unit: str,
    limit: tuple[float, float] = (-math.inf, math.inf),
    from_zero: bool = False,
    reference: float | None = None,
    is_wide: bool = False,
) -> Chart | None:
    """The chart of these lines, or None if none of them has a known height.

    Args:
        title: What is drawn.
        lines: The lines; their order is the number of their colour.
        x_label: Under the horizontal axis.
        unit: Appended to every number in the description.
        limit: Range within which the vertical axis must stay.
        from_zero: Whether the vertical axis starts at 0 even if every height is far from it.
        reference: Height of a thin line across the chart.
        is_wide: Whether the chart has a row to itself and is drawn for wide screens too.
    """
    points = [point for line in lines for point in line.known]
    if not points:
        return None
    heights = [height for _, height in points] + [0.0] * from_zero
    if reference is not None:
        heights.append(reference)
    edges = [edge for line in lines for edge in (*line.low, *line.high) if edge is not None]
    x_high = max(max(x for x, _ in points), 1)
    y = round_axis([*heights, *edges], limit)
    said = [f"{line.label} ends at {line.known[-1][1]:.3g}{unit}" for line in lines if line.known]
    margin = _margin(lines)

    def drawn(width: int, wide: Chart | None = None) -> Chart:
        last = width - (WIDTH - RIGHT) - margin
        x = Axis(0, x_high, LEFT, last, ticks_between(0, x_high))
        marks = [_mark(number, line, x, y) for number, line in enumerate(lines)]
        return Chart(
            title,
            "; ".join(said) + ".",
            x_label,
            x,
            y,
            _named(marks, lines, x, y) if margin else tuple(marks),
            tuple(lines),
            None if reference is None else y.place(reference),
            width,
            wide,
        )

    return drawn(WIDTH, drawn(WIDE) if is_wide else None)


def _name(label: str) -> str:
    """A label, without its middle if it is long: methods often differ in their last setting."""
    return shorten_middle(label, limit=_NAME_LENGTH)


def _margin(lines: Sequence[Series]) -> float:
    """Pixels that the names of these lines need beside them, 0 if they are not named there."""
    names = [_name(line.label) for line in lines if line.known]
    if not 1 < len(names) <= _MOST_NAMED:
        return 0
    return max(_NAME_GAP + _LETTER * max(map(len, names)) - (WIDTH - RIGHT), 0)


def _named(marks: Sequence[Mark], lines: Sequence[Series], x: Axis, y: Axis) -> tuple[Mark, ...]:
    """The marks with places for their names beside their last points, none over another."""
    ends = {
        mark.series: (x.place(line.known[-1][0]), y.place(line.known[-1][1]))
        for mark, line in zip(marks, lines, strict=True)
        if line.known
    }
    order = sorted(ends, key=lambda series: ends[series][1])
    heights = dict(zip(order, spread([ends[each][1] for each in order]), strict=True))
    return tuple(
        replace(
            mark,
            label=_name(mark.label),
            name_at=(round(ends[mark.series][0] + _NAME_GAP, 1), heights[mark.series]),
            leader=_leader(*ends[mark.series], heights[mark.series]),
        )
        if mark.series in ends
        else mark
        for mark in marks
    )


def _leader(x: float, y: float, height: float) -> str:
    return f"M{x} {y}L{round(x + _NAME_GAP - 2, 1)} {height}"


def spread(heights: Sequence[float]) -> list[float]:
    """The rising heights of names, moved apart as little as possible and kept in the chart.

    Examples:
        >>> spread([50.0, 100.0, 102.0])
        [50.0, 95.0, 107.0]
    """
    groups: list[list[float]] = []  # names that touch, with the room of those above taken off
    for number, height in enumerate(heights):
        groups.append([height - number * _NAME_HEIGHT])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    lowest = BOTTOM - (len(heights) - 1) * _NAME_HEIGHT
    places = [min(max(fmean(group), TOP), lowest) for group in groups for _ in group]
    return [round(place + number * _NAME_HEIGHT, 1) for number, place in enumerate(places)]


def ticks_between(low: float, high: float) -> tuple[float, ...]:
    """About five round numbers from ``low`` to ``high``.

    Examples:
        >>> ticks_between(0, 4200)
        (0.0, 1000.0, 2000.0, 3000.0, 4000.0)
    """
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * nice for nice in (1, 2, 5, 10) if unit * nice >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """A few round numbers from ``low`` to ``high``, both positive, for a logarithmic scale.

    Examples:
        >>> log_ticks(0.004, 0.3)
        (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
        >>> log_ticks(1e-6, 1)
        (1e-06, 1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0)
        >>> log_ticks(0.05, 0.09)
        (0.05, 0.06, 0.07, 0.08, 0.09)
    """
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    for digits, every in (((1, 2, 5), 1), ((1,), 1), ((1,), 1 + (last - first) // _TICKS)):
        ticks = tuple(
            float(f"{digit}e{power}")
            for power in range(first, last + 1, every)
            for digit in digits
            if low <= float(f"{digit}e{power}") <= high
        )
        if len(ticks) <= _MOST_LOG_TICKS:
            break
    return ticks if len(ticks) > 2 else ticks_between(low, high)


def tick_text(number: float) -> str:
    """A tick as short as it can be.

    Examples:
        >>> [tick_text(number) for number in (0.25, 5.0, 2500.0, 40000.0, 2000000.0)]
        ['0.25', '5', '2,500', '40k', '2M']
    """
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if abs(number) >= 10 * size or (letter == "M" and abs(number) >= size):
            return f"{number / size:g}{letter}"
    return f"{number:,.0f}" if number == round(number) else f"{number:g}"


def round_axis(heights: Sequence[float], limit: tuple[float, float]) -> Axis:
    """The vertical axis of these heights: from one round number to another, within the limit."""
    low, high = min(heights), max(heights)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    ticks = ticks_between(low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    low, high = max(low, limit[0]), min(high, limit[1])
    return Axis(low, high, BOTTOM, TOP, ticks_between(low, high))


def _mark(number: int, line: Series, x: Axis, y: Axis) -> Mark:
    every = max(1, math.ceil(len(line.x) / _MOST_POINTS))
    # Counted from the end, so that the last point is always included.
    places = range((len(line.x) - 1) % every, len(line.x), every)
    path, band = [], []
    for run in _unbroken(line, places):
        spots = [f"{x.place(line.x[place])} {y.place(line.y[place] or 0)}" for place in run]
        # A single point would not be drawn: a stroke of length 0 with round ends is a dot.
        path.append("M" + "L".join(spots) + ("h0" if len(spots) == 1 else ""))
        if line.low and any(line.low[place] != line.high[place] for place in run):
            top = [f"{x.place(line.x[place])} {y.place(line.high[place] or 0)}" for place in run]
            bottom = [f"{x.place(line.x[place])} {y.place(line.low[place] or 0)}" for place in run]
            band.append("M" + "L".join([*top, *reversed(bottom)]) + "Z")
    return Mark(number, line.label, "".join(path), "".join(band))


def _unbroken(line: Series, places: range) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for place in places:
        if line.y[place] is not None:
            runs[-1].append(place)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
