"""Labels and probabilities that a trained run predicts for new rows."""

import csv
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from imae.data import Batches, Split, Table, load_unlabelled
from imae.data.loading import load_unscaled
from imae.data.preparation import standardise
from imae.errors import ArgumentError, DataError, ImaeError, check_choice, import_extra
from imae.models import Network
from imae.records.files import check_overwriting, write_file
from imae.train.preparation import Preparation, frozen_features, read_preparation
from imae.train.run import Run

SUFFIXES = (".csv", ".parquet")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a network predicts for rows.

    Args:
        row_ids: Name of every row in its source, shape (N,), strings.
        labels: Most likely class, shape (N,), int64 in [0, C).
        probabilities: Probability of every class, shape (N, C), float32.
        class_names: Names of the C classes.
        notes: What a user should know about how the rows were read, such as words that no
            training row has.
        label_kind: What the labels of the training rows were: "name", "integer" or "boolean".
    """

    row_ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    label_kind: str = "name"

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def predicted(self) -> NDArray[Any]:
        """Most likely class as the training rows were labelled, shape (N,).

        Names, or integers such as -1 and 1, or booleans, where the labels were such.
        """
        values: dict[str, Callable[[str], object]] = {
            "name": str,
            "integer": int,
            "boolean": "True".__eq__,
        }
        return np.array([values[self.label_kind](name) for name in self.class_names])[self.labels]


def predict(
    run: Run | str | os.PathLike[str],
    data: object,
    *,
    which: str | None = None,
    root: str | Path | None = None,
    on_bad_image: str | None = None,
    progress: Progress | None = None,
) -> Predictions:
    """The classes of new rows, which need no labels, and the probability of each class.

    The rows are prepared like the training rows, with statistics that the run folder
    holds: the data that the run was trained on is not needed.

    Args:
        run: The run, or its folder.
        data: Name of a known set, whose test rows are used, or a path: a folder of images, a CSV
            or Parquet file, or a ``.npz`` or ``.npy`` file. Labels in it are not read. Or the
            rows themselves: an array, a tensor, a data frame or a torch data set.
        which: "best" on the held-out labels, or "final"; by default the best if there is one.
        root: For a known set the folder of its files. For a path the folder that all images must
            be in.
        on_bad_image: "fail" stops at an image that cannot be read; "skip" decodes every image
            first and leaves those out, which a note says; by default as the run was trained.
        progress: Called with the rows that are done and all rows.

    Raises:
        ArgumentError: If ``which`` or ``on_bad_image`` is neither.
        DataError: If the run is not trained, or the rows cannot be read or do not match it.

    Examples:
        >>> import tempfile
        >>> from imae.train import build_config, train
        >>> run = train(build_config({
        ...     "data": {"name": "digits"},
        ...     "model": {"name": "mlp"},
        ...     "train": {"steps": 2},
        ...     "out": tempfile.mkdtemp(),
        ... }))
        >>> predictions = predict(run, "digits")
        >>> predictions.row_ids.shape, predictions.probabilities.shape
        ((355,), (355, 10))
    """
    run = run if isinstance(run, Run) else Run(run)
    network = load_network(run, which)
    where = str(data) if isinstance(data, str | Path) else "the rows given"
    notes: list[str] = []
    split = prepare_rows(run, data, root=root, on_bad_image=on_bad_image, say=notes.append)
    labels, probabilities = _run(network, plain_batches(run, split), progress, where)
    kind = read_preparation(run.folder).label_kind
    return Predictions(split.row_ids, labels, probabilities, split.class_names, tuple(notes), kind)


def prepare_rows(
    run: Run,
    data: object,
    *,
    root: str | Path | None = None,
    on_bad_image: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Split:
    """New rows as the network of a run takes them; see ``predict`` for what they may be.

    The labels of the split are all 0 and meaningless. ``say`` is called with each note about how
    the rows were read.

    Raises:
        DataError: If the rows cannot be read or do not fit the run.
    """
    preparation = read_preparation(run.folder)
    where = str(data) if isinstance(data, str | Path) else "the rows given"
    options = dict(run.config.data.options)
    if on_bad_image is not None:
        options["on_bad_image"] = on_bad_image
    rows = load_unlabelled(data, like=preparation.like, options=options, root=root)
    if say is not None:
        for note in rows.notes:
            say(note)
    split = rows.split(preparation.class_names)
    return split if preparation.features is None else _as_features(split, preparation, run, where)


def load_test_rows(run: Run, root: str | os.PathLike[str] | None = None) -> Split:
    """The test rows of the data of a run, not yet standardised.

    Raises:
        DataError: If the data is missing, has no test rows, or was given in Python.
    """
    settings = run.config.data
    if settings.from_python:
        raise DataError(f"{run.path}: its rows were given in Python, so they cannot be read again")
    place = settings.root if root is None else os.fspath(root)
    test = load_unscaled(settings.name, root=place, **settings.options)[0].test
    if test is None:
        raise DataError(f"{run.path}: its data, {settings.name}, has no test rows")
    return test


def plain_batches(run: Run, split: Split) -> Batches:
    """The rows in order and without augmentation, in the batch size of evaluation."""
    return Batches(
        split,
        run.config.train.evaluate_batch_size,
        seed=0,
        shuffle=False,
        augment=False,
        workers=run.config.data.workers,
    )


def save_predictions(
    predictions: Predictions, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Writes predictions, completely or not at all.

    The columns are ``row_id``, ``predicted`` (the name of the class), ``probability`` (of that
    class) and, for each class, ``p(CLASS)``.

    Args:
        predictions: What to write.
        path: File to write, ``.csv`` or ``.parquet``.
        overwrite: Whether a file that exists is replaced.

    Raises:
        ArgumentError: If the file has another extension, or exists.
        ImaeError: If it cannot be written.
    """
    path = check_output(path, overwrite=overwrite)
    content = _parquet(predictions) if path.suffix.lower() == ".parquet" else _csv(predictions)
    write_bytes(path, content)


def check_output(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The path, if predictions can be written under such a name.

    Raises:
        ArgumentError: If it ends neither in .csv nor in .parquet, or must not be overwritten.

    Examples:
        >>> check_output("new.csv").name
        'new.csv'
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"out must end in {' or '.join(SUFFIXES)}, got {str(path)!r}")
    check_overwriting(path, overwrite=overwrite)
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file, completely or not at all.

    Raises:
        ImaeError: If it cannot be written.
    """
    try:
        write_file(path, content)
    except OSError as error:
        raise ImaeError(f"{path}: cannot be written ({error.strerror or error})") from error


def load_network(run: Run, which: str | None) -> Network:
    """The trained network of a run that has finished, in evaluation mode.

    Raises:
        ArgumentError: If ``which`` is neither None nor "final" nor "best".
        DataError: If there are no such weights.
    """
    if which is not None:
        check_choice("which", which, ("final", "best"))
    weights = run.path / "weights"
    if not (weights / f"{which or 'final'}.pt").exists():
        if (weights / "final.pt").exists():
            raise DataError(
                f"{run.path}: has no best weights, as no rows were held out to choose by; use "
                f"the final ones"
            )
        if run.result is not None:  # resuming would leave it as it is
            raise DataError(
                f"{weights / (which or 'final')}.pt: is missing, and the run has finished; put it "
                "back, or train again with another --out"
            )
        raise DataError(
            f"{run.path}: has no {which or 'final'} weights yet; finish it with: "
            f"{run.config.resume_command(run.path)}"
        )
    return run.load_model(which)


def _as_features(split: Split, preparation: Preparation, run: Run, source: str) -> Split:
    """The rows' features of the run's frozen network, in the scale of the training rows."""
    scale, settings = preparation.features, run.config.data
    assert scale is not None
    assert scale.mean is not None
    assert scale.std is not None
    assert settings.features is not None
    features = frozen_features(settings.features, settings.workers)(split).inputs
    assert isinstance(features, Table)
    table = standardise(features, scale.mean, scale.std, row_ids=split.row_ids, source=source)
    return replace(split, inputs=table)


def predicted_classes(network: Network, batches: Batches) -> NDArray[np.int64]:
    """Most likely class of all rows, shape (N,)."""
    return _run(network, batches, None, "the training rows")[0]


@torch.inference_mode()
def _run(
    network: Network, batches: Batches, progress: Progress | None, where: str
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Most likely class (N,) and probabilities (N, C) of all rows."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = network.to(device)
    ids = batches.split.row_ids
    labels, probabilities = [], []
    done = 0
    for batch in batches.epoch(0):
        logits = network(batch.inputs.to(device)).float()
        if logits.shape[1] != len(batches.split.class_names):
            raise DataError(
                f"the network returns {logits.shape[1]} scores, but the run has "
                f"{len(batches.split.class_names)} classes; its files do not belong together"
            )
        is_finite = logits.isfinite().all(1)
        if not is_finite.all():
            row = int(batch.row[int((~is_finite).nonzero()[0])])
            raise DataError(
                f"{where}: row {str(ids[row])!r} has scores that are not finite; look for very "
                f"large numbers in it"
            )
        labels.append(logits.argmax(1).cpu())  # of logits: probabilities can be rounded to a tie
        probabilities.append(logits.softmax(1).cpu())
        done += len(batch)
        if progress is not None:
            progress(done, len(ids))
    return torch.cat(labels).numpy(), torch.cat(probabilities).numpy()


def _columns(predictions: Predictions) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """Names of all columns, the predicted class of every row, and its probability."""
    names = ["row_id", "predicted", "probability"]
    names += [f"p({name})" for name in predictions.class_names]
    predicted = [predictions.class_names[label] for label in predictions.labels]
    rows = np.arange(len(predictions))
    return names, predicted, predictions.probabilities[rows, predictions.labels]


def _csv(predictions: Predictions) -> bytes:
    names, predicted, own = _columns(predictions)
    text = io.StringIO(newline="")
    # Both line break characters are in the terminator, so that an id with either is quoted.
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(names)
    for row, row_id in enumerate(predictions.row_ids):
        numbers = (own[row], *predictions.probabilities[row])
        # The fewest digits from which the same float32 can be read.
        writer.writerow([row_id, predicted[row], *(str(number) for number in numbers)])
    return text.getvalue().encode()


def _parquet(predictions: Predictions) -> bytes:
    arrow = import_extra("pyarrow", extra="data")
    library = import_extra("pyarrow.parquet", extra="data")
    names, predicted, own = _columns(predictions)
    columns = [predictions.row_ids.tolist(), predicted, own, *predictions.probabilities.T]
    file = io.BytesIO()
    library.write_table(arrow.Table.from_arrays(list(map(arrow.array, columns)), names), file)
    return file.getvalue()
