"""Inputs of an audit other than a run: labels of data, probabilities and features."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import check_probabilities, of_run
from imae.data import Data, Split, Table
from imae.data.arrays import read_npy
from imae.data.columns import find_roles, listing
from imae.data.image_files import SUFFIXES
from imae.data.loading import as_data, layout_of, load_unscaled
from imae.data.sources.catalog import SOURCES
from imae.data.table import TABLE_SUFFIXES, as_texts
from imae.data.table_file import open_columns
from imae.errors import ArgumentError, ChangedDataError, DataError, ImaeError
from imae.records import RunFolder
from imae.train import Config, train
from imae.train.launch import teacher_folder
from imae.train.preparation import frozen_features
from imae.train.relabel import with_labels
from imae.train.rows import content_hashes, unchanged_data

if TYPE_CHECKING:
    from torch import nn

COLUMN_OPTIONS = (
    "label_column",
    "id_column",
    "path_column",
    "text_column",
    "feature_columns",
    "drop",
)
"""Options of ``imae.data.load`` that say which column of a table is what."""
ARGUMENTS = {"T": 4.0, "normalize": "chance"}
"""Arguments of ``imae_capped`` in an audit's own training.

The T that training chooses by itself can give up whole classes under asymmetric noise, and then
all of their labels look wrong; results/audit compares it with fixed ones, at this scale.
"""


@contextlib.contextmanager
def training_run(rows: object, model: "nn.Module | None", settings: object) -> Iterator[RunFolder]:
    """The run of an audit on rows from Python, kept only if the settings name a folder for it.

    Args:
        rows: Rows with labels, as ``imae.train.train`` takes them.
        model: The network; None for one that suits the rows.
        settings: Settings that differ from those of an audit, a mapping or a ``Config``.

    Raises:
        ImaeError: As ``imae.train.train`` does.
    """
    asked = settings.model_dump(exclude_unset=True) if isinstance(settings, Config) else settings
    if not isinstance(asked, Mapping):
        raise ArgumentError(f"settings must be a mapping or a Config, got {asked!r}")
    data = asked.get("data", {})
    if isinstance(data, Mapping):
        data = {"own_validation": False, **data}
    method = asked.get("method", {"name": "imae_capped", "arguments": ARGUMENTS})
    with tempfile.TemporaryDirectory() as folder:
        chosen = {"out": f"{folder}/run", **asked, "data": data, "method": method}
        yield train(chosen, data=rows, model=model).folder


def are_photos(name: str, options: Mapping[str, Any]) -> bool:
    """Whether data is a folder of images or a table of their paths; not for sets with a name.

    Args:
        name: Name of the data.
        options: Options of ``imae.data.load``.
    """
    path = Path(name)
    if name in SOURCES or not path.exists():
        return False
    try:
        layout = layout_of(path)
        columns = {key: options[key] for key in COLUMN_OPTIONS if key in options}
        is_table = layout == "manifest"
        return (layout == "folder" and _holds_image(path)) or (
            is_table and find_roles(open_columns(path), **columns).path is not None
        )
    except DataError:  # training says so too
        return False


def _holds_image(folder: Path) -> bool:
    return any(name.lower().endswith(SUFFIXES) for *_, names in os.walk(folder) for name in names)


def labelled_rows(settings: Mapping[str, Any]) -> tuple[Split, set[str], dict[str, str]]:
    """The training rows of data with their given labels, all its row ids, and its content's hashes.

    Args:
        settings: ``name``, and if needed ``root``, ``options`` and ``labels``, as in the section
            ``data`` of the settings of a run.

    Raises:
        DataError: If the data or the labels cannot be used.
    """
    options = settings.get("options") or {}
    data, _ = load_unscaled(settings["name"], root=settings.get("root"), **options)
    every = {row_id for split in data.splits().values() for row_id in split.row_ids.tolist()}
    every.update(row.row_id for row in data.skipped)
    data = with_labels(data, settings.get("labels"))
    return data.train, every, content_hashes(data, texts=False)


def read_probabilities(
    path: Path, rows: Split, every: Collection[str] | None = None
) -> NDArray[np.float64]:
    """Probabilities of every class for every row, shape (N, C).

    Args:
        path: A ``.npy`` matrix in the order of the rows, or a CSV or Parquet file as
            ``imae predict`` writes it, by row id.
        rows: The rows.
        every: Ids of all rows of the data, which the file may contain too; by default the rows.

    Raises:
        ArgumentError: If the file has another extension.
        DataError: If it cannot be read, or does not match the rows.
    """
    if path.suffix.lower() == ".npy":
        matrix = _read_matrix(path)
        if matrix.ndim == 2 and matrix.shape[1] != rows.num_classes:
            raise DataError(
                f"{path}: has {matrix.shape[1]} columns, but the data has {rows.num_classes} "
                f"classes ({listing(rows.class_names)})"
            )
        check_probabilities(matrix, len(rows), source=path, row_ids=rows.row_ids)
        return matrix
    if path.suffix.lower() not in TABLE_SUFFIXES:
        endings = ", ".join((".npy", *TABLE_SUFFIXES))
        raise ArgumentError(f"{path}: a file of probabilities must end in {endings}")
    file = open_columns(path)
    columns = [f"p({name})" for name in rows.class_names]
    missing = [name for name in ("row_id", *columns) if name not in file.names]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]!r}; imae predict writes such files")
    values, numbers = file.read(["row_id"], columns)
    found = as_texts(values["row_id"])
    places = {row_id: place for place, row_id in enumerate(found)}
    if len(places) < len(found):
        twice, count = Counter(found).most_common(1)[0]
        raise DataError(f"{path}: row {twice!r} appears {count} times")
    known = set(rows.row_ids.tolist() if every is None else every)
    others = [row_id for row_id in found if row_id not in known]
    if others:
        raise DataError(
            f"{path}: row {others[0]!r} is not in the data ({len(others)} of {len(found)} rows are "
            "not); were these predicted for other data?"
        )
    absent = [row_id for row_id in rows.row_ids.tolist() if row_id not in places]
    if absent:
        raise DataError(
            f"{path}: has no probabilities for row {absent[0]!r} ({len(absent)} of {len(rows)} "
            "rows are missing)"
        )
    matrix = numbers[[places[row_id] for row_id in rows.row_ids.tolist()]]
    check_probabilities(matrix, len(rows), source=path, row_ids=rows.row_ids)
    return matrix


def _read_matrix(path: Path) -> NDArray[np.float64]:
    matrix = read_npy(path)
    if matrix.dtype.kind not in "fiu":
        raise DataError(f"{path}: must hold one matrix of numbers")
    return matrix.astype(np.float64)


def compared_features(
    run: RunFolder, network: str, row_ids: NDArray[np.str_]
) -> NDArray[np.floating[Any]]:
    """Frozen features of the rows of a run, in the order of these ids, shape (N, F).

    Args:
        run: The run.
        network: Name of the pretrained network.
        row_ids: Ids of the rows.

    Raises:
        ArgumentError: If there is no such network, or the rows are not colour images.
        DataError: If the data is not what the run was trained on.
    """
    settings = run.config()["data"]
    data = unchanged_data(settings, stored_content(run))
    return _features(data, network, row_ids, settings)


def _features(
    data: Data, network: str, row_ids: NDArray[np.str_], settings: Mapping[str, Any]
) -> NDArray[np.floating[Any]]:
    as_features = frozen_features(network, workers=settings.get("workers") or 0)
    wanted = set(row_ids.tolist())
    found: dict[str, NDArray[np.floating[Any]]] = {}
    for split in (data.validation, data.train):
        if split is not None and wanted & set(split.row_ids.tolist()):
            table = as_features(split).inputs
            assert isinstance(table, Table)
            found |= dict(zip(split.row_ids.tolist(), table.values, strict=True))
    missing = [row_id for row_id in row_ids.tolist() if row_id not in found]
    if missing:
        raise DataError(f"row {missing[0]!r} is no longer in {settings['name']}")
    return np.stack([found[row_id] for row_id in row_ids.tolist()])


def run_features(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.floating] | None:
    """The frozen features that a run was trained on, if any, in the order of these rows.

    Rows that were given in Python are gone: then there are none.
    """
    settings = run.config().get("data") or {}
    network = settings.get("features")
    if not network or settings.get("from_python"):
        return None
    return compared_features(run, network, row_ids)


def features_of_split(rows: Split, network: str) -> NDArray[np.floating[Any]]:
    """Frozen features of these rows, in their order, shape (N, F).

    Raises:
        ArgumentError: If there is no such network, or it is not for such rows.
    """
    table = frozen_features(network)(rows).inputs
    assert isinstance(table, Table)
    return table.values


def features_of_rows(rows: object, run: RunFolder) -> NDArray[np.floating] | None:
    """The frozen features of rows from Python that a run was trained on, if any, in its order.

    Args:
        rows: The rows.
        run: The run on them.
    """
    settings = run.config()["data"]
    if not settings.get("features"):
        return None
    data = as_data(rows, root=settings.get("root"), options=settings.get("options"))
    return _features(data, settings["features"], of_run(run).row_ids, settings)


def stored_content(run: RunFolder) -> Mapping[str, str]:
    """Hashes of the parts of the data that a run was trained on; empty for an early version."""
    try:
        return dict(run.preparation().get("content", {}))
    except DataError:
        return {}


def teacher_of(run: RunFolder) -> Path | None:
    """The folder of the run that predicted the labels of this one; None if it is no student."""
    try:
        labels = (run.config().get("data") or {}).get("labels")
    except DataError:
        return None
    return teacher_folder(labels) if isinstance(labels, str) else None


def row_keys(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.uint64] | None:
    """A hash of each row, equal for equal rows; None if the data no longer exists.

    Raises:
        ChangedDataError: If the data is not what the run was trained on.
    """
    try:
        settings = run.config()["data"]
        if settings.get("from_python"):
            return None
        rows = unchanged_data(settings, stored_content(run)).train
        keys = rows.inputs.row_keys()
    except ChangedDataError:
        raise
    except (ImaeError, KeyError, TypeError):  # moved, or rows from Python that have no name
        return None
    known = {} if keys is None else dict(zip(rows.row_ids.tolist(), keys, strict=True))
    if not all(row_id in known for row_id in row_ids.tolist()):
        return None
    return np.array([known[row_id] for row_id in row_ids.tolist()], np.uint64)
