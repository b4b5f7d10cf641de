"""What commands share: options, settings, bars and tables on a terminal, the next command."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import Progress
from rich.table import Column, Table

from imae.errors import ArgumentError

LABEL_COLUMN = typer.Option(
    None, "--label-column", help="Column of the labels, for a table.", rich_help_panel="Data"
)
ID_COLUMN = typer.Option(
    None, "--id-column", help="Column of the row ids, for a table.", rich_help_panel="Data"
)
DROP = typer.Option(
    None,
    "--drop",
    metavar="COLUMN",
    help="Column of a table that is not used; may be repeated.",
    rich_help_panel="Data",
)


def column_options(
    label_column: str | None, id_column: str | None, drop: list[str] | None
) -> dict[str, Any]:
    """Options of ``imae.data.load`` that say what the columns of a table are."""
    options = {"label_column": label_column, "id_column": id_column, "drop": drop or None}
    return {name: value for name, value in options.items() if value is not None}


def data_flags(
    label_column: str | None, id_column: str | None, drop: list[str] | None
) -> dict[str, object]:
    """The same as settings of a run."""
    given = column_options(label_column, id_column, drop)
    return {f"data.options.{name}": value for name, value in given.items()}


OVERWRITE = typer.Option(False, "--overwrite", help="Replace files that exist.")


def refuse_overwriting(data: str, out: Path) -> None:
    """Raises if the output would replace the data.

    Raises:
        ArgumentError: If both are one file.
    """
    from imae.data.sources.catalog import SOURCES

    if (
        data not in SOURCES
        and os.path.exists(data)
        and out.exists()
        and os.path.samefile(data, out)
    ):
        raise ArgumentError(f"--out {out}: is the data itself; name another file")


def gather_settings(
    config: Path | None, settings: Sequence[str] | None, flags: Mapping[str, object]
) -> dict[str, Any]:
    """The settings of a file, then those of ``--set``, then those of other options.

    Args:
        config: File of settings, if there is one.
        settings: Texts such as ``optimizer.lr=0.1``.
        flags: Options by the setting that they set; None for those not given.

    Raises:
        ArgumentError: If the file cannot be read, or a text has another form.
    """
    from imae.train import read_config_file, with_settings, with_values

    content = {} if config is None else read_config_file(config)
    budget = content.get("train")
    # A budget on the command line replaces the other kind of budget in the file.
    for key, other in (("epochs", "steps"), ("steps", "epochs")):
        is_replaced = flags.get(f"train.{key}") is not None and flags.get(f"train.{other}") is None
        if is_replaced and isinstance(budget, dict):
            budget.pop(other, None)
    return with_values(with_settings(content, settings or ()), flags)


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, from the first report on."""
    bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
    task = bar.add_task(unit, total=None)

    def show(done: int, total: int) -> None:
        bar.start()  # not before: features of a frozen network have a bar of their own
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


def print_table(table: Table, console: Console | None = None) -> None:
    """Prints a table in which no word is broken.

    Columns share the width that their longest words leave. Where even those have no room, columns
    are left out from the right.
    """
    console = console or Console()
    spans = [_span(console, column) for column in table.columns]
    while len(spans) > 2 and sum(low for low, _ in spans) > _room(console, spans):
        spans.pop()
        table.columns.pop()
    spare = _room(console, spans) - sum(low for low, _ in spans)
    wanted = sum(high - low for low, high in spans)
    if 0 <= spare < wanted:
        for column, (low, high) in zip(table.columns, spans, strict=True):
            column.width = low + (high - low) * spare // wanted
    console.print(table)


def _room(console: Console, spans: Sequence[tuple[int, int]]) -> int:
    return console.width - 3 * len(spans) - 1  # lines between columns, and a space on each side


def _span(console: Console, column: Column) -> tuple[int, int]:
    """Width of the longest word and of the longest cell of a column."""
    cells = [column.header, *column.cells]
    found = [Measurement.get(console, console.options, cell) for cell in cells]
    high = max(each.maximum for each in found)
    return high if column.no_wrap else max(each.minimum for each in found), high


def say_next(*words: object) -> None:
    """Says on the error stream which command comes next."""
    typer.echo(f"next: {' '.join(shlex.quote(str(word)) for word in words)}", err=True)
