"""`imae demo`: the paper's point on the embedded digits, in a minute or two."""

import os
from pathlib import Path

import typer

from imae._extras import import_extra
from imae.cli.compare import compare_and_report

# The library's defaults, for every loss alike, but for four things: the noise, no augmentation
# (so that cross entropy has time to learn the wrong labels by heart), the budget, and one thread a
# run, so that the numbers do not hang on how many processors there are.
_SETTINGS = {
    "data": {"name": "digits", "augment": False},
    "noise": "symmetric:0.4",
    "train": {"epochs": 20},
    "machine": {"threads": 1},
}
_LOSSES = ["cce", "mae", "gce", "imae_stable"]
_SEEDS = 3


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command(name="demo")(demo)


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for the runs, the table and the page."),
) -> None:
    """Train four losses on handwritten digits of which 40% carry a wrong label.

    Cross entropy ends up learning the wrong labels; look at its noisy subset and final test.
    """
    import_extra("pydantic", extra="train")
    compare_and_report(_SETTINGS, _LOSSES, seeds=_SEEDS, jobs=os.cpu_count() or 1, out=out)
