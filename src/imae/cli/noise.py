"""`imae noise`: a label file with noise of a known kind."""

import math
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

from imae.data.split import Split
from imae.errors import ArgumentError
from imae.noise import KINDS, NoiseSpec, NoisyLabels, apply, parse_mapping, write_manifest

_ROWS_AT_ONCE = 256


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

        spec = NoiseSpec(kind, rate)  # refused before the data is read
        split = load(data, root=root).train
        noisy = corrupt_split(split, spec, seed=seed, mapping=mapping, exact=exact)
        write_manifest(out, noisy, split.labels, split.row_ids)
        typer.echo(
            f"{int(noisy.is_flipped.sum())} of {len(split)} labels changed "
            f"({noisy.realised_rate:.4f}), {spec}, seed {seed}: {out}"
        )


def corrupt_split(
    split: Split, spec: NoiseSpec, *, seed: int, mapping: str | None = None, exact: bool = False
) -> NoisyLabels:
    """The labels of a split under noise.

    Args:
        split: Rows whose labels count as clean.
        spec: Kind and rate.
        seed: Seed of every draw.
        mapping: ``FROM:TO,FROM:TO`` by class name or number, for ``pairs``.
        exact: Change exactly the asked part of the rows.

    Raises:
        ArgumentError: If the kind lacks what it needs or does not take what it got.
    """
    options = KINDS.find(spec.kind).defaults
    if "mapping" in options and mapping is None:
        raise ArgumentError(f"noise {spec.kind!r} needs --map FROM:TO,FROM:TO")
    if "mapping" not in options and mapping is not None:
        raise ArgumentError(f"noise {spec.kind!r} takes no --map; leave it out")
    if "exact" not in options and exact:
        raise ArgumentError(f"noise {spec.kind!r} takes no --exact; leave it out")
    return apply(
        spec,
        split.labels,
        num_classes=split.num_classes,
        seed=seed,
        exact=exact,
        mapping=None if mapping is None else parse_mapping(mapping, split.class_names),
        features=_features(split) if "features" in options else None,
    )


def _features(split: Split) -> NDArray[np.float32]:
    features = np.empty((len(split), math.prod(split.inputs.shape)), dtype=np.float32)
    for start in range(0, len(split), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(split)))
        features[rows] = split.inputs.batch(rows, generator=None).flatten(1).numpy()
    return features
