"""`imae noise`: a label file with noise of a known kind."""

from pathlib import Path

import typer

from imae.cli.overwriting import refuse_overwriting
from imae.noise import KINDS, NoiseSpec, write_manifest


def register(app: typer.Typer) -> None:
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
        from imae.train.corrupt import corrupt_split

        spec = NoiseSpec(kind, rate)  # refused before the data is read
        refuse_overwriting(data, out)
        split = load(data, root=root).train
        noisy = corrupt_split(split, spec, seed=seed, mapping=mapping, exact=exact)
        write_manifest(out, noisy, split.labels, split.row_ids)
        typer.echo(
            f"{int(noisy.is_flipped.sum())} of {len(split)} labels changed "
            f"({noisy.realised_rate:.4f}), {spec}, seed {seed}: {out}"
        )
