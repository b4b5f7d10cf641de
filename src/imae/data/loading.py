"""Opening data by name or by path, and what was read in one line."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from imae._registry import Catalog, Entry
from imae.data.arrays import ARRAY_SUFFIXES, load_array_file
from imae.data.assemble import load_image_folder
from imae.data.encoding import RawTable
from imae.data.features import HashedText, Table
from imae.data.image_files import check_present
from imae.data.images import drop_unreadable, read_into_memory
from imae.data.labels import label_notes
from imae.data.preparation import fit_preparation
from imae.data.sources.catalog import SOURCES
from imae.data.split import Data
from imae.data.table import TABLE_SUFFIXES, load_manifest
from imae.errors import ArgumentError, DataError, check_choice

_IMAGES = {"root": None, "resize": 256, "crop": 227, "flip": True}

LAYOUTS: Catalog[Data] = Catalog(
    "layout",
    (
        Entry(
            "folder",
            load_image_folder,
            "folder of class folders, directly or under train, validation and test",
            defaults={"path": None, **_IMAGES},
        ),
        Entry(
            "manifest",
            load_manifest,
            "CSV or Parquet file with a label column and paths, texts or features",
            defaults={
                "path": None,
                "label_column": None,
                "id_column": None,
                "path_column": None,
                "text_column": None,
                "feature_columns": None,
                "drop": None,
                **_IMAGES,
            },
        ),
        Entry(
            "arrays",
            load_array_file,
            ".npz file, or .npy files side by side, of images or features and labels",
            defaults={"path": None, "pad": 4, "flip": True},
        ),
    ),
)


def load(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    in_memory: bool = False,
    on_bad_image: str = "fail",
    workers: int = 0,
    **options: Any,
) -> Data:
    """Data by the name of a known set, or by the path of one's own.

    A known name wins over a file of that name; write ``./digits`` for the file.

    Args:
        name_or_path: ``"digits"``, ``"cifar10"``, ..., a folder of class folders, a CSV or Parquet
            file, or a ``.npz`` or ``.npy`` file.
        root: For a known set the folder of its files. For a path the folder that all images
            must be in.
        in_memory: Whether images in files are all decoded now, at their own size.
        on_bad_image: ``"fail"`` stops at an image that cannot be read, when it is needed.
            ``"skip"`` decodes every image now and leaves those out, listed in ``Data.skipped``.
        workers: Processes that decode for ``"skip"``.
        options: What the set takes (see ``imae.data.sources``), or the layout: ``label_column``,
            ``id_column``, ``path_column``, ``text_column``, ``feature_columns`` and ``drop`` for a
            CSV or Parquet file, ``resize``, ``crop``, ``flip`` for images, ``pad`` for arrays. None
            means not given.

    Raises:
        ArgumentError: If an option is not taken.
        DataError: If there is no such set and no such path, or the data cannot be used.

    Examples:
        >>> load("digits").num_classes
        10
    """
    data, is_scaled = load_unscaled(
        name_or_path,
        root=root,
        in_memory=in_memory,
        on_bad_image=on_bad_image,
        workers=workers,
        **options,
    )
    return data if is_scaled else fit_preparation(data)


def load_unscaled(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    in_memory: bool = False,
    on_bad_image: str = "fail",
    workers: int = 0,
    **options: Any,
) -> tuple[Data, bool]:
    """Data as ``load`` returns it, but before its numbers are brought to one scale.

    For callers that train on a part of the training rows, and must fit the scale to that part.

    Returns:
        The data, and whether it has a scale already: known sets bring the statistics that
        everybody uses.

    Raises:
        ArgumentError: As ``load`` does.
        DataError: As ``load`` does.
    """
    check_choice("on_bad_image", on_bad_image, ("fail", "skip"))
    for name, value in (("in_memory", in_memory), ("flip", options.get("flip"))):
        if value not in (None, True, False):
            raise ArgumentError(f"{name} must be true or false, got {value!r}")
    given = {name: value for name, value in options.items() if value is not None}
    if root is not None:
        given["root"] = Path(root)
    is_known = isinstance(name_or_path, str) and name_or_path in SOURCES
    if is_known:
        data = SOURCES.build(str(name_or_path), **given)
    else:
        path = existing_path(name_or_path)
        data = LAYOUTS.build(layout_of(path), path=path, **given)
        data = data.with_notes(*label_notes(data))
        if on_bad_image == "fail":
            check_present(data)
    if on_bad_image == "skip":
        data = drop_unreadable(data, workers=workers)
    if in_memory:
        data = read_into_memory(data)
    return data, is_known and not in_memory


def existing_path(name_or_path: str | Path) -> Path:
    """The path of one's own data.

    Raises:
        ArgumentError: If it is neither a name nor a path.
        DataError: If there is none; a known set of a similar name is suggested.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise ArgumentError(f"data is given by its name or path, got {name_or_path!r}")
    path = Path(name_or_path)
    try:
        if path.exists():
            return path
        reason = "there is no such path"
    except (OSError, ValueError) as error:  # too long, or holds a NUL
        reason = f"no path can be called so ({error})"
    try:
        SOURCES.find(str(name_or_path))
    except ArgumentError as error:
        raise DataError(f"{error}; and {reason}") from None
    raise DataError(f"{name_or_path}: {reason}; the known set is asked for by its bare name")


def layout_of(path: Path) -> str:
    """Which of ``LAYOUTS`` is at the path: "folder", "manifest" or "arrays".

    Raises:
        DataError: If it is none of them.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        return "folder"
    if suffix in TABLE_SUFFIXES:
        return "manifest"
    if suffix in ARRAY_SUFFIXES:
        return "arrays"
    known = ", ".join((*TABLE_SUFFIXES, *ARRAY_SUFFIXES))
    raise DataError(f"{path}: is neither a folder nor a file of a known kind ({known})")


_MOST_NAMES = 5


def describe(data: Data) -> str:
    """One line of what was read: rows, classes with their counts, and columns.

    Examples:
        >>> from imae.data import load
        >>> describe(load("digits"))  # doctest: +ELLIPSIS
        'digits: 1442 training rows, 355 test rows; 10 classes (0 143, ...); images 1 x 8 x 8'
    """
    kinds = {"train": "training", "validation": "validation", "test": "test"}
    rows = ", ".join(f"{len(split)} {kinds[part]} rows" for part, split in data.splits().items())
    counts = np.bincount(data.train.labels, minlength=data.num_classes)
    shown = [
        f"{name} {count}" for name, count in zip(data.class_names, counts.tolist(), strict=True)
    ]
    more = ", ..." if len(shown) > _MOST_NAMES else ""
    classes = f"{data.num_classes} classes ({', '.join(shown[:_MOST_NAMES])}{more})"
    skipped = f"; {len(data.skipped)} rows skipped" if data.skipped else ""
    return f"{data.name}: {rows}{skipped}; {classes}; {_inputs(data)}"


def _inputs(data: Data) -> str:
    inputs = data.train.inputs
    if isinstance(inputs, HashedText):
        return "texts"
    if isinstance(inputs, RawTable):
        return f"columns {_some([column.name for column in inputs.columns])}"
    if isinstance(inputs, Table) and inputs.encoding is not None:
        names = [f"{each.name} ({each.kind})" for each in inputs.encoding]
        return f"columns {_some(names)}"
    if isinstance(inputs, Table) and inputs.columns is not None:
        return f"columns {_some(inputs.columns)}"
    size = " x ".join(map(str, inputs.shape))
    return f"{size} features" if len(inputs.shape) == 1 else f"images {size}"


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
