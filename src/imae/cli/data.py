"""`imae data` and `imae noise`: named data sets, and label files with known noise."""

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae.cli.options import (
    DROP,
    ID_COLUMN,
    LABEL_COLUMN,
    OVERWRITE,
    column_options,
    refuse_overwriting,
)

_ROOT = typer.Option(
    None, "--root", show_default="$IMAE_DATA, ~/.cache/imae", help="Folder of the data sets."
)
WIDE = 120  # columns of a terminal that has room for references
_NAME = typer.Argument(..., help="Name of the set, as `imae data list` prints it.")

data = typer.Typer(
    help="List, fetch and verify named data sets.", no_args_is_help=True, add_completion=False
)


@data.command("list")
def list_sets(root: Path | None = _ROOT) -> None:
    """Print every named set, its size, where it comes from and whether it is on this machine."""
    console = Console()
    console.print(set_table(root, width=console.width))


def set_table(root: Path | None, *, width: int) -> Table:
    """Every named set, its size, where it comes from and whether it is in the folder."""
    from imae.data.sources.archive import data_root
    from imae.data.sources.catalog import SETS

    folder = data_root(root)
    table = Table(title=f"data sets in {escape(str(folder))}")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("rows", justify="right")
    table.add_column("classes", justify="right")
    table.add_column("sources", overflow="fold")
    table.add_column("here")
    is_wide = width >= WIDE
    if is_wide:
        table.add_column("reference")
    for item in SETS:
        row = (
            item.name,
            escape(item.summary),
            " + ".join(f"{count:,}" for count in item.rows),
            str(item.num_classes),
            ", ".join(dict.fromkeys(origin.label for origin in item.origins)) or "by hand",
            "yes" if item.locate(folder) is not None else "no",
        )
        table.add_row(*row, *([escape(item.reference)] if is_wide else []))
    return table


@data.command("fetch")
def fetch_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Fetch a set, unless it is here, and verify it."""
    from imae.data.sources.catalog import fetch

    typer.echo(f"{name} is in {fetch(name, root)}")


@data.command("verify")
def verify_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Decode a set and compare its hashes with the published ones, where there are any."""
    from imae.data.sources.catalog import named_set, verify

    for array, digest in verify(name, root).items():
        typer.echo(f"{digest}  {array}")
    is_published = named_set(name).has_hashes
    typer.echo(f"{name} is {'the published set' if is_published else 'complete'}")


def noise(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    kind: str = typer.Option("symmetric", help="Kind of noise; see `imae list noise`."),
    rate: float = typer.Option(..., help="Part of the labels to change, in [0, 1)."),
    seed: int = typer.Option(123, help="Seed of every draw."),
    out: Path = typer.Option(..., help="Label file to write (CSV)."),
    mapping: str | None = typer.Option(
        None, "--map", help="For pairs: FROM:TO,FROM:TO by class name or number."
    ),
    exact: bool = typer.Option(False, "--exact", help="Change exactly this part of the rows."),
    root: Path | None = typer.Option(None, help="Folder that holds a named data set."),
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    overwrite: bool = OVERWRITE,
) -> None:
    """Write the labels of DATA with noise of a known kind."""
    from imae.data import describe, load
    from imae.noise import NoiseSpec, write_manifest
    from imae.records.lock import check_overwriting
    from imae.train.relabel import corrupt_split

    spec = NoiseSpec(kind, rate)  # refused before the data is read
    refuse_overwriting(data, out)
    check_overwriting(out, overwrite=overwrite)
    loaded = load(data, root=root, **column_options(label_column, id_column, drop))
    typer.echo(describe(loaded), err=True)
    split = loaded.train
    noisy = corrupt_split(split, spec, seed=seed, mapping=mapping, exact=exact)
    write_manifest(out, noisy, split.labels, split.row_ids)
    typer.echo(
        f"{int(noisy.is_flipped.sum())} of {len(split)} labels changed "
        f"({noisy.realised_rate:.4f}), {spec}, seed {seed}: {out}"
    )
