"""`imae predict` and `imae export`: a trained run put to use."""

from pathlib import Path

import typer

from imae.cli.options import OVERWRITE, progress_bar, refuse_overwriting, say_next
from imae.errors import import_extra

_SHOWN = 5  # classes in the summary


def predict(
    run: Path = typer.Argument(..., help="Run folder of `imae train`."),
    data: str = typer.Argument(
        ..., help="New rows, with or without labels: a path, or the name of a data set."
    ),
    out: Path = typer.Option(Path("predictions.csv"), help="File to write, .csv or .parquet."),
    which: str | None = typer.Option(
        None,
        show_default="best, if rows were held out",
        help="Weights: best on the held-out labels, or final.",
    ),
    overwrite: bool = OVERWRITE,
    root: Path | None = typer.Option(
        None, help="Folder that holds a named data set, or all images of a path."
    ),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Predict the class of every row of DATA, with the probability of each class.

    DATA is a folder of images, a CSV or Parquet file, a .npz or .npy file, or the name of a data
    set, whose test rows are taken. Labels in it are not read.
    """
    import_extra("pydantic", extra="train")
    import numpy as np

    from imae.report.formats import printable
    from imae.train import Run
    from imae.train.predict import check_output, save_predictions
    from imae.train.predict import predict as predict_rows

    refuse_overwriting(data, out)
    check_output(out, overwrite=overwrite)  # before the work, not after it
    with progress_bar("rows") as show:
        predictions = predict_rows(
            Run(run, model=model), data, which=which, root=root, progress=show
        )
    save_predictions(predictions, out, overwrite=overwrite)
    counts = np.bincount(predictions.labels, minlength=len(predictions.class_names))
    most = [each for each in np.argsort(-counts, kind="stable") if counts[each] > 0]
    shown = [
        f"{counts[each]} as {printable(predictions.class_names[each])}" for each in most[:_SHOWN]
    ]
    more = ["..."] if len(most) > _SHOWN else []
    typer.echo(f"{len(predictions)} rows: {', '.join(shown + more)}")
    typer.echo(f"wrote {out}")
    say_next("imae", "export", run, "--out", "model.onnx")


def export(
    run: Path = typer.Argument(..., help="Run folder of `imae train`."),
    format: str = typer.Option("onnx", help="onnx, torch or safetensors."),
    out: Path = typer.Option(..., help="File to write."),
    which: str | None = typer.Option(
        None,
        show_default="best, if rows were held out",
        help="Weights: best on the held-out labels, or final.",
    ),
    overwrite: bool = OVERWRITE,
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

    export_run(Run(run, model=model), out, format=format, which=which, overwrite=overwrite)
    typer.echo(f"wrote {out}")
    say_next("imae", "predict", run, "DATA")
