"""Line figures as PNG and SVG files."""

import io
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae._extras import import_extra
from imae._files import whole_file

# A palette that stays apart for colour-blind readers (Okabe and Ito), on a white ground.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":")


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
        lines: Heights, shape (K,), by the label of the line.
        title: Above the figure.
        x_label: Under the horizontal axis.
        y_label: Beside the vertical axis.
        y_limit: Range of the vertical axis; from the data if None.

    Returns:
        The files written.
    """
    matplotlib = import_extra("matplotlib", extra="plot")
    figure_class = import_extra("matplotlib.figure", extra="plot").Figure
    figure = figure_class(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (label, heights) in enumerate(lines.items()):
        style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
        axes.plot(x, heights, style, color=_COLOURS[number % len(_COLOURS)], label=label)
    axes.set(title=title, xlabel=x_label, ylabel=y_label, xlim=(x[0], x[-1]), ylim=y_limit)
    axes.grid(alpha=0.3)
    axes.legend()
    written = []
    for ending, facts in (("png", {"Software": None}), ("svg", {"Date": None})):
        picture = io.BytesIO()
        # No date and no random ids: the same numbers give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(picture, format=ending, dpi=150, metadata=facts)
        path = Path(folder) / f"{name}.{ending}"
        with whole_file(path) as file:
            file.write(picture.getvalue())
        written.append(path)
    return written
