"""Line figures as PNG and SVG files."""

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae._extras import import_extra
from imae._files import whole_file
from imae.report.formats import printable

# A palette that stays apart for colour-blind readers (Okabe and Ito), on a white ground.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
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
        folder: Where the files go; made if it is not there.
        name: File name without its ending.
        x: Positions on the horizontal axis, shape (K,).
        lines: Heights, shape (K,), by the label of the line; NaN where there is none.
        title: Above the figure.
        x_label: Under the horizontal axis.
        y_label: Beside the vertical axis.
        y_limit: Range of the vertical axis; from the data if None.

    Returns:
        The files written.
    """
    figure_class = import_extra("matplotlib.figure", extra="plot").Figure
    is_crowded = len(lines) > _MOST_WITHIN
    size = (8.6, max(4.2, 0.2 * len(lines))) if is_crowded else (6.4, 4.2)
    figure = figure_class(figsize=size, layout="constrained")
    axes = figure.subplots()
    for number, heights in enumerate(lines.values()):
        style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
        known = np.isfinite(heights)
        mark = "." if known.sum() == 1 else ""  # a line through one point cannot be seen
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(x[known], heights[known], style, marker=mark, color=colour, label=f"{number}")
    axes.set(xlabel=x_label, ylabel=y_label, ylim=y_limit)
    if x[0] < x[-1]:
        axes.set_xlim(x[0], x[-1])
    axes.grid(alpha=0.3)
    # A name may hold a dollar or begin with an underscore, and neither means anything there.
    axes.set_title(printable(title)).set_parse_math(False)
    legend = figure.legend(loc="outside right upper") if is_crowded else axes.legend()
    for entry, label in zip(legend.get_texts(), lines, strict=True):
        entry.set_text(printable(label))
        entry.set_parse_math(False)
    return _save(figure, Path(folder) / name)


def _save(figure: Any, stem: Path) -> list[Path]:
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
