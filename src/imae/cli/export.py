"""`imae export`: a trained network for other programs."""

from pathlib import Path

import typer

from imae._extras import import_extra


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command(name="export")(export)


def export(
    run: Path = typer.Argument(..., help="Run folder of `imae train`."),
    format: str = typer.Option("onnx", help="onnx, torch or safetensors."),
    out: Path = typer.Option(..., help="File to write."),
    which: str = typer.Option("final", help="Weights: final, or best on the held-out labels."),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Write the network of a run for use without imae.

    The file carries the names of the classes and how rows must be prepared.
    """
    import_extra("pydantic", extra="train")
    from imae.train import Run
    from imae.train.export import export as export_run

    export_run(Run(run, model=model), out, format=format, which=which)
    typer.echo(f"wrote {out}")
