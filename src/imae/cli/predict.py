"""A trained run put to use: `imae predict`, `export`, `eval-retrieval` and `eval-robust`."""

import datetime
import functools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.table import Table

from imae.cli.app import (
    OVERWRITE,
    check_path_exists,
    print_table,
    progress_bar,
    refuse_overwriting,
    say,
    say_next,
)
from imae.cli.review import data_and_day
from imae.errors import ArgumentError, DataError, ImaeError, check_choice, import_extra
from imae.records.files import check_overwriting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from imae.metrics.retrieval import Retrieval
    from imae.train import Run


_SHOWN = 5  # classes in the summary
_BY_DEFAULT = "best, if rows were held out or the run was stopped early"


def predict(
    run: Path = typer.Argument(..., help="Run folder of `imae train`."),
    data: str = typer.Argument(
        ..., help="New rows, with or without labels: a path, or the name of a data set."
    ),
    out: Path = typer.Option(Path("predictions.csv"), help="File to write, .csv or .parquet."),
    which: str | None = typer.Option(
        None,
        show_default=_BY_DEFAULT,
        help="Weights: best on the held-out given labels or by an early stop, or final.",
    ),
    overwrite: bool = OVERWRITE,
    root: Path | None = typer.Option(
        None, help="Folder that holds a named data set, or all images of a path."
    ),
    on_bad_image: str | None = typer.Option(
        None,
        show_default="as the run was trained",
        help="skip leaves out images that cannot be read; fail stops at the first.",
    ),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Predict the class of every row of DATA, with the probability of each class.

    DATA is a folder of images, a CSV or Parquet file, a .npz or .npy file, or the name of a data
    set, whose test rows are used. Labels in it are not read.
    """
    check_path_exists(data)
    import_extra("pydantic", extra="train")
    import numpy as np

    from imae.data.image_files import BadImageError
    from imae.records.files import printable
    from imae.train import Run
    from imae.train.predict import check_output, save_predictions
    from imae.train.predict import predict as predict_rows

    refuse_overwriting(data, out)
    check_output(out, overwrite=overwrite)  # before the work, not after it
    options: dict[str, Any] = {"which": which, "root": root, "on_bad_image": on_bad_image}
    try:
        with progress_bar("predictions") as show:
            predictions = predict_rows(Run(run, model=model), data, **options, progress=show)
    except BadImageError as error:
        raise BadImageError(
            f"{error}; to leave out all images that cannot be read: --on-bad-image skip"
        ) from error
    save_predictions(predictions, out, overwrite=overwrite)
    for note in predictions.notes:
        typer.echo(printable(note), err=True)
    counts = np.bincount(predictions.labels, minlength=len(predictions.class_names))
    most = [each for each in np.argsort(-counts, kind="stable") if counts[each] > 0]
    shown = [
        f"{counts[each]} as {printable(predictions.class_names[each])}" for each in most[:_SHOWN]
    ]
    more = ["..."] if len(most) > _SHOWN else []
    say(f"{len(predictions):,} rows: {', '.join(shown + more)}")
    typer.echo(f"wrote {out}")
    say_next("imae", "export", run, *_again(which, model), "--out", "model.onnx")


def export(
    run: Path = typer.Argument(..., help="Run folder of `imae train`."),
    format: str = typer.Option("onnx", help="onnx, torch or safetensors."),
    out: Path = typer.Option(..., help="File to write."),
    which: str | None = typer.Option(
        None,
        show_default=_BY_DEFAULT,
        help="Weights: best on the held-out given labels or by an early stop, or final.",
    ),
    overwrite: bool = OVERWRITE,
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
) -> None:
    """Write the network of a run for use without imae.

    The file also holds the names of the classes and how rows must be prepared.
    """
    import_extra("pydantic", extra="train")
    from imae.train import Run
    from imae.train.export import export as export_run

    export_run(Run(run, model=model), out, format=format, which=which, overwrite=overwrite)
    typer.echo(f"wrote {out}")
    say_next("imae", "predict", run, "DATA", *_again(which, model))


def _again(which: str | None, model: str | None) -> list[str]:
    """The options that select the same network in another command."""
    options = {"--which": which, "--model": model}
    return [word for name, value in options.items() if value is not None for word in (name, value)]


_Pictures: TypeAlias = tuple[Callable[[int], str | None], ...]


_FEATURES = ("query_features", "gallery_features", "query_ids", "gallery_ids")
_CAMERAS = ("query_cameras", "gallery_cameras")
_RANKS = "1,5,10,20"
_IMAGES = ("query_images", "gallery_images")


def eval_retrieval(
    source: Path = typer.Argument(
        ..., metavar="RUN|FEATURES.npz", help="Run folder of `imae train`, or a file of features."
    ),
    ranks: str = typer.Option(_RANKS, help="Ranks of the CMC, separated by commas."),
    rerank: bool = typer.Option(False, "--rerank", help="Re-rank by k-reciprocal neighbours."),
    page: Path | None = typer.Option(
        None, metavar="FILE.html", help="Write a page of the worst queries and their gallery."
    ),
    which: str = typer.Option(
        "final", help="Weights: final, or best on the held-out given labels."
    ),
    root: Path | None = typer.Option(None, help="Folder of the data, if it has moved."),
    model: str | None = typer.Option(
        None, help="The run's network, if it is a function of your own: package.module:function."
    ),
    overwrite: bool = OVERWRITE,
) -> None:
    """Rank a gallery for every query by cosine similarity: mAP and CMC.

    A RUN whose data has tracklets is measured on them; any other on its test rows, where each is
    a query and all others are its gallery. The measures of the final weights are saved in
    RUN/retrieval.json. FEATURES.npz holds query_features, gallery_features, query_ids and
    gallery_ids; optional are query_cameras and gallery_cameras, and the file names query_images and
    gallery_images.
    """
    from imae.metrics.retrieval import evaluate

    wanted = _ranks(ranks)
    to_store = None
    if page is not None:
        check_choice("the extension of a page", page.suffix.lower(), (".html",))
        check_overwriting(page, overwrite=overwrite, option="--page")
    if source.is_dir():
        import_extra("pydantic", extra="train")
        from imae.train import Run
        from imae.train.measure import store_retrieval

        run = Run(source, model=model)
        arrays, pictures, has_cameras = _of_run(run, which, root)
        found = evaluate(**arrays, ranks=wanted, rerank=rerank)
        if which == "final" and not rerank:
            to_store = functools.partial(store_retrieval, run, found)
    else:
        arrays, pictures, has_cameras = _of_file(source)
        try:
            found = evaluate(**arrays, ranks=wanted, rerank=rerank)
        except ImaeError as error:
            raise type(error)(f"{source}: {error}") from error
    print_table(_retrieval_table(found))
    if found.num_without_match:
        noun = "query" if found.num_without_match == 1 else "queries"
        typer.echo(f"left out: {found.num_without_match} {noun} without a match")
    if page is not None:
        _write_page(
            page, source, found, arrays, pictures, is_reranked=rerank, has_cameras=has_cameras
        )
        typer.echo(f"wrote {page}")
    else:
        given = {
            "--ranks": ranks if ranks != _RANKS else None,
            "--which": which if which != "final" else None,
            "--root": root,
            "--model": model,
        }
        words = [word for item in given.items() if item[1] is not None for word in item]
        words += ["--rerank"] if rerank else []
        say_next("imae", "eval-retrieval", source, *words, "--page", "queries.html")
    if to_store is not None:  # last: a folder that cannot be written to has shown its numbers
        to_store()


def _write_page(
    page: Path,
    source: Path,
    found: "Retrieval",
    arrays: dict[str, Any],
    pictures: _Pictures,
    *,
    is_reranked: bool,
    has_cameras: bool,
) -> None:
    from imae.metrics.retrieval import (
        k_reciprocal_similarities,
        normalise,
        repeats,
        similarities,
    )
    from imae.report.page import Compared, write_queries

    name = source.resolve().name
    if source.is_dir():
        words = f"the run {name}"
        data, day = data_and_day(source)
    else:
        words = data = name
        day = datetime.date.fromtimestamp(source.stat().st_mtime).isoformat()
    queries, gallery = (normalise(arrays["query_features"]), arrays["gallery_features"])
    equal = repeats(gallery)
    matrix = k_reciprocal_similarities(queries, gallery) if is_reranked else None

    def similarity(row: int) -> Any:
        return similarities(queries[[row]], gallery, equal)[0] if matrix is None else matrix[row]

    asked, ranked = (
        Compared(arrays[f"{side}_ids"], arrays[f"{side}_cameras"], picture)
        for side, picture in zip(("query", "gallery"), pictures, strict=True)
    )
    write_queries(
        found,
        asked,
        ranked,
        similarity,
        page,
        source=words,
        data=data or name,
        date=day or None,
        has_cameras=has_cameras,
    )


def _ranks(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--ranks must be numbers such as 1,5,10, got {text!r}") from None


def _of_run(run: "Run", which: str, root: Path | None) -> "tuple[dict[str, Any], _Pictures, bool]":
    """Arrays for ``evaluate``, pictures of queries and gallery, and whether cameras are shown."""
    from imae.audit.cards import row_preview
    from imae.train.measure import tracklet_rows

    with progress_bar("features") as show:
        tracklets, features = tracklet_rows(run, which=which, root=root, progress=show)
    sides = {"query": tracklets.query_rows, "gallery": tracklets.gallery_rows}
    arrays: dict[str, Any] = {}
    for side, rows in sides.items():
        arrays[f"{side}_features"] = features[rows]
        arrays[f"{side}_ids"] = tracklets.person_ids[rows]
        arrays[f"{side}_cameras"] = tracklets.cameras[rows]

    def picture(tracklet: int) -> str | None:
        frames = tracklets.frame_rows(tracklet)
        preview = row_preview(tracklets.frames, int(frames[len(frames) // 2]))
        return None if preview is None else preview.picture

    pictures = (
        lambda row: picture(int(sides["query"][row])),
        lambda row: picture(int(sides["gallery"][row])),
    )
    # Rows of data without tracklets have a camera each.
    return arrays, pictures, len(set(tracklets.cameras.tolist())) < len(tracklets)


def _of_file(path: Path) -> "tuple[dict[str, Any], _Pictures, bool]":
    """The same from a file of features; see ``_of_run``."""
    import numpy as np

    from imae.data.arrays import read_npz

    if not path.exists():
        raise DataError(f"{path}: there is no such run folder and no such file")
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path}: is neither a run folder nor a .npz file of features")
    arrays = read_npz(path, (*_FEATURES, *_CAMERAS, *_IMAGES))
    images = [arrays.pop(name, None) for name in _IMAGES]
    cameras = [name for name in _CAMERAS if name in arrays]
    missing = [name for name in (*_FEATURES, *(_CAMERAS if cameras else ())) if name not in arrays]
    if missing:
        raise DataError(f"{path}: has no array {', '.join(missing)}")
    for name in (*_FEATURES[2:], *cameras):
        if arrays[name].ndim != 1:
            shape = arrays[name].shape
            raise DataError(f"{path}: {name} must hold one number for each row, got shape {shape}")
    if not cameras:  # two cameras, so that no row is left out
        arrays["query_cameras"] = np.zeros(len(arrays["query_ids"]), np.int64)
        arrays["gallery_cameras"] = np.ones(len(arrays["gallery_ids"]), np.int64)
    pictures = tuple(
        _pictures_of(path, name, names, len(arrays[ids]))
        for name, names, ids in zip(_IMAGES, images, _FEATURES[2:], strict=True)
    )
    return arrays, pictures, bool(cameras)


def _pictures_of(
    path: Path, key: str, names: "NDArray[Any] | None", length: int
) -> Callable[[int], str | None]:
    """Pictures from files beside a file of features, by row."""
    from imae.audit.cards import picture_preview
    from imae.data.image_files import decode

    if names is None:
        return lambda _: None
    if names.dtype.kind != "U" or names.shape != (length,):
        raise DataError(f"{path}: {key} must be {length} file names, one for each row")

    def picture(row: int) -> str | None:
        file = (path.parent / str(names[row])).resolve()
        if not file.is_relative_to(path.parent.resolve()):
            raise DataError(f"{path}: {key} {row}: {names[row]} is not below its folder")
        return picture_preview(decode(file)).picture

    return picture


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
    rows: int | None = typer.Option(None, help="Attack a sample of this many test rows."),
    which: str = typer.Option(
        "final", help="Weights: final, or best on the held-out given labels."
    ),
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
        with progress_bar(name) as show:
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
    print_table(table)
    say_next("imae", "report", run)


def _epsilon(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ArgumentError(
            f"--epsilon must be a number such as 8/255 or 0.03, got {text!r}"
        ) from None
