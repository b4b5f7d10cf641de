"""The figures of a comparison as PNG and SVG files, for papers and slides."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from imae.report.comparison import Comparison, compare
from imae.report.dynamics import NUM_BINS, read_labels
from imae.report.figures import save_lines
from imae.report.read import RunRecord
from imae.report.series import ACCURACY_FIGURES, Series
from imae.report.table import group, table


def save_figures(runs: Sequence[RunRecord], folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the figures of the page for every setting, and returns the files.

    They are the accuracies against training steps, the weight that clean and wrong rows received
    and the distribution of p in the last epoch. What no run of a setting knows gives no file.

    Args:
        runs: Records of run folders, finished or not.
        folder: Where the files go; made if it is not there.

    Raises:
        DataError: If the labels or the dynamics of a run are damaged.
        MissingExtraError: If matplotlib is not installed.
    """
    labels = {run.folder: read_labels(run.folder) for run in runs}
    whole = table(runs)
    settings = group(runs, lambda run: run.setting)
    written = []
    for number, (names, alike) in enumerate(settings.items(), start=1):
        # Two settings may differ in what a file name cannot hold; the number keeps them apart.
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
    keys = {title: key.removesuffix("_accuracy") for key, title in ACCURACY_FIGURES}
    for chart in shown.accuracies:
        yield _Figure(
            keys[chart.title], chart.title, chart.x_label, "accuracy in percent", chart.series
        )
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
