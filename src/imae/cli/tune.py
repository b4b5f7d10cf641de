"""`imae tune`: T, the cap and other settings chosen by a search."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from imae.cli.options import DROP, ID_COLUMN, LABEL_COLUMN, data_flags, gather_settings, print_table
from imae.errors import ArgumentError, import_extra

if TYPE_CHECKING:
    from imae.tune import Outcome

_SHOWN = 5  # trials in the table


def tune(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    trials: int | None = typer.Option(
        None, show_default="20, without --minutes", help="Trials in all."
    ),
    minutes: float | None = typer.Option(None, help="Time to search, instead of trials."),
    clean_validation: Path | None = typer.Option(
        None, help="Rows whose labels are right, in the form of DATA, to choose by."
    ),
    losses: str | None = typer.Option(
        None, "--losses", show_default="imae_capped", help="Losses to choose from, with commas."
    ),
    lr: str | None = typer.Option(
        None, metavar="LOW:HIGH", help="Range of the learning rate. Default: it is not searched."
    ),
    storage: str | None = typer.Option(
        None,
        metavar="URL",
        help="Database for several machines, such as postgresql://user@host/name.",
    ),
    study: str = typer.Option("imae", help="Name of the search in the database."),
    model: str | None = typer.Option(None, show_default="one that suits the data", help="Network."),
    noise: str | None = typer.Option(None, help="Noise to add, such as symmetric:0.4."),
    labels: Path | None = typer.Option(
        None, help="File of given labels by row id, in place of those in DATA."
    ),
    seed: int | None = typer.Option(None, show_default="123", help="Seed of every draw."),
    epochs: int | None = typer.Option(None, show_default="40", help="Passes over the data."),
    steps: int | None = typer.Option(None, help="Optimiser steps, instead of epochs."),
    features: str | None = typer.Option(
        None, help="Pretrained network, or wordllama for texts, whose features replace the rows."
    ),
    root: Path | None = typer.Option(None, help="Folder that holds a named data set."),
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    config: Path | None = typer.Option(None, help="File of settings, .json or .toml."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`; it is not searched."
    ),
    out: Path = typer.Option(Path("tune"), help="Folder for the runs, the result and the page."),
) -> None:
    """Choose T, the cap and, if asked, the learning rate and the loss by a search.

    Without --clean-validation the choice is made on held-out given labels. The same command
    resumes a search that was stopped, and repeats nothing.
    """
    import_extra("pydantic", extra="train")
    import_extra("optuna", extra="tune")
    from imae.train import build_config
    from imae.tune import tune as search

    flags = {
        "data.name": data,
        "data.labels": labels,
        "data.features": features,
        "data.root": root,
        **data_flags(label_column, id_column, drop),
        "model.name": model,
        "noise": noise,
        "seed": seed,
        "train.epochs": epochs,
        "train.steps": steps,
    }
    outcome = search(
        build_config(gather_settings(config, settings, flags)),
        trials=trials,
        minutes=minutes,
        losses=[name for name in (losses or "").split(",") if name],
        lr=None if lr is None else _range(lr),
        clean_validation=clean_validation,
        out=out,
        storage=storage,
        study=study,
        say=lambda line: typer.echo(f"imae: {line}", err=True),
    )
    _show(outcome)


def _show(outcome: "Outcome") -> None:
    from imae.tune.page import short

    table = Table("trial", "settings", "clean labels" if outcome.is_clean else "held-out labels")
    ranked = sorted(outcome.trials, key=lambda each: (-(each.accuracy or 0), each.number))
    for trial in dict.fromkeys([outcome.chosen, *ranked[:_SHOWN]]):
        words = [
            f"{key.rpartition('.')[2]} {short(value)}" for key, value in trial.settings.items()
        ]
        mark = " (chosen)" if trial is outcome.chosen else ""
        accuracy = "stopped early" if trial.accuracy is None else f"{trial.accuracy:.1%}"
        table.add_row(f"{trial.number}{mark}", ", ".join(words), accuracy)
    print_table(table)
    for line in outcome.lines():
        typer.echo(line)
    typer.echo(f"wrote {outcome.page}; train with the chosen settings:\n{outcome.command}")


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise ArgumentError(f"--lr must be a range such as 0.005:0.2, got {text!r}") from None
    return low, high
