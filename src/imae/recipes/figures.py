"""Accuracy against training steps for the cells of a recipe: the paper's training dynamics."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from imae.recipes.outcome import Outcome
from imae.recipes.recipe import Cell
from imae.report.figures import save_lines
from imae.report.series import accuracy_series

_FIGURES = {
    "test": "Test rows (higher is better)",
    "noisy": "Wrong labels learnt (lower is better)",
    "clean": "Right labels learnt (higher is better)",
    "train": "Training rows under their given labels",
    "intact": "Training rows under their true labels (higher is better)",
}
_NAMES_A_LINE = ("Loss", "Method")


def save_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Writes a figure of every measure for the cells that differ in their method alone.

    Args:
        outcomes: What the cells came to, read from the records of their runs.
        folder: Where the files go; made if it is not there.

    Returns:
        The files written; what no run has measured gives none.
    """
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.runs:
            groups.setdefault(place_and_line(outcome.cell)[0], []).append(outcome)
    return [
        path
        for place, alike in groups.items()
        for measure in _FIGURES
        for path in _save(folder, place, measure, alike)
    ]


def place_and_line(cell: Cell) -> tuple[str, str]:
    """The figure a cell belongs to, and the name of its line there, from its columns.

    Examples:
        >>> place_and_line(Cell("a", {"Noise": "40%", "Loss": "IMAE", "T": "8"}, {}))
        ('40%', 'IMAE, 8')
    """
    headings = list(cell.columns)
    first = next((i for i, heading in enumerate(headings) if heading in _NAMES_A_LINE), 0)
    texts = list(cell.columns.values())
    return ", ".join(texts[:first]), ", ".join(filter(None, texts[first:]))


def _save(folder: Path, place: str, measure: str, outcomes: Sequence[Outcome]) -> list[Path]:
    lines = [
        accuracy_series(place_and_line(outcome.cell)[1], outcome.runs, f"{measure}_accuracy")
        for outcome in outcomes
    ]
    lines = [line for line in lines if line.known]
    if not lines:
        return []
    x = sorted({step for line in lines for step, _ in line.known})
    title = _FIGURES[measure]
    return save_lines(
        folder,
        "-".join(filter(None, (_file_name(place), measure))),
        np.array(x, dtype=np.float64),
        {
            line.label: np.array([dict(line.known).get(step, np.nan) for step in x])
            for line in lines
        },
        title=f"{place}: {title}" if place else title,
        x_label="training steps",
        y_label="accuracy in percent",
    )


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
