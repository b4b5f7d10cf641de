"""`imae list`: what can be asked for by name."""

from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from imae._checks import check_choice
from imae._registry import Catalog

_KINDS = ("losses", "methods", "noise", "models", "data", "recipes")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command(name="list")(list_entries)


def list_entries(
    kind: str = typer.Argument(..., help=f"What to list: {', '.join(_KINDS)}."),
) -> None:
    """Lists what can be asked for by name: losses, methods, noise, networks, data, recipes."""
    check_choice("what to list", kind, _KINDS)
    console = Console()
    columns = ["name", "what it is", "parameters", "reference"]
    if console.width < 120:
        columns.pop()  # a narrow terminal has no room for papers
    table = Table(*columns)
    table.columns[0].no_wrap = True
    for entry in _catalog(kind):
        shown = ", ".join(f"{key}={value}" for key, value in entry.defaults.items())
        table.add_row(*[entry.name, entry.summary, shown, entry.reference][: len(columns)])
    console.print(table)


def _catalog(kind: str) -> Catalog[Any]:
    # Each is imported when it is asked for: nobody waits for networks to read a list of losses.
    if kind == "losses":
        from imae.curves import CURVES

        return CURVES
    if kind == "methods":
        from imae.methods import METHODS

        return METHODS
    if kind == "noise":
        from imae.noise import KINDS

        return KINDS
    if kind == "models":
        from imae.models import MODELS

        return MODELS
    if kind == "recipes":
        from imae.recipes import RECIPES

        return RECIPES
    from imae.data.sources import SOURCES

    return SOURCES
