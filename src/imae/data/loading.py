"""Loading data by name or path: labelled rows to train on, and new rows without labels."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from imae._registry import Catalog, Entry
from imae.data.arrays import ARRAY_SUFFIXES, load_array_file, read_inputs
from imae.data.assemble import images_below, load_image_folder, position_ids, written_ids
from imae.data.columns import (
    ID_NAMES,
    LABEL_NAMES,
    CellError,
    ColumnFile,
    listing,
    only_column,
)
from imae.data.encoding import RawTable
from imae.data.features import HashedText, Table, hash_text
from imae.data.image_files import ImageFiles, check_present, confined_names
from imae.data.images import ArrayImages, drop_unreadable, read_into_memory
from imae.data.labels import label_notes
from imae.data.preparation import encoded_table, fit_preparation, standardise
from imae.data.sources.catalog import SOURCES
from imae.data.split import Data, Inputs, Split
from imae.data.table import TABLE_SUFFIXES, as_texts, load_manifest, read_encoded
from imae.data.table_file import FrameColumns, open_columns
from imae.data.torch_dataset import (
    DatasetInputs,
    array_of_numbers,
    from_arrays,
    from_dataset,
    inputs_in_memory,
    is_array,
    is_frame,
    is_map_style,
    text_list,
)
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
_NO_FEATURES = (*ID_NAMES, *LABEL_NAMES, "clean_label", "split", "weight")
# Pillow's conversion to grey; a grey image that was converted to RGB becomes what it was.
_GREY_WEIGHTS = np.array([19595, 38470, 7471], np.uint32).reshape(1, 3, 1, 1)


def load(
    name_or_path: object,
    *,
    root: str | Path | None = None,
    in_memory: bool = False,
    on_bad_image: str = "fail",
    workers: int = 0,
    **options: Any,
) -> Data:
    """Loads a known data set by its name, or your own data from its path or a data frame.

    A known name takes precedence over a file of that name; write ``./digits`` for the file.

    Args:
        name_or_path: ``"digits"``, ``"cifar10"``, ..., a folder of class folders, a CSV or Parquet
            file, or a ``.npz`` or ``.npy`` file; or a frame of pandas or polars, which is read as
            a CSV file of the same cells.
        root: For a known set the folder of its files. For a path the folder that all images
            must be in.
        in_memory: Whether images in files are all decoded now, at their own size.
        on_bad_image: ``"fail"`` stops at an image that cannot be read, when it is needed.
            ``"skip"`` decodes every image now and leaves those out, listed in ``Data.skipped``.
        workers: Processes that decode for ``"skip"``.
        options: Options of the set (see ``imae.data.sources``) or of the layout: ``label_column``,
            ``id_column``, ``path_column``, ``text_column``, ``feature_columns`` and ``drop`` for a
            table, ``resize``, ``crop``, ``flip`` for images, ``pad`` for arrays. None
            means not given.

    Raises:
        ArgumentError: If an option is not known.
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
    name_or_path: object,
    *,
    root: str | Path | None = None,
    in_memory: bool = False,
    on_bad_image: str = "fail",
    workers: int = 0,
    **options: Any,
) -> tuple[Data, bool]:
    """Data as ``load`` returns it, but not yet standardised.

    For callers that train on a part of the training rows, and must fit the scale to that part.

    Returns:
        The data, and whether it is already standardised: known sets have published statistics
        that everybody uses.

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
        if not isinstance(name_or_path, str | os.PathLike) and is_frame(name_or_path):
            frame = FrameColumns(name_or_path, "frame")
            data = LAYOUTS.build("manifest", path=frame, **given)
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


def check_options(options: Mapping[str, Any]) -> None:
    """Raises if settings give the place of data as an option.

    Raises:
        ArgumentError: If so.
    """
    for name in ("root", "path", "name_or_path"):
        if name in options:
            raise ArgumentError(
                f"data.options.{name}: is not an option; data.name and data.root say where it is"
            )


def as_data(
    rows: object, *, root: str | Path | None = None, options: Mapping[str, Any] | None = None
) -> Data:
    """Converts a torch data set, arrays ``(X, y)`` or a frame with labels; data is unchanged.

    Args:
        rows: The rows.
        root: For a frame of image paths the folder that they must be in.
        options: Options of ``load``, for a frame.

    Raises:
        ArgumentError: If it is none of these, or options are given with other rows than a frame.
        DataError: If the rows cannot be used.

    Examples:
        >>> as_data((np.eye(2), [0, 1])).num_classes
        2
    """
    if is_frame(rows):
        check_options(options or {})
        return load_unscaled(rows, root=root, **(options or {}))[0]
    for name, value in (("root", root), ("options", options)):
        if value:
            raise ArgumentError(
                f"data.{name} is for data that is loaded and for data frames; leave it out"
            )
    if isinstance(rows, Data):
        return rows
    if isinstance(rows, tuple | list) and len(rows) == 2:
        data = from_arrays(*rows)
        return data.with_notes(*label_notes(data))
    is_table = any(hasattr(type(rows), name) for name in ("columns", "toarray"))
    if is_array(rows) or is_table or not is_map_style(rows):
        raise ArgumentError(
            "data must be an imae.data.Data, a map-style torch data set of (input, label) pairs, "
            "arrays (X, y) or a frame of pandas or polars with a column of labels; got "
            f"{type(rows).__name__}"
        )
    data = from_dataset(rows)
    return data.with_notes(*label_notes(data))


def existing_path(name_or_path: object) -> Path:
    """The path of the user's data.

    Raises:
        ArgumentError: If it is neither a name nor a path.
        DataError: If it does not exist; a known set of a similar name is suggested.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        kind = None if name_or_path is None else type(name_or_path).__name__
        raise ArgumentError(f"data is given by its name or path or as a data frame, got {kind}")
    path = Path(name_or_path)
    try:
        if path.exists():
            return path
        reason = "no such file or folder"
    except (OSError, ValueError) as error:  # too long, or holds a NUL
        reason = f"it is not a valid path ({error})"
    if os.sep in str(name_or_path) or path.suffix.lower() in (*TABLE_SUFFIXES, *ARRAY_SUFFIXES):
        raise DataError(f"{name_or_path}: {reason}")
    try:
        SOURCES.find(str(name_or_path))
    except ArgumentError as error:
        raise DataError(f"{reason}, and {error}") from None
    raise DataError(f"{name_or_path}: {reason}; to load the known set, give only its name")


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
    """Describes the data in one line: rows, classes with their counts, and columns.

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
    number = len(data.skipped)
    skipped = f"; {number} row{'s' * (number != 1)} skipped" if number else ""
    weighted = "" if data.train.weights is None else "; rows have weights"
    return f"{data.name}: {rows}{skipped}; {classes}; {_inputs(data)}{weighted}"


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


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Rows without labels.

    Args:
        inputs: Images, texts or features, one for each row.
        row_ids: Name of every row in its source, shape (N,), strings, all different.
        notes: What a user should know about how they were read.
    """

    inputs: Inputs
    row_ids: NDArray[np.str_]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    def split(self, class_names: Sequence[str]) -> Split:
        """The rows as a split, from which batches can be made; the labels are all 0, unused."""
        labels = np.zeros(len(self), np.int64)
        return Split(self.inputs, labels, self.row_ids, tuple(class_names))


def load_unlabelled(
    name_or_path: object,
    *,
    like: Inputs,
    options: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
) -> Unlabelled:
    """New rows for a network, prepared like the rows it was trained on.

    Labels are neither needed nor read. A folder gives all images below it, whatever its folders
    are called; a CSV or Parquet file gives the images, texts or features of every row; a ``.npz``
    or ``.npy`` file its inputs. A known set gives its test rows, or its training rows if it has no
    others. Features are found by the names they had in training, in any order and among others.
    Images in files become grey if the network was trained on grey ones.

    Args:
        name_or_path: Name of a known set, or path of your own rows; or the rows themselves: an
            array, a tensor, a data frame, a torch data set, or rows that were read already.
        like: The inputs that were trained on, or ``without_rows`` of their stored preparation.
        options: Options that they were loaded with; ``on_bad_image`` counts for these rows too.
        root: For a known set the folder of its files. For a path the folder that all images
            must be in.

    Raises:
        DataError: If the rows cannot be read, or are not of the kind and shape trained on.

    Examples:
        >>> rows = load_unlabelled("digits", like=load("digits").train.inputs)
        >>> len(rows), rows.inputs.shape
        (355, (1, 8, 8))
    """
    is_named = isinstance(name_or_path, str | Path)
    where = str(name_or_path) if is_named else "the rows given"
    given = dict(options or {})
    place = None if root is None else Path(root)
    if isinstance(name_or_path, Unlabelled):
        rows = name_or_path
    elif not is_named:
        rows = _in_memory(name_or_path, like, given, place, where)
    elif isinstance(name_or_path, str) and name_or_path in SOURCES:
        takes = SOURCES.find(name_or_path).defaults
        own = {key: value for key, value in given.items() if key in takes}
        data = load(name_or_path, root=root, **own)
        split = data.train if data.test is None else data.test
        rows = Unlabelled(split.inputs, split.row_ids)
    else:
        assert isinstance(name_or_path, str | Path)
        path = existing_path(name_or_path)
        rows = _read(path, like, given, place)
        if len(rows) == 0:
            raise DataError(f"{path}: holds no rows")
        rows = _readable(rows, where, given.get("on_bad_image", "fail"))
    inputs = _fitting(rows, like, where)
    if isinstance(inputs, Table):
        assert isinstance(like, Table), "the two are of one kind"
        assert like.mean is not None, "a table that was trained on is brought to one scale"
        assert like.std is not None
        inputs = standardise(inputs, like.mean, like.std, row_ids=rows.row_ids, source=where)
    return replace(rows, inputs=inputs)


def _readable(rows: Unlabelled, where: str, on_bad_image: str) -> Unlabelled:
    check_choice("on_bad_image", on_bad_image, ("fail", "skip"))
    data = Data(where, rows.split(("any",)))
    if on_bad_image == "fail":
        check_present(data)
        return rows
    kept = drop_unreadable(data)
    return Unlabelled(kept.train.inputs, kept.train.row_ids, (*rows.notes, *kept.notes))


def _in_memory(
    given: object, like: Inputs, options: Mapping[str, Any], root: Path | None, where: str
) -> Unlabelled:
    texts = text_list(given) if isinstance(like, HashedText) else None
    if is_frame(given) and not isinstance(like, DatasetInputs):
        rows = _read_columns(FrameColumns(given, where), like, options, root)
    elif texts is not None:
        assert isinstance(like, HashedText)
        rows = Unlabelled(_hashed(texts, like), position_ids(len(texts)))
    else:
        if isinstance(like, DatasetInputs) and is_array(given):
            given = TensorDataset(torch.as_tensor(array_of_numbers(given, where)))
        inputs = inputs_in_memory(given, where=where)
        rows = Unlabelled(inputs, position_ids(len(inputs)))
    if len(rows) == 0:
        raise DataError(f"{where}: there are none")
    return _readable(rows, where, options.get("on_bad_image", "fail"))


def _hashed(texts: Sequence[str], like: HashedText) -> HashedText:
    hashed = hash_text(
        texts, num_features=like.num_features, ngrams=like.ngrams, log_counts=like.log_counts
    )
    return replace(hashed, weights=like.weights, column=like.column, length=like.length)


def _read(path: Path, like: Inputs, options: Mapping[str, Any], root: Path | None) -> Unlabelled:
    layout = layout_of(path)
    if layout == "folder":
        names = images_below(path)
        if not names:
            raise DataError(f"{path}: holds no image")
        # Resolved before the root's, as a link may be above both.
        absolute = [str(path.resolve() / name) for name in names]
        base = path if root is None else root
        files = ImageFiles(base, confined_names(base, absolute, source=str(path)))
        return Unlabelled(files, written_ids(names, source=str(path)))
    if layout == "manifest":
        return _read_columns(open_columns(path), like, options, root)
    return Unlabelled(*read_inputs(path))


def _read_columns(
    file: ColumnFile, like: Inputs, options: Mapping[str, Any], root: Path | None
) -> Unlabelled:
    path = file.path
    path_column, text_column, features = _input_columns(file, like, options)
    named = [name for name in (path_column, text_column) if name is not None]
    free = [name for name in file.names if name not in (*features, *named)]
    given_id = options.get("id_column")
    if isinstance(file, FrameColumns):
        row_id = None  # rows in memory are known by their positions
    else:
        row_id = given_id if given_id in free else only_column(file, free, ID_NAMES)
    wanted = [*named, *([] if row_id is None else [row_id])]
    inputs: Inputs
    notes: list[str] = []
    if isinstance(like, Table) and like.encoding is not None:
        with _needed_columns():
            values, raw = read_encoded(file, wanted, like.encoding)
        inputs = encoded_table(raw, like.encoding)
        for encoding, column in zip(like.encoding, raw.columns, strict=True):
            notes += [] if column.note is None else [column.note]
            notes += encoding.unseen_values(column)
    else:
        with _needed_columns():
            values, numbers = file.read(wanted, features)
    if path_column is not None:
        folder = path.parent if root is None else root
        paths = as_texts(values[path_column])
        inputs = ImageFiles(folder, confined_names(folder, paths, source=str(path)))
    elif text_column is not None:
        assert isinstance(like, HashedText)
        inputs = _hashed(as_texts(values[text_column]), like)
    elif features:
        inputs = Table(np.ascontiguousarray(numbers), columns=features)
    id_column = row_id or path_column
    ids = (
        position_ids(len(inputs))
        if id_column is None
        else written_ids(as_texts(values[id_column]), source=str(path))
    )
    return Unlabelled(inputs, ids, tuple(notes))


@contextlib.contextmanager
def _needed_columns() -> Iterator[None]:
    """Rewords the error about a cell that cannot be used: here no column can be dropped."""
    try:
        yield
    except CellError as error:
        raise DataError(
            f"{error.problem}; the run was trained on this column; correct it"
        ) from None


def _input_columns(
    file: ColumnFile, like: Inputs, options: Mapping[str, Any]
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """The column of paths, or that of texts, or those of features, as the training rows need."""
    if isinstance(like, Table):
        names = like.columns
        if like.encoding is not None:
            names = tuple(each.name for each in like.encoding)
        if names is None:  # trained on arrays, whose columns have no names
            return None, None, tuple(name for name in file.names if name not in _NO_FEATURES)
        missing = [name for name in names if name not in file.names]
        if missing:
            raise DataError(
                f"{file.path}: there is no column {listing(missing)}; trained on "
                f"{listing(names)}, given {listing(file.names)}"
            )
        return None, None, () if like.encoding is not None else names
    kind = "text" if isinstance(like, HashedText) else "path"
    trained = like.column if isinstance(like, HashedText) else None
    named = (options.get(f"{kind}_column"), trained, kind)
    wanted = list(dict.fromkeys(each for each in named if each is not None))
    found = next((name for name in wanted if name in file.names), None)
    if found is None:
        raise DataError(
            f"{file.path}: there is no column {' or '.join(map(repr, wanted))}, as rows of "
            f"{_kind(like)} need; given {listing(file.names)}"
        )
    return (None, found, ()) if kind == "text" else (found, None, ())


def _fitting(rows: Unlabelled, like: Inputs, where: str) -> Inputs:
    """The rows as inputs with the kind, shape and normalisation of the training rows."""
    inputs = rows.inputs
    if isinstance(inputs, ImageFiles) and isinstance(like, ImageFiles):
        inputs = replace(inputs, resize=like.resize, crop=like.crop, blue_first=like.blue_first)
        return replace(inputs, mean=like.mean, std=like.std)
    encoding = like.encoding if isinstance(like, Table) else None
    if encoding is not None and isinstance(inputs, Table) and inputs.encoding is None:
        raise DataError(  # though the numbers of features may agree
            f"{where}: has numbers without names; the network was trained on a table with the "
            f"columns {listing([each.name for each in encoding])}: give a data frame or a file "
            "with these"
        )
    if isinstance(inputs, ImageFiles) and isinstance(like, ArrayImages):
        inputs = _decoded(rows, where, is_grey=like.shape[0] == 1)
    are_images = isinstance(inputs, ArrayImages) and isinstance(like, ArrayImages | ImageFiles)
    if not (are_images or type(inputs) is type(like)) or inputs.shape != like.shape:
        raise DataError(
            f"{where}: holds {_kind(inputs)} of shape {inputs.shape}; the network was trained on "
            f"{_kind(like)} of shape {like.shape}"
        )
    if isinstance(inputs, ArrayImages):
        assert isinstance(like, ArrayImages | ImageFiles)
        return replace(inputs, mean=like.mean, std=like.std, blue_first=like.blue_first)
    return inputs


def _decoded(rows: Unlabelled, where: str, *, is_grey: bool) -> ArrayImages:
    split = rows.split(("unknown",))
    images = read_into_memory(Data(where, split)).train.inputs
    assert isinstance(images, ArrayImages)
    if not is_grey:
        return images
    levels = (images.pixels * _GREY_WEIGHTS).sum(1, dtype=np.uint32, keepdims=True) + 0x8000
    return ArrayImages((levels >> 16).astype(np.uint8), mean=(0.0,), std=(1.0,))


def _kind(inputs: Inputs) -> str:
    kinds = {Table: "features", HashedText: "texts", DatasetInputs: "inputs of a data set"}
    return kinds.get(type(inputs), "images")
