"""Rows of a source as data: ids checked, splits found, and folders of class folders read."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.image_files import SUFFIXES, ImageFiles, confined_names
from imae.data.labels import LabelColumn, encode_labels, label_kind
from imae.data.split import Data, Inputs, Split
from imae.errors import DataError

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}


@dataclass(frozen=True, eq=False)
class Columns:
    """Rows of one source before their labels become numbers.

    Args:
        source: File or folder, for messages.
        inputs: One for each of the N rows.
        labels: N labels as they were written.
        row_ids: N ids.
        clean_labels: N true labels as they were written, if there are any.
        weights: N weights, if there are any.
        are_names: Whether the labels are names; see ``LabelColumn``.
    """

    source: str
    inputs: Inputs
    labels: Sequence[object]
    row_ids: NDArray[np.str_]
    clean_labels: Sequence[object] | None = None
    weights: NDArray[np.float32] | None = None
    are_names: bool = False

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """The rows at these positions."""
        clean = self.clean_labels
        return Columns(
            source=self.source,
            inputs=self.inputs.take(rows),
            labels=[self.labels[row] for row in rows],
            row_ids=self.row_ids[rows],
            clean_labels=None if clean is None else [clean[row] for row in rows],
            weights=None if self.weights is None else self.weights[rows],
            are_names=self.are_names,
        )


def assemble(
    parts: Mapping[str, Columns], *, name: str, class_names: Sequence[str] | None = None
) -> Data:
    """Data from the columns of its splits.

    The classes are those of the training rows, given and clean labels together.

    Args:
        parts: Columns by split: ``"train"``, and optionally ``"validation"`` and ``"test"``.
        name: Name of the data.
        class_names: Names of the classes, if they are known.

    Raises:
        DataError: If there are no training rows, a column has another length, a label or weight is
            wrong, or a row id appears twice.
    """
    first = next(iter(parts.values()))
    if "train" not in parts or len(parts["train"].inputs) == 0:
        raise DataError(f"{first.source}: there are no rows to train on")
    order = ["train", *(part for part in parts if part != "train")]
    written = {part: _label_columns(parts[part]) for part in order}
    others = [column for part in order[1:] for column in written[part]]
    encoded, names = encode_labels(written["train"], others, class_names=class_names)
    splits: dict[str, Split] = {}
    for part in order:
        labels, *clean = (encoded.pop(0) for _ in written[part])
        splits[part] = _split(parts[part], labels, clean[0] if clean else None, names)
    data = Data(name, splits["train"], splits.get("validation"), splits.get("test"))
    if class_names is not None:
        return data
    every = [value for part in order for column in written[part] for value in column.values]
    return replace(data, label_kind=label_kind(every))


def divide(columns: Columns, splits: Sequence[str] | None) -> dict[str, Columns]:
    """The columns by split, for a source that names the split of every row.

    Args:
        columns: All rows.
        splits: Split of every row (train, validation, val, test ...), or None if all are train.

    Raises:
        DataError: If a row names an unknown split.
    """
    if splits is None:
        return {"train": columns}
    rows: dict[str, list[int]] = {}
    for row, written in enumerate(splits):
        part = SPLIT_NAMES.get(written.strip().lower())
        if part is None:
            raise DataError(
                f"{columns.source}: row {str(columns.row_ids[row])!r}: split {written!r} is "
                f"none of train, validation, test"
            )
        rows.setdefault(part, []).append(row)
    return {part: columns.take(np.array(positions)) for part, positions in rows.items()}


def _label_columns(part: Columns) -> list[LabelColumn]:
    written = [part.labels] if part.clean_labels is None else [part.labels, part.clean_labels]
    return [LabelColumn(part.source, part.row_ids, values, part.are_names) for values in written]


def _split(
    part: Columns,
    labels: NDArray[np.int64],
    clean: NDArray[np.int64] | None,
    class_names: tuple[str, ...],
) -> Split:
    try:
        return Split(part.inputs, labels, part.row_ids, class_names, clean, part.weights)
    except DataError as error:
        raise DataError(f"{part.source}: {error}") from error


_LONGEST_ID = 512  # ids are an array as wide as the longest


def position_ids(number: int) -> NDArray[np.str_]:
    """Ids of rows that have none of their own: their position, counted from 0.

    Examples:
        >>> position_ids(3).tolist()
        ['0', '1', '2']
    """
    return np.arange(number).astype(np.str_)


def written_ids(ids: Sequence[str], *, source: str) -> NDArray[np.str_]:
    """Ids of rows as their source gives them, checked.

    Raises:
        DataError: If an id is blank, too long, not UTF-8 text, holds a NUL or appears twice.
    """
    seen: dict[str, int] = {}
    for row, row_id in enumerate(ids):
        if not row_id.strip():
            raise DataError(f"{source}: row {row} (counted from 0) has no id")
        if len(row_id) > _LONGEST_ID or "\0" in row_id:
            raise DataError(
                f"{source}: row {row} (counted from 0) has an id of {len(row_id)} characters; ids "
                f"have at most {_LONGEST_ID} and no NUL"
            )
        if not _is_utf8(row_id):
            raise DataError(
                f"{source}: row {row} (counted from 0) has an id that is not UTF-8 text, so no "
                f"report could hold it: {row_id!r}; rename it"
            )
        if row_id in seen:
            raise DataError(
                f"{source}: row id {row_id!r} appears twice, in rows {seen[row_id]} and {row} "
                f"(counted from 0)"
            )
        seen[row_id] = row
    return np.array(ids, dtype=np.str_)


def _is_utf8(text: str) -> bool:
    """Whether it can be encoded; on Linux the name of a file need not be UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_image_folder(
    path: Path,
    *,
    root: Path | None = None,
    resize: int = 256,
    crop: int = 227,
    flip: bool = True,
) -> Data:
    """The images of a folder that has one folder for each class.

    If all folders in it are called train, validation (or val, valid, dev) or test, the class
    folders are looked for inside those. Images may be deeper in a class folder; hidden files,
    files that are not images and links to other folders are skipped. A row's id is its path
    below ``path``.

    Args:
        path: The folder.
        root: Folder that all images must be in, if links point outside ``path``.
        resize: Side of the square that an image is warped to.
        crop: Side of the square that is cut out of it.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If a class folder holds no image, there are fewer than two, folders of splits
            are mixed with others, a folder cannot be listed, or a link points outside.
    """
    folders = _folders(path)
    if not folders:
        raise DataError(f"{path}: holds no class folders and no arrays; make one folder per class")
    named = [name for name in folders if name.lower() in SPLIT_NAMES]
    if len(named) < len(folders):
        _check_classes(path, named, folders)
        groups = {"train": [""]}
    else:
        groups = {}
        for name in folders:
            groups.setdefault(SPLIT_NAMES[name.lower()], []).append(f"{name}/")
        if "train" not in groups:
            raise DataError(f"{path}: has folders {', '.join(folders)} but none called train")
    parts = {}
    for part, prefixes in groups.items():
        names, labels = _images(path, prefixes)
        base = path if root is None else root
        within = [os.path.join(os.path.relpath(path, base), name) for name in names]
        files = confined_names(base, within, source=str(path))
        parts[part] = Columns(
            source=str(path),
            inputs=ImageFiles(base, files, resize=resize, crop=crop, flip=flip),
            labels=labels,
            row_ids=written_ids(names, source=str(path)),
            are_names=True,
        )
    return assemble(parts, name=path.resolve().name)


def _check_classes(path: Path, named: Sequence[str], folders: Sequence[str]) -> None:
    """Raises if folders of splits are mixed with others; a single train may be a vehicle class."""
    if len({SPLIT_NAMES[name.lower()] for name in named}) > 1:
        others = [name for name in folders if name not in named]
        raise DataError(
            f"{path}: has {', '.join(named)} and also {', '.join(others[:3])}; move folders "
            f"that are not splits elsewhere, or rename the classes"
        )


def _images(path: Path, prefixes: Sequence[str]) -> tuple[list[str], list[object]]:
    """Path of every image below the folder, with forward slashes, and its class, sorted."""
    names: list[str] = []
    labels: list[object] = []
    for prefix in prefixes:
        classes = _folders(path / prefix)
        if not classes:
            raise DataError(f"{path / prefix}: holds no class folders; make one folder per class")
        for label in classes:
            found = images_below(path / prefix / label)
            if not found:
                raise DataError(
                    f"{path / prefix / label}: class folder holds no image; each folder in "
                    f"{(path / prefix).resolve()} must be a class with images; is that the folder "
                    "of the data?"
                )
            names.extend(f"{prefix}{label}/{name}" for name in found)
            labels.extend([label] * len(found))
    return names, labels


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        raise _unlisted(error) from error


def images_below(folder: Path) -> list[str]:
    """Paths of all images below a folder, with forward slashes, sorted, without hidden ones.

    Raises:
        DataError: If a folder cannot be listed.
    """
    found = []

    def fail(error: OSError) -> None:
        raise _unlisted(error) from error

    for place, folders, files in os.walk(folder, onerror=fail):  # follows no links to folders
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                found.append(os.path.relpath(os.path.join(place, name), folder))
    return sorted(name.replace(os.sep, "/") for name in found)


def _unlisted(error: OSError) -> DataError:
    return DataError(f"{error.filename}: cannot be listed ({error.strerror})")
