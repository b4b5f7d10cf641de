"""`imae curves`: which examples a loss listens to, as a table and as the paper's figures."""

from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.table import Table

from imae.curves import Curve, impact_ratio, mean_weight, parse_curve, weight_variance
from imae.report.figures import save_lines

_PAPER_LOSSES = ("cce", "mae", "imae:T=8")
_PAPER_T = (16, 8, 4, 2, 1, 0.5, 0)
# Uncertain against wrong, uncertain against right, wrong against right.
_RATIOS = ((0.5, 0.1), (0.5, 0.9), (0.1, 0.9))


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command(name="curves")(curves)


def curves(
    losses: list[str] | None = typer.Argument(
        None,
        metavar="[LOSS]...",
        help="Losses to compare, such as `gce` or `imae:T=16`. Default: those of the paper.",
    ),
    out: Path | None = typer.Option(
        None, help="Folder for the figures, PNG and SVG. Default: none."
    ),
) -> None:
    """Shows which examples each loss listens to: mean weight, variance, impact ratios, figures."""
    names = tuple(losses) if losses else _PAPER_LOSSES + tuple(f"imae:T={T:g}" for T in _PAPER_T)
    chosen = {name: parse_curve(name) for name in dict.fromkeys(names)}
    console = Console()
    console.print(_table(chosen))
    if out is None:
        return
    compared = {name: parse_curve(name) for name in losses or _PAPER_LOSSES}
    by_T = {f"T = {T:g}": parse_curve(f"imae:T={T:g}") for T in _PAPER_T}  # noqa: N806
    for path in [
        *_draw_weights(out, "weights", "Weight of an example", compared),
        *_draw_weights(out, "imae_weights", "Weight of an example under IMAE", by_T),
        *_draw_values(out, "values", compared),
    ]:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)


def _table(chosen: dict[str, Curve]) -> Table:
    table = Table(title="Weight w(p) for label probabilities p spread evenly over [0, 1]")
    table.add_column("loss", no_wrap=True)
    for heading in ("mean", "variance", *(f"w({p:g}) / w({other:g})" for p, other in _RATIOS)):
        table.add_column(heading, justify="right")
    for name, curve in chosen.items():
        numbers = [mean_weight(curve), weight_variance(curve)]
        numbers += [impact_ratio(curve, p, other) for p, other in _RATIOS]
        table.add_row(name, *(f"{number:.3f}" for number in numbers))
    return table


def _draw_weights(out: Path, name: str, title: str, chosen: dict[str, Curve]) -> list[Path]:
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


def _draw_values(out: Path, name: str, chosen: dict[str, Curve]) -> list[Path]:
    # Every value is shown from p = 1/2 on, as IMAE's has no other anchor.
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
