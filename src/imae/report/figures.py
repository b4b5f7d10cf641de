"""Figures of a comparison as PNG and SVG files."""

import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import import_extra
from imae.records.files import printable, whole_file
from imae.report.chart import Series
from imae.report.comparison import Comparison, compare, group, table
from imae.report.dynamics import NUM_BINS, read_labels
from imae.report.read import RunRecord

# A palette that colour-blind readers can distinguish (Okabe and Ito); None is the text's colour.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", None)
_STYLES = ("-", "--", "-.", ":")
_MOST_WITHIN = 10  # labels for which there is room within the axes


def save_lines(
    folder: str | os.PathLike[str],
    name: str,
    x: NDArray[np.float64],
    lines: Mapping[str, NDArray[np.float64]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    y_limit: tuple[float, float] | None = None,
) -> list[Path]:
    """Writes one figure with a labelled line for each entry, as PNG and as SVG.

    Args:
        folder: Where the files go; created if it does not exist.
        name: File name without its extension.
        x: Positions on the horizontal axis, shape (K,).
        lines: Heights, shape (K,), by the label of the line; NaN where there is none. A line
            without any is left out, and keeps its colour for other figures.
        title: Above the figure.
        x_label: Under the horizontal axis.
        y_label: Beside the vertical axis.
        y_limit: Range of the vertical axis; from the data if None.

    Returns:
        The files written.
    """
    figure_class = import_extra("matplotlib.figure", extra="plot").Figure
    labels = [label for label, heights in lines.items() if np.isfinite(heights).any()]
    is_crowded = len(labels) > _MOST_WITHIN
    size = (8.6, max(4.2, 0.2 * len(labels))) if is_crowded else (6.4, 4.2)
    figure = figure_class(figsize=size, layout="constrained")
    axes = figure.subplots()
    text_colour = import_extra("matplotlib", extra="plot").rcParams["text.color"]
    for number, heights in enumerate(lines.values()):
        style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
        known = np.isfinite(heights)
        if not known.any():
            continue
        mark = "." if known.sum() == 1 else ""  # a line through one point cannot be seen
        colour = _COLOURS[number % len(_COLOURS)] or text_colour
        axes.plot(x[known], heights[known], style, marker=mark, color=colour, label=f"{number}")
    axes.set(xlabel=x_label, ylabel=y_label, ylim=y_limit)
    if x[0] < x[-1]:
        axes.set_xlim(x[0], x[-1])
    axes.grid(alpha=0.3)
    # A name may hold a dollar or begin with an underscore, and neither means anything there.
    axes.set_title(printable(title)).set_parse_math(False)
    legend = figure.legend(loc="outside right upper") if is_crowded else axes.legend()
    for entry, label in zip(legend.get_texts(), labels, strict=True):
        entry.set_text(printable(label))
        entry.set_parse_math(False)
    return save_figure(figure, Path(folder) / name)


def save_figure(figure: Any, stem: Path) -> list[Path]:
    """Writes a matplotlib figure as PNG and SVG, with the same bytes every time."""
    matplotlib = import_extra("matplotlib", extra="plot")
    written = []
    for ending, facts in (("png", {"Software": None}), ("svg", {"Date": None})):
        picture = io.BytesIO()
        # No date and no random ids: the same numbers give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": stem.name}), warnings.catch_warnings():
            # A letter that the font lacks is drawn as a box; the picture is still right.
            warnings.filterwarnings("ignore", message="Glyph")
            figure.savefig(picture, format=ending, dpi=150, metadata=facts)
        path = stem.with_name(f"{stem.name}.{ending}")
        with whole_file(path) as file:
            file.write(picture.getvalue())
        written.append(path)
    return written


def save_figures(runs: Sequence[RunRecord], folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the figures of the page for every setting, and returns the files.

    They are the accuracies against training steps, the weight that clean and wrong rows received
    and the distribution of p in the last epoch. There is no file for what no run of a setting has.

    Args:
        runs: Records of run folders, finished or not.
        folder: Where the files go; created if it does not exist.

    Raises:
        DataError: If the labels or the dynamics of a run are damaged.
        MissingExtraError: If matplotlib is not installed.
    """
    labels = {run.folder: read_labels(run.folder) for run in runs}
    whole = table(runs)
    settings = group(runs, lambda run: run.setting)
    written = []
    for number, (names, alike) in enumerate(settings.items(), start=1):
        # Two settings may differ in characters that a file name cannot hold: hence the number.
        prefix = f"{number}-" if len(settings) > 1 else ""
        for figure in _figures(compare(alike, whole, labels)):
            x = sorted({place for line in figure.lines for place, _ in line.known})
            heights = {line.label: dict(line.known) for line in figure.lines}
            written += save_lines(
                folder,
                f"{prefix}{_file_name('-'.join(names))}-{figure.name}",
                np.array(x, dtype=np.float64),
                {
                    label: np.array([known.get(place, np.nan) for place in x])
                    for label, known in heights.items()
                },
                title=figure.title,
                x_label=figure.x_label,
                y_label=figure.y_label,
            )
    return written


@dataclass(frozen=True)
class _Figure:
    name: str
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Series]


def _figures(shown: Comparison) -> Iterator[_Figure]:
    for name, chart in shown.accuracies.items():
        y_label = "T" if name == "T" else "accuracy in percent"
        yield _Figure(name, chart.title, chart.x_label, y_label, chart.series)
    if shown.shares is not None:
        chart = shown.shares
        yield _Figure("weight-share", chart.title, chart.x_label, "percent", chart.series)
    for number, chart in enumerate(shown.weights, start=1):
        name = f"weight-{number}-{_file_name(chart.title)}"
        title = f"Mean weight under {chart.title}"
        yield _Figure(name, title, chart.x_label, "weight ||dL/dz||₁", chart.series)
    centres = tuple((number + 0.5) / NUM_BINS for number in range(NUM_BINS))
    for number, panel in enumerate(shown.panels, start=1):
        last = panel.frames[-1]
        lines = [
            Series(f"{kind} rows", centres, tuple(100 * share for share in last.shares[kind]))
            for kind in panel.kinds
            if kind in last.shares
        ]
        name = f"p-{number}-{_file_name(panel.method)}"
        title = f"Distribution of p under {panel.method}, epoch {last.epoch}"
        yield _Figure(name, title, "probability of the given label", "percent of the rows", lines)


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60]
