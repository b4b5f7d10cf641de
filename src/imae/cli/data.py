"""`imae data` and `imae noise`: named data sets, and label files with known noise."""

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae.cli.options import refuse_overwriting
from imae.data.sources.archive import data_root
from imae.data.sources.catalog import SETS, fetch, named_set, verify
from imae.noise import KINDS, NoiseSpec, write_manifest

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


def register_noise(app: typer.Typer) -> None:
    """Adds the command ``noise``."""

    @app.command()
    def noise(
        data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
        kind: str = typer.Option("symmetric", help=f"Kind: {', '.join(KINDS.names())}."),
        rate: float = typer.Option(..., help="Part of the labels to change, in [0, 1)."),
        seed: int = typer.Option(0, help="Seed of every draw."),
        out: Path = typer.Option(..., help="Label file to write (CSV)."),
        mapping: str | None = typer.Option(
            None, "--map", help="For pairs: FROM:TO,FROM:TO by class name or number."
        ),
        exact: bool = typer.Option(False, "--exact", help="Change exactly this part of the rows."),
        root: Path | None = typer.Option(None, help="Folder that holds a named data set."),
    ) -> None:
        """Writes the labels of DATA with noise of a known kind."""
        from imae.data import load
        from imae.train.relabel import corrupt_split

        spec = NoiseSpec(kind, rate)  # refused before the data is read
        refuse_overwriting(data, out)
        split = load(data, root=root).train
        noisy = corrupt_split(split, spec, seed=seed, mapping=mapping, exact=exact)
        write_manifest(out, noisy, split.labels, split.row_ids)
        typer.echo(
            f"{int(noisy.is_flipped.sum())} of {len(split)} labels changed "
            f"({noisy.realised_rate:.4f}), {spec}, seed {seed}: {out}"
        )
