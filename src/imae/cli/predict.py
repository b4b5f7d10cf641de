"""`imae predict`, `export`, `eval-retrieval` and `eval-robust`: a trained run put to use."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from imae.cli.options import OVERWRITE, refuse_overwriting
from imae.errors import ArgumentError, DataError, ImaeError, import_extra

if TYPE_CHECKING:
    from imae.metrics.retrieval import Retrieval

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
    with _bar("rows") as show:
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


_FEATURES = ("query_features", "gallery_features", "query_ids", "gallery_ids")


_CAMERAS = ("query_cameras", "gallery_cameras")


def eval_retrieval(
    source: Path = typer.Argument(
        ..., metavar="RUN|FEATURES.npz", help="Run folder of `imae train`, or a file of features."
    ),
    ranks: str = typer.Option("1,5,10,20", help="Ranks of the CMC, separated by commas."),
    rerank: bool = typer.Option(False, "--rerank", help="Re-rank by k-reciprocal neighbours."),
    which: str = typer.Option("final", help="Weights: final, or best on the held-out labels."),
    root: Path | None = typer.Option(None, help="Folder of the data, if it has moved."),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Rank a gallery for every query by cosine similarity: mAP and CMC.

    A RUN whose data has tracklets is measured on them; another on its test rows, each of which is
    a query for all others. The measures of the final weights are kept in RUN/retrieval.json.
    FEATURES.npz holds query_features, gallery_features, query_ids, gallery_ids, and query_cameras
    and gallery_cameras where there are cameras.
    """
    wanted = _ranks(ranks)
    if source.is_dir():
        import_extra("pydantic", extra="train")
        from imae.train import Run, evaluate_retrieval
        from imae.train.measure import store_retrieval

        run = Run(source, model=model)
        with _bar("frames") as show:
            found = evaluate_retrieval(
                run, which=which, ranks=wanted, rerank=rerank, root=root, progress=show
            )
        if which == "final" and not rerank:
            store_retrieval(run, found)
    else:
        found = _from_file(source, wanted, rerank=rerank)
    Console().print(_retrieval_table(found))
    if found.num_without_match:
        typer.echo(f"{found.num_without_match} queries without a match were left out")


def _ranks(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--ranks must be numbers such as 1,5,10, got {text!r}") from None


def _from_file(path: Path, ranks: list[int], *, rerank: bool) -> "Retrieval":
    import numpy as np

    from imae.data.arrays import read_npz
    from imae.metrics.retrieval import evaluate

    if not path.exists():
        raise DataError(f"{path}: there is no such run folder and no such file")
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path}: is neither a run folder nor a .npz file of features")
    arrays = read_npz(path, (*_FEATURES, *_CAMERAS))
    cameras = [name for name in _CAMERAS if name in arrays]
    missing = [name for name in (*_FEATURES, *(_CAMERAS if cameras else ())) if name not in arrays]
    if missing:
        raise DataError(f"{path}: has no array {', '.join(missing)}")
    if not cameras:  # two cameras, so that no row is left out
        arrays["query_cameras"] = np.zeros(len(arrays["query_ids"]), np.int64)
        arrays["gallery_cameras"] = np.ones(len(arrays["gallery_ids"]), np.int64)
    try:
        return evaluate(**arrays, ranks=ranks, rerank=rerank)
    except ImaeError as error:
        raise type(error)(f"{path}: {error}") from error


def _retrieval_table(found: "Retrieval") -> Table:
    table = Table()
    table.add_column("queries", justify="right")
    table.add_column("mAP", justify="right")
    numbers = [str(len(found.first_match)), f"{100 * found.mean_average_precision:.1f}"]
    for rank, share in found.cmc.items():
        table.add_column(f"CMC-{rank}", justify="right")
        numbers.append(f"{100 * share:.1f}")
    table.add_row(*numbers)
    return table


def eval_robust(
    run: Path = typer.Argument(..., help="Run folder of `imae train`, on images."),
    epsilon: str = typer.Option(
        "8/255", help="Largest change of a pixel, with pixels from 0 to 1, such as 8/255 or 0.03."
    ),
    attack: list[str] | None = typer.Option(None, help="fgsm or pgd. Default: both."),
    steps: int = typer.Option(10, help="Steps of PGD."),
    rows: int | None = typer.Option(None, help="Attack a sample of so many test rows."),
    which: str = typer.Option("final", help="Weights: final, or best on the held-out labels."),
    root: Path | None = typer.Option(None, help="Folder of the data, if it has moved."),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Perturb the test images of a run to mislead its network, and measure the accuracy."""
    import_extra("pydantic", extra="train")
    from imae.train import Run, evaluate_robustness
    from imae.train.measure import ATTACKS

    size = _epsilon(epsilon)
    trained = Run(run, model=model)
    table = Table()
    for heading in ("attack", "epsilon", "rows", "accuracy (%)"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    for number, name in enumerate(dict.fromkeys(attack or ATTACKS)):
        with _bar("rows") as show:
            found = evaluate_robustness(
                trained,
                epsilon=size,
                attack=name,
                steps=steps,
                rows=rows,
                which=which,
                root=root,
                progress=show,
            )
        if not number:
            table.add_row("none", "0", str(found.num_rows), f"{100 * found.clean:.1f}")
        title = f"pgd, {steps} steps" if name == "pgd" else name
        table.add_row(title, epsilon, str(found.num_rows), f"{100 * found.attacked:.1f}")
    Console().print(table)


def _epsilon(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ArgumentError(
            f"--epsilon must be a number such as 8/255 or 0.03, got {text!r}"
        ) from None


@contextmanager
def _bar(unit: str) -> Iterator[Callable[[int, int], None]]:
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
