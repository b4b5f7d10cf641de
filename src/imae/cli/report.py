"""`imae report`: the table, the page and the figures of runs."""

from pathlib import Path

import typer
from rich.console import Console

from imae.cli.options import OVERWRITE
from imae.records.lock import check_overwriting
from imae.report import as_text, find_runs, read_runs, save_figures, save_table, table, write_report


def report(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN...", help="Run folders, finished or not, or folders of runs."
    ),
    out: Path = typer.Option(Path("report.html"), help="Page to write: one file, no network."),
    table_file: Path | None = typer.Option(
        None, "--table", help="File for the table, .csv or .md. Default: none."
    ),
    figures: Path | None = typer.Option(
        None, help="Folder for the figures, PNG and SVG. Default: none."
    ),
    overwrite: bool = OVERWRITE,
) -> None:
    """Compare runs: print their table and write one offline page.

    RUN is a run folder, or a folder of `imae compare` or `imae reproduce` for all of its runs.
    """
    for path in (out, table_file):
        if path is not None:
            check_overwriting(path, overwrite=overwrite)
    records = read_runs(find_runs(runs))
    compared = table(records)
    if table_file is not None:
        save_table(compared, table_file)  # first, as its name may be refused
    written = [write_report(records, out)] + [table_file] * (table_file is not None)
    if figures is not None:
        written += save_figures(records, figures)
    typer.echo(as_text(compared, width=Console().width))
    for path in written:
        typer.echo(f"wrote {path}")
