"""A second network, trained on the labels that the best epoch of a first one predicts."""

import csv
import io
import os
from pathlib import Path

import numpy as np

from imae.errors import ArgumentError, DataError
from imae.methods.catalog import METHODS
from imae.records.files import whole_file
from imae.train.config import Config, build_config
from imae.train.launch import given_data, train
from imae.train.predict import load_network, plain_batches, predicted_classes
from imae.train.rows import Prepared, load_rows, prepare
from imae.train.run import Run

LABELS = "student.csv"  # in the folder of the first run


def train_student(
    run: Run | str | os.PathLike[str],
    data: object = None,
    *,
    out: str | os.PathLike[str] | None = None,
    show: bool = False,
) -> Run:
    """Trains a new network with the settings of a run on the labels that the run predicts.

    The best epoch of a run has memorised few of the wrong labels, and contradicts most of them. A
    network that starts from its predictions has fewer wrong labels to memorise. Every training row
    is relabelled, those held out too, and none is held out again: their labels would be the first
    network's. The labels are kept as ``student.csv`` in the folder of the first run.

    Args:
        run: A finished run, or its folder.
        data: The rows again, if they were given in Python; or where data that was moved is now.
        out: Folder of the new run; by default that of the first with ``-student`` at its end.
        show: Whether to show progress on the error stream.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; the new run can be resumed.
        ArgumentError: If the run trained on a part of its rows only.
        DataError: If the run is not finished, or the data is not what it was trained on.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from imae.train import train
        >>> X, y = np.random.default_rng(1).normal(size=(80, 4)), np.arange(80) % 2
        >>> settings = {"train": {"epochs": 2}, "out": tempfile.mkdtemp()}
        >>> first = train(settings, data=(X, y))
        >>> second = train_student(first, (X, y), out=tempfile.mkdtemp())
        >>> len(second.folder.labels().given)
        80

    Reference:
        Chen et al., "Robustness of accuracy metric and its inspirations in learning with noisy
        labels", AAAI 2021.
    """
    run = run if isinstance(run, Run) else Run(run)
    network = load_network(run, None)
    config = run.config
    rows = None
    if data is not None:
        rows, config = given_data(config, data)
    elif config.data.from_python:
        raise ArgumentError(f"{run.path}: its data was given in Python; give it again: data=...")
    method = METHODS.build(config.method.name, **config.method.arguments)
    if config.data.rows is not None or method.needs_trusted:
        raise ArgumentError(
            f"{run.path}: was trained on a part of the rows (data.rows or trusted rows); a student "
            "needs a prediction for each of them"
        )
    prepared = prepare(config, load_rows(config, rows))
    _check_same_content(run, prepared)
    held = prepared.validation if prepared.is_held_out else None
    lines = []
    for split in (prepared.train, *([] if held is None else [held])):
        labels = predicted_classes(network, plain_batches(run, split))
        names = np.array(split.class_names, dtype=object)[labels]
        lines += list(zip(split.row_ids.tolist(), names.tolist(), strict=True))
    path = run.path / LABELS
    _write(path, lines)
    student = _student_config(config, path, out or f"{run.path}-student", prepared)
    return train(student, data=rows, show=show)


def _student_config(
    config: Config, labels: Path, out: str | os.PathLike[str], prepared: Prepared
) -> Config:
    content = config.model_dump()
    content |= {"noise": None, "noise_map": None, "noise_exact": False, "out": os.fspath(out)}
    content["data"] |= {"labels": str(labels.resolve()), "planted": 0.0}
    if prepared.is_held_out:
        content["data"]["hold_out"] = 0.0
    return build_config(content)


def _check_same_content(run: Run, prepared: Prepared) -> None:
    before = run.folder.preparation().get("content")
    if before is not None and before != dict(prepared.content):
        raise DataError(f"{run.path}: the data is not what this run was trained on")


def _write(path: Path, lines: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("row_id", "label"))
    writer.writerows(lines)
    with whole_file(path) as file:
        file.write(text.getvalue().encode("utf-8"))
