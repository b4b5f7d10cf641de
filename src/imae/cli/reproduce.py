"""`imae reproduce`: the tables and figures of the paper, run again."""

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from imae._checks import check_choice
from imae._extras import import_extra
from imae.errors import ArgumentError

_BUDGET = "short"


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command(name="reproduce")(reproduce)


def reproduce(
    name: str | None = typer.Argument(None, help="Recipe; --list shows all."),
    list_all: bool = typer.Option(False, "--list", help="List the recipes and their cells."),
    budget: str | None = typer.Option(None, show_default="short", help="tiny, short or paper."),
    only: list[str] | None = typer.Option(
        None, metavar="CELL", help="Train this cell alone, such as `resnet20-40-*`; repeatable."
    ),
    seeds: int = typer.Option(1, help="Runs of each cell, each under a seed of its own."),
    jobs: int = typer.Option(1, help="Runs at once on this machine."),
    ray: str | None = typer.Option(
        None, metavar="ADDRESS", help="Run on a Ray cluster; `local` starts one here."
    ),
    resume: bool = typer.Option(False, help="Go on with the runs in the folder."),
    rebuild: bool = typer.Option(
        False, "--rebuild", help="Train nothing: make the tables again from the run folders."
    ),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`, for every run."
    ),
    root: Path | None = typer.Option(None, help="Folder that holds the data sets."),
    out: Path | None = typer.Option(None, show_default="reproduce/NAME-BUDGET", help="Folder."),
) -> None:
    """Run a table or figure of the paper again, and see its numbers beside the measured ones.

    Every cell is a run of its own that can be interrupted and resumed.
    """
    import_extra("pydantic", extra="train")
    from imae import recipes
    from imae.recipes.tables import as_text
    from imae.train import with_settings

    check_choice("budget", budget or _BUDGET, tuple(recipes.BUDGETS))
    others = (only, settings, root, out, ray, resume, jobs > 1, seeds > 1)
    if name is None and not list_all and not rebuild and any(others):
        raise ArgumentError("give the name of a recipe; --list shows all")
    if list_all or (name is None and not rebuild):
        _list(name, budget or _BUDGET)
        return
    if name is not None:
        recipes.RECIPES.find(name)
    folder = out or Path("reproduce") / f"{name}-{budget or _BUDGET}"
    if rebuild:
        if only or resume or jobs > 1 or seeds > 1 or ray or settings or root or budget or not out:
            raise ArgumentError("--rebuild trains nothing: give --out, the folder, and no others")
        made = recipes.rebuild(folder, name)
    else:
        assert name is not None
        given = [*(settings or []), *([] if root is None else [f"data.root={root}"])]
        made = recipes.reproduce(
            name,
            budget=budget or _BUDGET,
            out=folder,
            only=only or [],
            seeds=seeds,
            is_resumed=resume,
            workers=jobs,
            ray_address=ray,
            settings=with_settings({}, given),
            show=True,
            say=typer.echo,
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
