"""The picture of abnormal training examples, images or frames, found by the program itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data import load
from imae.errors import DataError, import_extra
from imae.recipes.protocols import CIFAR10, budgeted, method, short
from imae.recipes.recipe import Cell, Outcome, Recipe, merged
from imae.records import RunFolder, RunLabels
from imae.records.files import whole_file

_METHOD = "imae_stable"
_SHORT_ROWS = 5000
_ROWS, _COLUMNS = 3, 8
_RED = "#d62728"


def cells(budget: str) -> tuple[Cell, ...]:
    """One run: synthetic noise, so that what is found can be checked."""
    settings = merged(
        CIFAR10,
        {"model": {"name": "resnet20"}, "noise": "symmetric:0.4"},
        method(_METHOD, rate=0.4),
    )
    cell = Cell(_METHOD, {"Loss": "IMAE, stable"}, settings)
    return budgeted(budget, [cell], short=short(_SHORT_ROWS))


def finish(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Draws the rows that the network disbelieves most, and says how many are really wrong.

    A run folder without its rows, as one that was stored without them, gives nothing, and one whose
    images are not on this machine no picture.
    """
    runs = [run for outcome in outcomes for run in outcome.runs]
    if not runs or not RunFolder(runs[0].folder).epochs():
        return []
    record = RunFolder(runs[0].folder)
    labels = record.labels()
    ranked = np.argsort(mean_margin(record), kind="stable")
    shown = ranked[: _ROWS * _COLUMNS]
    summary = _summary(folder, labels, ranked)
    try:
        pixels = _pictures(runs[0].config["data"], labels.row_ids[shown])
    except DataError:
        return [summary]
    return [summary, _draw(folder, pixels, labels, shown)]


def mean_margin(record: RunFolder) -> NDArray[np.float64]:
    """Mean log-odds of the given label over the second half of the epochs, shape (N,)."""
    epochs = record.epochs()
    late = epochs[len(epochs) // 2 :]
    margins = [record.dynamics(epoch).margin.astype(np.float64) for epoch in late]
    mean: NDArray[np.float64] = np.nanmean(np.stack(margins), axis=0)
    return mean


def _pictures(settings: Any, row_ids: NDArray[np.str_]) -> list[NDArray[np.float64]]:
    """The rows as pictures with values in [0, 1], shape (H, W, C) each."""
    split = load(settings["name"], root=settings["root"], **settings["options"]).train
    position = {name: row for row, name in enumerate(split.row_ids)}
    rows = np.array([position[name] for name in row_ids])
    batch = split.inputs.batch(rows, generator=None).double().numpy()
    if batch.ndim == 2:  # a table of pixels
        side = round(batch.shape[1] ** 0.5)
        batch = batch.reshape(len(batch), 1, side, side)
    low, high = batch.min(axis=(1, 2, 3), keepdims=True), batch.max(axis=(1, 2, 3), keepdims=True)
    span = np.where(high > low, high - low, 1)  # a picture of one colour has none
    return list(((batch - low) / span).transpose(0, 2, 3, 1))


def _summary(folder: Path, labels: RunLabels, ranked: NDArray[np.int64]) -> Path:
    path = folder / "abnormal_examples.md"
    if labels.clean is None:
        shown = ", ".join(map(str, labels.row_ids[ranked[: _ROWS * _COLUMNS]]))
        with whole_file(path) as file:
            file.write(f"Most disbelieved rows, the truth is not known: {shown}.\n".encode())
        return path
    lines = ["| Most disbelieved rows | of these the label is wrong |", "|---:|---:|"]
    wrong = (labels.given != labels.clean)[ranked]
    total = int(wrong.sum())
    for number in sorted({_ROWS * _COLUMNS, 100, total, len(ranked)}):
        if 0 < number <= len(ranked):
            lines.append(f"| {number} | {100 * wrong[:number].mean():.1f}% |")
    lines.append("")
    lines.append(f"{total} of {len(ranked)} training rows have a wrong label.")
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return path


def _draw(
    folder: Path,
    pixels: Sequence[NDArray[np.float64]],
    labels: RunLabels,
    shown: NDArray[np.int64],
) -> Path:
    figure_class = import_extra("matplotlib.figure", extra="plot").Figure
    figure = figure_class(figsize=(1.35 * _COLUMNS, 1.75 * _ROWS), layout="constrained")
    for axes, picture, row in zip(
        figure.subplots(_ROWS, _COLUMNS).flat, pixels, shown, strict=False
    ):
        axes.imshow(picture.squeeze(), cmap="gray")
        axes.set_xticks([])
        axes.set_yticks([])
        given = str(labels.class_names[labels.given[row]])
        true = None if labels.clean is None else str(labels.class_names[labels.clean[row]])
        text = f"given {given}" + ("" if true is None else f"\ntruth {true}")
        axes.set_title(text, fontsize=7).set_parse_math(False)
        if true is not None and given != true:
            for spine in axes.spines.values():
                spine.set(edgecolor=_RED, linewidth=3)
    path = folder / "abnormal_examples.png"
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return path


ABNORMAL_EXAMPLES = Recipe(
    name="abnormal_examples",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected"),
    notes=(
        "The rows whose given label the network believes least, by their mean margin over the "
        "second half of the epochs; a red box marks a label that is wrong. The two rows of video "
        "frames in the paper's picture are drawn by the recipe mars."
    ),
    finish=finish,
)
