"""The paper's figures: weight curves and their variances, and abnormal training examples."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from imae.curves import CCE, IMAE, MAE, Curve, imae_weight_variance, weight_variance
from imae.data import load
from imae.errors import DataError, check_choice, import_extra
from imae.losses import curve_loss
from imae.recipes.protocols import BUDGETS, CIFAR10, budgeted, method, short
from imae.recipes.recipe import Cell, Outcome, Recipe, merged, published
from imae.records import RunFolder, RunLabels
from imae.records.files import whole_file, write_file
from imae.report.figures import save_figure, save_lines


def draw_weights(out: Path, name: str, title: str, chosen: dict[str, Curve]) -> list[Path]:
    """Draws the weight of an example against the probability of its label."""
    p = torch.linspace(0, 1, 401, dtype=torch.float64)
    lines = {label: curve.weight(p).numpy() for label, curve in chosen.items()}
    return save_lines(
        out,
        name,
        p.numpy(),
        lines,
        title=title,
        x_label="probability of the given label",
        y_label="weight ||dL/dz||₁",
    )


def draw_values(out: Path, name: str, chosen: dict[str, Curve]) -> list[Path]:
    """Draws the losses themselves, each counted from p = 1/2."""
    # Every value is counted from p = 1/2, the only anchor that IMAE's has.
    p = torch.linspace(0.005, 0.995, 397, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    lines = {
        label: (curve.value(torch.logit(p)) - curve.value(zero)).numpy()
        for label, curve in chosen.items()
    }
    return save_lines(
        out,
        name,
        p.numpy(),
        lines,
        title="Loss, counted from p = 1/2",
        x_label="probability of the given label",
        y_label="L(p) - L(1/2)",
    )


_STAGES = ("rows x", "features f", "logits z", "softmax p", "loss L")
_FORWARD = ("network θ", "last layer W", "softmax", "given label y")
_BACKWARD = ("dL/df · df/dθ", "dL/dz · dz/df", "dL/dp · dp/dz", "dL/dp")


def draw_pipeline(out: Path) -> list[Path]:
    """Draws how a loss reaches the weights: only through the gradient of the logits."""
    figure = import_extra("matplotlib.figure", extra="plot").Figure(figsize=(8, 2.2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.5, 4.5), ylim=(-1, 1))
    axes.axis("off")
    for place, text in enumerate(_STAGES):
        colour = "#ffd8a8" if text.startswith("logits") else "#e7f0fa"
        box = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": "#33506b"}
        axes.text(place, 0, text, ha="center", va="center", color="black", bbox=box)
    for place, (forward, backward) in enumerate(zip(_FORWARD, _BACKWARD, strict=True)):
        for height, ends, text in ((0.45, (0, 1), forward), (-0.45, (1, 0), backward)):
            start, end = ((place + each, height) for each in ends)
            arrow = {"arrowstyle": "->", "color": "#33506b"}
            axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
            axes.text(place + 0.5, 1.5 * height, text, ha="center", va="center", fontsize=8)
    axes.text(2, -0.95, "weight of a row: ||dL/dz||₁", ha="center", va="bottom", fontsize=9)
    return save_figure(figure, out / "pipeline")


_T = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0)
_CURVES: dict[str, tuple[str, Curve]] = {
    "cce": ("CCE", CCE()),
    "mae": ("MAE", MAE()),
    **{f"imae-{T:g}": (f"IMAE, T = {T:g}", IMAE(T)) for T in _T},
}
_PRINTED_DIGITS = {"cce": 2, "mae": 2}  # the captions; the table of IMAE has three
_NOTE = (
    "The paper draws IMAE's loss as an integral up to p = 1, which does not exist: the weight "
    "tends to 1 there. Here every loss is counted from p = 1/2."
)


def weight_cells(budget: str) -> tuple[Cell, ...]:
    """None: there is nothing to train."""
    check_choice("budget", budget, tuple(BUDGETS))
    return ()


def variances() -> dict[str, tuple[float, float, int]]:
    """Ours, the paper's and the paper's number of decimals, by the name of the curve."""
    found = {}
    for name, (_, curve) in _CURVES.items():
        if isinstance(curve, IMAE):
            ours = imae_weight_variance(float(curve.T))
        else:
            ours = weight_variance(curve)
        found[name] = (ours, published("weights", name)["variance"], _PRINTED_DIGITS.get(name, 3))
    return found


_SUMMARISED = ("cce", "mae", "imae-8")
_PLACES = (0.01, 0.1, 0.5, 0.9, 0.99)  # probabilities of the given label


_OTHER = 0.25  # share of the first of two other classes in the remaining probability
_COLUMNS = (
    "dL/dp_y",
    "dL/dp_j",
    "dp_y/dz_y",
    "dp_y/dz_j",
    "dL/dz_y",
    "dL/dz_j",
    "dL/dz of the others",
    "weight",
)


def gradients(curve: Curve, p: float) -> tuple[float, ...]:
    """The columns of the paper's summary by autograd, for three classes; y is the first.

    The label has the probability p, class j a quarter of the rest, and the third class the
    remainder. The columns are dL/dp_y, dL/dp_j, dp_y/dz_y, dp_y/dz_j, dL/dz_y, dL/dz_j, the sum of
    dL/dz over both other classes, and the L1 norm of dL/dz.
    """
    start = torch.tensor([p, _OTHER * (1 - p), (1 - _OTHER) * (1 - p)], dtype=torch.float64)
    probabilities = start.clone().requires_grad_(True)
    # The loss sees the softmax only through p_y and does not depend on the others.
    value = curve.value(torch.logit(probabilities[0]))
    (by_p,) = torch.autograd.grad(value, probabilities)
    logits = start.log().requires_grad_(True)
    (label_by_z,) = torch.autograd.grad(logits.softmax(0)[0], logits)
    loss = curve_loss(logits[None], torch.zeros(1, dtype=torch.int64), curve, reduction="sum")
    (by_z,) = torch.autograd.grad(loss, logits)
    return (
        *by_p[:2].tolist(),
        *label_by_z[:2].tolist(),
        *by_z[:2].tolist(),
        float(by_z[1:].sum()),
        float(by_z.abs().sum()),
    )


def printed(name: str, p: float, T: float = 8.0) -> tuple[float, ...]:
    """The same columns by the formulas in the paper's summary."""
    other = _OTHER * (1 - p)
    weight = {"cce": 2 * (1 - p), "mae": 4 * p * (1 - p), "imae-8": math.exp(T * p * (1 - p))}[name]
    by_p = {"cce": -1 / p, "mae": -2.0, "imae-8": weight / (2 * p * (p - 1))}[name]
    by_label = {"cce": p - 1, "mae": 2 * p * (p - 1), "imae-8": weight / -2}[name]
    by_other = {"cce": other, "mae": 2 * p * other, "imae-8": weight * other / (2 * (1 - p))}[name]
    return by_p, 0.0, p * (1 - p), -p * other, by_label, by_other, -by_label, weight


def _write_summary(folder: Path) -> Path:
    """The paper's table of derivatives, each number by its formula and by autograd."""
    lines = [
        f"| Loss | p_y | {' | '.join(_COLUMNS)} | Equal |",
        f"|---|---:|{'---:|' * len(_COLUMNS)}---|",
    ]
    for name in _SUMMARISED:
        heading, curve = _CURVES[name]
        for p in _PLACES:
            ours, paper = gradients(curve, p), printed(name, p)
            is_equal = all(map(lambda a, b: math.isclose(a, b, rel_tol=1e-9), ours, paper))
            numbers = " | ".join(f"{number:.4f}" for number in ours)
            lines.append(f"| {heading} | {p:g} | {numbers} | {'yes' if is_equal else 'NO'} |")
    note = (
        "Measured by autograd; equal means equal to the paper's formula to nine digits. Class j "
        "has a quarter of what the label leaves. The sum over the others is not in the paper."
    )
    path = folder / "summary.md"
    write_file(path, "\n".join([*lines, "", note]) + "\n")
    return path


def finish_weights(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:  # noqa: ARG001
    """Writes the variances beside the paper's, the summary of gradients, and the five figures."""
    lines = [
        "| Loss | Variance of the weight | Paper | Equal to the printed digits |",
        "|---|---:|---:|---|",
    ]
    for name, (ours, paper, digits) in variances().items():
        is_equal = round(ours, digits) == paper
        lines.append(
            f"| {_CURVES[name][0]} | {ours:.6f} | {paper:g} | {'yes' if is_equal else 'NO'} |"
        )
    path = folder / "variances.md"
    write_file(path, "\n".join([*lines, "", _NOTE]) + "\n")
    three = {
        heading: curve for heading, curve in map(_CURVES.__getitem__, ("cce", "mae", "imae-8"))
    }
    by_t: dict[str, Curve] = {f"T = {T:g}": IMAE(T) for T in _T}
    return [
        path,
        _write_summary(folder),
        *draw_weights(folder, "weights", "Weight of an example", three),
        *draw_weights(folder, "imae_weights", "Weight of an example under IMAE", by_t),
        *draw_values(folder, "values", three),
        *draw_values(folder, "imae_values", by_t),
        *draw_pipeline(folder),
    ]


WEIGHTS = Recipe(
    name="weights",
    cells=weight_cells,
    notes=_NOTE,
    finish=finish_weights,
)


_METHOD = "imae_stable"
_SHORT_ROWS = 5000
_PICTURE_ROWS, _PICTURE_COLUMNS = 3, 8
_RED = "#d62728"


def abnormal_cells(budget: str) -> tuple[Cell, ...]:
    """One run: synthetic noise, so that what is found can be checked."""
    settings = merged(
        CIFAR10,
        {"model": {"name": "resnet20"}, "noise": "symmetric:0.4"},
        method(_METHOD, rate=0.4),
    )
    cell = Cell(_METHOD, {"Loss": "IMAE, stable"}, settings)
    return budgeted(budget, [cell], short=short(_SHORT_ROWS))


def draw_abnormal(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Draws the rows that the network disbelieves most, and says how many are really wrong.

    Rows that a short run did not reach are left out. For a run folder that was stored without
    its rows nothing is written, and for one whose images are not on this machine no picture.
    """
    runs = [run for outcome in outcomes for run in outcome.runs]
    if not runs or not RunFolder(runs[0].folder).epochs():
        return []
    record = RunFolder(runs[0].folder)
    labels, margins = record.labels(), mean_margin(record)
    ranked = np.argsort(margins, kind="stable")[: int((~np.isnan(margins)).sum())]  # NaN is last
    if not len(ranked):
        return []
    shown = ranked[: _PICTURE_ROWS * _PICTURE_COLUMNS]
    summary = _summary(folder, labels, ranked)
    try:
        pixels = _pictures(runs[0].config["data"], labels.row_ids[shown])
    except DataError:
        return [summary]
    return [summary, _draw(folder, pixels, labels, shown)]


def mean_margin(record: RunFolder) -> NDArray[np.float64]:
    """Mean log-odds of the given label over the second half of the epochs, shape (N,).

    NaN for a row that was not trained on in these epochs.
    """
    epochs = record.epochs()
    late = epochs[len(epochs) // 2 :]
    margins = np.stack([record.dynamics(epoch).margin.astype(np.float64) for epoch in late])
    is_seen = ~np.isnan(margins).all(axis=0)
    mean = np.full(margins.shape[1], np.nan)
    mean[is_seen] = np.nanmean(margins[:, is_seen], axis=0)
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
    left_out = len(labels.given) - len(ranked)
    end = f"\n{left_out} rows that were not trained on are left out.\n" if left_out else ""
    if labels.clean is None:
        shown = ", ".join(map(str, labels.row_ids[ranked[: _PICTURE_ROWS * _PICTURE_COLUMNS]]))
        write_file(path, f"Most disbelieved rows, the truth is not known: {shown}.\n{end}")
        return path
    lines = ["| Most disbelieved rows | of these the label is wrong |", "|---:|---:|"]
    wrong = (labels.given != labels.clean)[ranked]
    total = int(wrong.sum())
    for number in sorted({_PICTURE_ROWS * _PICTURE_COLUMNS, 100, total, len(ranked)}):
        if 0 < number <= len(ranked):
            lines.append(f"| {number} | {100 * wrong[:number].mean():.1f}% |")
    lines.append("")
    lines.append(f"{total} of {len(ranked)} training rows have a wrong label.")
    write_file(path, "\n".join(lines) + "\n" + end)
    return path


def _draw(
    folder: Path,
    pixels: Sequence[NDArray[np.float64]],
    labels: RunLabels,
    shown: NDArray[np.int64],
) -> Path:
    figure_class = import_extra("matplotlib.figure", extra="plot").Figure
    figure = figure_class(
        figsize=(1.35 * _PICTURE_COLUMNS, 1.75 * _PICTURE_ROWS), layout="constrained"
    )
    grid = figure.subplots(_PICTURE_ROWS, _PICTURE_COLUMNS).flat
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    for axes, picture, row in zip(grid, pixels, shown, strict=False):
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
    cells=abnormal_cells,
    measures=("best", "final", "noisy", "clean", "corrected"),
    notes=(
        "The rows whose given label the network believes least, by their mean margin over the "
        "second half of the epochs; a red box marks a label that is wrong. The two rows of video "
        "frames in the paper's picture are drawn by the recipe mars."
    ),
    finish=draw_abnormal,
)
