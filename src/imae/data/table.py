"""A CSV or Parquet file as data: image paths, texts or features, with a label for every row."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.assemble import Columns, assemble, divide
from imae.data.columns import ColumnFile, Roles, find_roles
from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles, confined_names
from imae.data.split import Data, Inputs, position_ids, written_ids
from imae.data.table_file import CsvFile, ParquetFile
from imae.errors import DataError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")


def load_manifest(
    path: Path,
    *,
    root: Path | None = None,
    label_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    resize: int = 256,
    crop: int = 227,
    flip: bool = True,
) -> Data:
    """The data that a CSV or Parquet file lists.

    The label is in the column ``label`` (or ``labels``, ``target``, ``y``). The inputs are the
    images named in a column ``path``, or the texts in a column ``text``, or else all other
    columns, which must be numbers. Optional columns: ``row_id`` or ``id``, ``clean_label``,
    ``split`` and ``weight``. Without ids a row is called by its path, or by its position from 0.

    Args:
        path: The file.
        root: Folder that the paths are relative to and may not leave; the file's own by default.
        label_column: Column of the labels, if it is called otherwise.
        path_column: Column of the paths, if it is called otherwise.
        text_column: Column of the texts, if it is called otherwise.
        feature_columns: Columns that are features, whatever they are called; no others are.
        resize: Side of the square that an image is warped to.
        crop: Side of the square that is cut out of it.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If the file or a row of it cannot be used; the message says which and why.
    """
    file = open_columns(path)
    roles = find_roles(
        file,
        label_column=label_column,
        path_column=path_column,
        text_column=text_column,
        feature_columns=feature_columns,
    )
    values, numbers = file.read(roles.values(), roles.numbers())
    if len(values[roles.label]) == 0:
        raise DataError(f"{path}: has a header and no rows")
    inputs: Inputs
    if roles.path is not None:
        folder = path.parent if root is None else root
        names = confined_names(folder, as_texts(values[roles.path]), source=str(path))
        inputs = ImageFiles(folder, names, resize=resize, crop=crop, flip=flip)
    elif roles.text is not None:
        inputs = hash_text(as_texts(values[roles.text]))
    else:
        features = np.ascontiguousarray(numbers[:, : len(roles.features)])
        inputs = Table(features, columns=roles.features)
    columns = Columns(
        source=str(path),
        inputs=inputs,
        labels=values[roles.label],
        row_ids=_row_ids(roles, values, source=str(path)),
        clean_labels=values[roles.clean_label] if roles.clean_label else None,
        weights=numbers[:, -1].astype(np.float32) if roles.weight else None,
    )
    splits = as_texts(values[roles.split]) if roles.split else None
    return assemble(divide(columns, splits), name=path.stem)


def open_columns(path: Path) -> ColumnFile:
    """A CSV or Parquet file, by its ending.

    Raises:
        DataError: If it cannot be read, or its header is of no use.
    """
    return ParquetFile(path) if path.suffix.lower() == ".parquet" else CsvFile(path)


def _row_ids(roles: Roles, values: dict[str, list[object]], *, source: str) -> NDArray[np.str_]:
    named = roles.row_id or roles.path
    if named is None:
        return position_ids(len(values[roles.label]))
    return written_ids(as_texts(values[named]), source=source)


def as_texts(values: Sequence[object]) -> list[str]:
    """Cells as text; one that is not there is empty text."""
    return [
        value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else ""
        if value is None
        else str(value)
        for value in values
    ]
