"""`imae reproduce`: the tables and figures of the paper, run again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from imae.errors import ArgumentError, check_choice, import_extra
from imae.records import RunFolder

if TYPE_CHECKING:
    from imae.recipes.runner import Job
    from imae.train import Config

_BUDGET = "short"


def reproduce(
    name: str | None = typer.Argument(None, help="Recipe; --list shows all."),
    list_all: bool = typer.Option(False, "--list", help="List the recipes and their cells."),
    budget: str | None = typer.Option(
        None, show_default="short", help="tiny, short, features or paper."
    ),
    only: list[str] | None = typer.Option(
        None, metavar="CELL", help="Train only this cell, such as `resnet20-40-*`; repeatable."
    ),
    seeds: int | None = typer.Option(
        None,
        show_default="3 for the budget features, else 1",
        help="Runs of each cell, each under a seed of its own.",
    ),
    jobs: int = typer.Option(1, help="Runs at once on this machine."),
    ray: str | None = typer.Option(
        None, metavar="ADDRESS", help="Run on a Ray cluster; `local` starts one here."
    ),
    resume: bool = typer.Option(False, help="Resume the runs in the folder."),
    rebuild: bool = typer.Option(
        False, "--rebuild", help="Train nothing: rebuild the tables from the run folders."
    ),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`, for every run."
    ),
    root: Path | None = typer.Option(None, help="Folder that holds the data sets."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show the runs, and train nothing."),
    out: Path | None = typer.Option(None, show_default="reproduce/NAME-BUDGET", help="Folder."),
) -> None:
    """Run a table or figure of the paper, and show its numbers beside the measured ones.

    Every cell is a run of its own that can be interrupted and resumed.
    """
    import_extra("pydantic", extra="train")
    from imae import recipes
    from imae.recipes.output import as_text
    from imae.train import with_settings

    check_choice("budget", budget or _BUDGET, tuple(recipes.BUDGETS))
    is_asked = any((only, settings, root, out, ray, resume, jobs > 1, seeds is not None, dry_run))
    if name is None and is_asked and not list_all and not rebuild:
        raise ArgumentError("give the name of a recipe; --list shows all")
    if list_all or (name is None and not rebuild):
        _list(name, budget or _BUDGET)
        return
    if name is not None:
        recipes.RECIPES.find(name)
    folder = out or Path("reproduce") / f"{name}-{budget or _BUDGET}"
    if rebuild:
        others = (
            only,
            resume,
            jobs > 1,
            seeds is not None,
            ray,
            settings,
            root,
            budget,
            dry_run,
            not out,
        )
        if any(others):
            raise ArgumentError("--rebuild trains nothing: give --out, the folder, and no others")
        made = recipes.rebuild(folder, name)
    else:
        assert name is not None
        given = [*(settings or []), *([] if root is None else [f"data.root={root}"])]
        chosen: dict[str, Any] = {
            "budget": budget or _BUDGET,
            "out": folder,
            "only": only or [],
            "seeds": seeds,
            "workers": jobs,
            "settings": with_settings({}, given),
        }
        if dry_run:
            _show_runs(recipes.plan_jobs(name, **chosen))
            return
        made = recipes.reproduce(
            name, **chosen, is_resumed=resume, ray_address=ray, show=True, say=typer.echo
        )
    if any(outcome.runs for outcome in made.outcomes):
        typer.echo(as_text(made.recipe, made.budget, made.outcomes, changed=made.changed))
    for path in made.files:
        if path.suffix == ".md" and path.name != "table.md":
            typer.echo(path.read_text())
    typer.echo(f"wrote {len(made.files)} tables and figures: {folder}")


def _list(name: str | None, budget: str) -> None:
    from imae.recipes import RECIPES

    if name is not None:
        for cell in RECIPES.build(name).cells(budget):
            typer.echo(cell.name)
        return
    table = Table("name", "what it is", "cells")
    table.columns[0].no_wrap = True
    for entry in RECIPES:
        table.add_row(entry.name, entry.summary, str(len(entry.build().cells("paper"))))
    Console().print(table)


def _show_runs(jobs: "Sequence[Job]") -> None:
    results = [RunFolder(str(job.config.out)).result() for job in jobs]
    for job, result in zip(jobs, results, strict=True):
        state = "to do" if result is None else "done"
        typer.echo(f"{job.name} ({state}): {_in_words(job.config)}")
    done = [result for result in results if result is not None]
    seconds = [result["seconds"] for result in done if "seconds" in result]
    left = len(jobs) - len(done)
    line = f"{len(jobs)} runs, {left} of them to do"
    if seconds and left:
        hours = left * sum(seconds) / len(seconds) / 3600
        line += f"; about {hours:.1f} h one after another, by those that are done"
    typer.echo(line)


def _in_words(config: "Config") -> str:
    data, train, method = config.data, config.train, config.method
    arguments = ", ".join(f"{key}={value}" for key, value in method.arguments.items())
    words = [
        data.name if data.rows is None else f"{data.rows} rows of {data.name}",
        config.noise or "no noise",
        str(config.model.name),
        f"{method.name} ({arguments})" if arguments else method.name,
        f"{train.epochs} epochs" if train.steps is None else f"{train.steps} steps",
        f"batches of {train.batch_size}",
        f"{config.optimizer.name} at {config.optimizer.lr:g}",
    ]
    return ", ".join(words)
