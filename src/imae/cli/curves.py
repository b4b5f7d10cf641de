"""`imae curves`: which examples a loss weights most, as a table and as the paper's figures."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from imae.curves import Curve

_PAPER_LOSSES = ("cce", "mae", "imae:T=8")
_NUM_CLASSES = 10
_PAPER_T = (16, 8, 4, 2, 1, 0.5, 0)
# Uncertain against wrong, uncertain against right, wrong against right.
_RATIOS = ((0.5, 0.1), (0.5, 0.9), (0.1, 0.9))


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
    """Show which examples each loss weights most: a table, and the paper's figures."""
    from imae.curves import parse_curve
    from imae.recipes.tables.weights import draw_values, draw_weights

    names = tuple(losses) if losses else _PAPER_LOSSES + tuple(f"imae:T={T:g}" for T in _PAPER_T)
    chosen = {name: parse_curve(name) for name in dict.fromkeys(names)}
    console = Console()
    console.print(_weights(chosen))
    console.print(_bounds(chosen))
    if out is None:
        return
    compared = {name: parse_curve(name) for name in losses or _PAPER_LOSSES}
    by_T = {f"T = {T:g}": parse_curve(f"imae:T={T:g}") for T in _PAPER_T}  # noqa: N806
    for path in [
        *draw_weights(out, "weights", "Weight of an example", compared),
        *draw_weights(out, "imae_weights", "Weight of an example under IMAE", by_T),
        *draw_values(out, "values", compared),
    ]:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)


def _weights(chosen: "dict[str, Curve]") -> Table:
    from imae.curves import impact_ratio, mean_weight, weight_variance

    table = Table(title="Weight w(p) for label probabilities p spread evenly over [0, 1]")
    table.add_column("loss", no_wrap=True)
    for heading in ("mean", "variance", *(f"w({p:g}) / w({other:g})" for p, other in _RATIOS)):
        table.add_column(heading, justify="right")
    for name, curve in chosen.items():
        numbers = [mean_weight(curve), weight_variance(curve)]
        numbers += [impact_ratio(curve, p, other) for p, other in _RATIOS]
        table.add_row(name, *(f"{number:.3f}" for number in numbers))
    return table


def _bounds(chosen: "dict[str, Curve]") -> Table:
    from imae.curves import label_sum_range, loss_supremum

    table = Table(title=f"Bounds of the loss, and its sum over {_NUM_CLASSES} labels")
    table.add_column("loss", no_wrap=True)
    for heading in ("supremum", "smallest sum", "largest sum", "symmetric"):
        table.add_column(heading, justify="right")
    for name, curve in chosen.items():
        low, high = label_sum_range(curve, _NUM_CLASSES)
        is_symmetric = "yes" if math.isclose(low, high, rel_tol=1e-9) else "no"
        numbers = (loss_supremum(curve), low, high)
        table.add_row(name, *(f"{number:.3f}" for number in numbers), is_symmetric)
    return table
