"""`imae list`: what can be asked for by name."""

from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae._registry import Catalog
from imae.cli.data import WIDE, set_table
from imae.errors import check_choice, import_extra

_SETTINGS = "settings"
_KINDS = ("losses", "methods", "noise", "models", "data", "recipes", _SETTINGS)


def list_entries(
    kind: str = typer.Argument(..., help=f"What to list: {', '.join(_KINDS)}."),
) -> None:
    """List what has a name: losses, methods, noise, models, data, recipes, settings.

    `imae list settings` lists what `--set KEY=VALUE` can set.
    """
    check_choice("what to list", kind, _KINDS)
    console = Console()
    if kind == _SETTINGS:
        console.print(_setting_table())
    elif kind == "data":
        console.print(set_table(None, width=console.width))
    else:
        console.print(_entry_table(kind, console.width))


def _setting_table() -> Table:
    import_extra("pydantic", extra="train")
    from imae.train.settings import known_settings

    table = Table("setting", "default", "what it is")
    table.columns[0].no_wrap = True
    for setting in known_settings():
        is_empty = setting.default in (None, {}, ())
        default = "" if is_empty else str(setting.default)
        table.add_row(setting.key, escape(default), escape(setting.meaning))
    return table


def _entry_table(kind: str, width: int) -> Table:
    columns = ["name", "what it is", "parameters", "reference"]
    if width < WIDE:
        columns.pop()  # a narrow terminal has no room for papers
    table = Table(*columns)
    table.columns[0].no_wrap = True
    for entry in _catalog(kind):
        shown = ", ".join(f"{key}={value}" for key, value in entry.defaults.items())
        row = (entry.name, entry.summary, shown, entry.reference)[: len(columns)]
        table.add_row(*map(escape, row))
    return table


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
    from imae.recipes import RECIPES

    return RECIPES
