"""`imae data`: which named data sets there are, fetching them and verifying them."""

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae.data.sources.catalog import SETS, named_set
from imae.data.sources.fetching import fetch, verify
from imae.data.sources.root import data_root

_ROOT = typer.Option(
    None, "--root", show_default="$IMAE_DATA, ~/.cache/imae", help="Folder of the data sets."
)
_NAME = typer.Argument(..., help="Name of the set, as `imae data list` prints it.")


def register(app: typer.Typer) -> None:
    """Adds the command ``data`` with its three parts."""
    commands = typer.Typer(help="Named data sets: list, fetch, verify.", no_args_is_help=True)
    commands.command("list")(list_sets)
    commands.command("fetch")(fetch_set)
    commands.command("verify")(verify_set)
    app.add_typer(commands, name="data")


def list_sets(root: Path | None = _ROOT) -> None:
    """Prints every named set, its size, where it comes from and whether it is here."""
    folder = data_root(root)
    table = Table(title=f"data sets in {escape(str(folder))}")
    table.add_column("name", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("classes", justify="right")
    table.add_column("sources", overflow="fold")
    table.add_column("here")
    for item in SETS:
        table.add_row(
            item.name,
            " + ".join(f"{count:,}" for count in item.rows),
            str(item.num_classes),
            ", ".join(dict.fromkeys(origin.label for origin in item.origins)) or "by hand",
            "yes" if item.locate(folder) is not None else "no",
        )
    Console().print(table)


def fetch_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Fetches a set, unless it is here, and verifies it."""
    typer.echo(f"{name} is in {fetch(name, root)}")


def verify_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Decodes a set and compares its hashes with the published ones, where there are any."""
    for array, digest in verify(name, root).items():
        typer.echo(f"{digest}  {array}")
    is_published = named_set(name).has_hashes
    typer.echo(f"{name} is {'the published set' if is_published else 'complete'}")
