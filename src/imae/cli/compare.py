"""`imae compare` and `imae demo`: one recipe for several losses, one table, one page."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from imae.cli.options import DROP, ID_COLUMN, LABEL_COLUMN, data_flags, gather_settings
from imae.errors import import_extra


def compare(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    losses: str = typer.Option(
        "cce,mae,gce,imae_capped", help="Losses, separated by commas; `all` for every one."
    ),
    seeds: int = typer.Option(3, help="Rounds, each under a seed of its own."),
    model: str | None = typer.Option(None, show_default="one that suits the data", help="Network."),
    noise: str | None = typer.Option(None, help="Noise to add, such as symmetric:0.4."),
    seed: int | None = typer.Option(None, show_default="123", help="Seed of the first round."),
    epochs: int | None = typer.Option(None, show_default="40", help="Passes over the data."),
    steps: int | None = typer.Option(None, help="Optimiser steps, instead of epochs."),
    lr: float | None = typer.Option(None, show_default="0.05", help="Learning rate."),
    features: str | None = typer.Option(
        None, help="Pretrained network whose frozen features replace the images."
    ),
    root: Path | None = typer.Option(None, help="Folder that holds a named data set."),
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    config: Path | None = typer.Option(None, help="File of settings, .json or .toml."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`."
    ),
    jobs: int = typer.Option(1, help="Runs at once on this machine."),
    out: Path = typer.Option(Path("compare"), help="Folder for the runs, the table and the page."),
) -> None:
    """Train several losses on DATA with one recipe, and compare them over several seeds.

    The same command resumes where it stopped, and repeats nothing.
    """
    import_extra("pydantic", extra="train")
    from imae.recipes import split_losses

    flags = {
        "data.name": data,
        "model.name": model,
        "noise": noise,
        "seed": seed,
        "train.epochs": epochs,
        "train.steps": steps,
        "optimizer.lr": lr,
        "data.features": features,
        "data.root": None if root is None else str(root),
        **data_flags(label_column, id_column, drop),
    }
    content = gather_settings(config, settings, flags)
    compare_and_report(content, split_losses(losses), seeds=seeds, jobs=jobs, out=out)


def compare_and_report(
    settings: Mapping[str, Any], losses: list[str], *, seeds: int, jobs: int, out: Path
) -> None:
    """Runs a comparison, prints its table and writes the table, the page and the figures."""
    from imae.recipes import compare
    from imae.report import as_text, read_runs, save_figures, save_table, table, write_report

    runs = compare(settings, losses, seeds=seeds, out=out, jobs=jobs, show=True)
    records = read_runs(run.path for run in runs)
    compared = table(records)
    save_table(compared, out / "table.md")
    save_table(compared, out / "table.csv")
    page = write_report(records, out / "report.html")
    save_figures(records, out / "figures")
    typer.echo(as_text(compared, width=Console().width))
    typer.echo(f"wrote {page}; the runs, the table and the figures are in the same folder")


# The library's defaults, the same for every loss, except for four things: the noise, no
# augmentation (so that cross entropy has time to memorise the wrong labels), the budget, and one
# thread a run, so that the numbers do not depend on how many processors there are.
_SETTINGS = {
    "data": {"name": "digits", "augment": False},
    "noise": "symmetric:0.4",
    "train": {"epochs": 20},
    "machine": {"threads": 1},
}
_LOSSES = ["cce", "mae", "gce", "imae_capped"]
_SEEDS = 3


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for the runs, the table and the page."),
) -> None:
    """Train four losses on handwritten digits of which 40% have a wrong label.

    Cross entropy memorises the wrong labels; see its final test accuracy.
    """
    import_extra("pydantic", extra="train")
    compare_and_report(_SETTINGS, _LOSSES, seeds=_SEEDS, jobs=os.cpu_count() or 1, out=out)
