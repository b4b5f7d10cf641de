"""A CSV or Parquet file as data: image paths, texts or features, with a label for every row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.assemble import Columns, assemble, divide, position_ids, written_ids
from imae.data.columns import NUMBER_FORMATS, CellError, ColumnFile, Roles, find_roles, listing
from imae.data.encoding import (
    KINDS,
    ColumnEncoding,
    RawColumn,
    RawTable,
    as_column,
    fit_encoding,
    read_as,
    typed_column,
)
from imae.data.features import Table, hash_text
from imae.data.image_files import SUFFIXES, ImageFiles, confined_names
from imae.data.split import Data, Inputs, Split
from imae.data.table_file import FrameColumns, open_columns
from imae.errors import DataError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_ROWS_OF_A_LABEL = 10  # from this number on, one value for each label is no coincidence
_FIRST_LOOK = 1000  # rows, which show for most columns what all rows would
_COPIED_COLUMNS = 16
_FEWEST_ROWS = 20  # below this all values may be different by chance
_MOST_DIFFERENT = 0.95  # part of the rows; above it, words are ids or free text
_AS_IDS = "if it names the rows, give it with id_column (--id-column)"
_FAR = 20  # times the middle half of the cells: such a deviation leaves no scale to the others
_WORDS_OF_A_TEXT = 4  # on average; cells with more words are free text


def load_manifest(
    path: Path | FrameColumns,
    *,
    root: Path | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    resize: int = 256,
    crop: int = 227,
    flip: bool = True,
) -> Data:
    """The data that a CSV or Parquet file, or a data frame, lists.

    The label is in the column ``label`` (or ``labels``, ``target``, ``y``). The inputs are the
    images named in a column ``path``, or the texts in a column ``text``, or else all other
    columns: numbers, dates and categories, with empty cells allowed. Optional columns: ``row_id``
    or ``id``, ``clean_label``, ``split`` and ``weight``. Without ids a row is identified by its
    path or its position from 0. A column with a different value in each row, such as a number that
    counts the rows, is not used unless it is named in ``feature_columns``; ``Data.notes`` says so.

    Args:
        path: The file, or a data frame.
        root: Folder that the paths are relative to and may not leave; by default the file's own,
            for a frame the working directory.
        label_column: Column of the labels, if it has another name.
        id_column: Column of the row ids, if it has another name.
        path_column: Column of the paths, if it has another name.
        text_column: Column of the texts, if it has another name.
        feature_columns: The columns that are features, whatever their names are.
        drop: Columns that are not used. One text may hold several, separated by commas.
        resize: Side of the square that an image is warped to.
        crop: Side of the square that is cut out of it.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If the file or a row of it cannot be used; the message says which and why.
    """
    file: ColumnFile = path if isinstance(path, FrameColumns) else open_columns(path)
    path = file.path
    roles = find_roles(
        file,
        label_column=label_column,
        id_column=id_column,
        path_column=path_column,
        text_column=text_column,
        feature_columns=feature_columns,
        drop=drop,
    )
    numbers = [] if roles.weight is None else [roles.weight]
    if roles.weight is not None and file.is_boolean(roles.weight):
        raise DataError(f"{path}: column {roles.weight!r} holds booleans; weights are numbers")
    values, matrix, features = _read_to_train(file, roles.values(), numbers, roles.features)
    if len(values[roles.label]) == 0:
        raise DataError(f"{path}: has a header and no rows")
    notes: list[str] = []
    if file.decimal == ",":
        notes.append("cells are separated by semicolons, so 17,5 is read as 17.5")
    if roles.weight is not None:
        notes.append(
            f"column {roles.weight!r} weights the rows in training; if it is a feature, name all "
            f"features (--set data.options.feature_columns={roles.weight},...) or rename it; to "
            f"leave it out: --drop {roles.weight}"
        )
    uses = roles.uses()
    inputs: Inputs
    if roles.path is not None:
        folder = path.parent if root is None else root
        names = confined_names(folder, as_texts(values[roles.path]), source=str(path))
        inputs = ImageFiles(folder, names, resize=resize, crop=crop, flip=flip)
    elif roles.text is not None:
        inputs = replace(hash_text(as_texts(values[roles.text])), column=roles.text)
    else:
        inputs = _feature_inputs(
            features, path, keep_all=feature_columns is not None, notes=notes, uses=uses
        )
    if roles.unused:
        beside = f"not used: the inputs are the {'images' if roles.path else 'texts'}"
        uses |= dict.fromkeys(roles.unused, beside)
        notes.append(
            f"columns {listing(roles.unused)} are not used: the inputs are the "
            f"{'images' if roles.path else 'texts'} in {roles.path or roles.text!r}"
        )
    columns = Columns(
        source=str(path),
        inputs=inputs,
        labels=values[roles.label],
        row_ids=_row_ids(roles, values, source=str(path)),
        clean_labels=values[roles.clean_label] if roles.clean_label else None,
        weights=matrix[:, 0].astype(np.float32) if numbers else None,
    )
    splits = as_texts(values[roles.split]) if roles.split else None
    data = assemble(divide(columns, splits), name=path.stem)
    return _described(data, file, notes, uses)


def label_frame(
    frame: FrameColumns, labels: Sequence[object], *, class_names: Sequence[str] | None = None
) -> Data:
    """Data of a frame whose columns are all features, and labels that are not among them.

    Columns are read as ``load_manifest`` reads features; a single column ``text`` holds texts.

    Args:
        frame: The frame.
        labels: A label for each row.
        class_names: Names of the classes, if the labels are integers from 0.

    Raises:
        DataError: If a row or label cannot be used; the message says which and why.
    """
    if not frame.names:
        raise DataError(f"{frame.path}: has no columns")
    notes: list[str] = []
    uses: dict[str, str] = {}
    inputs: Inputs
    if frame.names == ("text",):
        values, _ = frame.read(frame.names, ())
        inputs, uses = replace(hash_text(as_texts(values["text"])), column="text"), {"text": "text"}
    else:
        features = _read_to_train(frame, (), (), frame.names)[2]
        inputs = _feature_inputs(features, frame.path, keep_all=False, notes=notes, uses=uses)
    columns = Columns(
        source=str(frame.path),
        inputs=inputs,
        labels=labels,
        row_ids=position_ids(len(inputs)),
    )
    data = assemble({"train": columns}, name=str(frame.path), class_names=class_names)
    return _described(data, frame, notes, uses)


def _described(data: Data, file: ColumnFile, notes: Sequence[str], uses: Mapping[str, str]) -> Data:
    """The data with all notes, and with the use of each column."""
    data = data.with_notes(*notes, *_label_copy_notes(data.train), *_unseen_value_notes(data))
    described = tuple((name, uses.get(name, "not used: left out")) for name in file.names)
    return replace(data, columns=described)


def _label_copy_notes(train: Split) -> list[str]:
    """Notes on columns with one value for each label: with them no label looks wrong."""
    inputs, labels = train.inputs, train.labels
    number = len(np.unique(labels))
    if not isinstance(inputs, Table | RawTable) or len(labels) < _ROWS_OF_A_LABEL * number:
        return []
    if isinstance(inputs, RawTable):
        columns = [(column.name, column.values) for column in inputs.columns]
    else:
        columns = list(zip(inputs.columns or (), inputs.values.T, strict=True))
    return [
        f"column {name!r} gives away the label of every row: it has one value for each of the "
        f"{number} classes; if it is a copy of the label, leave it out: --drop {name}"
        for name, values in columns
        if _is_copy(values, labels, number)
    ]


def _is_copy(values: NDArray[np.floating], labels: NDArray[np.int64], number: int) -> bool:
    for rows in (slice(_FIRST_LOOK), slice(None)):
        known = ~np.isnan(values[rows])
        pairs = np.unique(np.stack([values[rows][known], labels[rows][known]]), axis=1)
        if len(np.unique(pairs[0])) < pairs.shape[1] or len(np.unique(pairs[1])) < pairs.shape[1]:
            return False
    return bool(pairs.shape[1] == number)


def _unseen_value_notes(data: Data) -> list[str]:
    """What the validation and test rows of a table contain that its training rows do not."""
    train = data.train.inputs
    if not isinstance(train, RawTable):
        return []
    others = {part: split.inputs for part, split in data.splits().items() if part != "train"}
    return [
        f"{part} rows: {doubt}"
        for part, table in others.items()
        if isinstance(table, RawTable)
        for encoding, column in zip(fit_encoding(train), table.columns, strict=True)
        for doubt in encoding.unseen_values(column)
    ]


def read_features(
    file: ColumnFile, values: Sequence[str], numbers: Sequence[str], features: Sequence[str]
) -> tuple[dict[str, list[object]], NDArray[np.float64], Table | RawTable]:
    """Columns as they are, columns of numbers, and the features.

    The features are a ``Table`` if all their cells are numbers, otherwise a ``RawTable``.

    Raises:
        DataError: If the file is damaged, or a cell is not a finite number.
    """
    try:
        found, matrix = file.read(values, [*features, *numbers])
        table = Table(matrix[:, : len(features)], columns=tuple(features))
        return found, matrix[:, len(features) :], table
    except CellError:
        if not features:
            raise
        return _read_cells(file, values, numbers, features)


def _read_cells(
    file: ColumnFile, values: Sequence[str], numbers: Sequence[str], features: Sequence[str]
) -> tuple[dict[str, list[object]], NDArray[np.float64], RawTable]:
    typed = file.typed_numbers(features)  # to look at each of their cells takes long
    others = [name for name in features if name not in typed]
    found, matrix = file.read([*values, *others], numbers)
    raw = tuple(
        typed_column(name, typed[name], file.place)
        if name in typed
        else as_column(name, found.pop(name), file.place, decimal=file.decimal)
        for name in features
    )
    return found, matrix, RawTable(raw)


def read_encoded(
    file: ColumnFile, values: Sequence[str], encodings: Sequence[ColumnEncoding]
) -> tuple[dict[str, list[object]], RawTable]:
    """Columns as they are, and those of the encodings, each read as in training.

    Raises:
        DataError: If the file is damaged, or a cell is not of the kind that its column had.
    """
    plain = [each for each in encodings if each.number_format is None]
    names = {kind: [each.name for each in plain if each.kind == kind] for kind in KINDS}
    written = [each.name for each in encodings if each.number_format is not None]
    wanted = [*values, *names["date"], *names["category"], *written]
    found, _, table = read_features(file, wanted, (), names["number"])
    columns = {}
    if isinstance(table, RawTable):
        columns = {column.name: column for column in table.columns}
    else:
        for index, name in enumerate(names["number"]):
            columns[name] = RawColumn(name, "number", table.values[:, index].astype(np.float64))
    for each in encodings:
        if each.kind != "number" or each.number_format is not None:
            columns[each.name] = read_as(each, found[each.name], where=str(file.path))
            continue
        column = columns[each.name]
        is_empty = column.num_missing == len(column.values)
        if column.kind != "number" and not is_empty:
            example = f", for example {column.words[0]!r}" if column.words else ""
            raise DataError(
                f"{file.path}: column {each.name!r} was a number in training and is a "
                f"{column.kind} here{example}"
            )
        style = column.number_format
        if style is not None and NUMBER_FORMATS[style] != ("", file.decimal):
            raise DataError(
                f"{file.path}: column {each.name!r} held plain numbers in training, and here they "
                f"are written as {style}"
            )
    return found, RawTable(tuple(columns[each.name] for each in encodings))


def _read_to_train(
    file: ColumnFile, values: Sequence[str], numbers: Sequence[str], features: Sequence[str]
) -> tuple[dict[str, list[object]], NDArray[np.float64], Table | RawTable]:
    """The same for rows to train on, where true and false are words, as in a CSV file."""
    if any(map(file.is_boolean, features)):
        return _read_cells(file, values, numbers, features)
    return read_features(file, values, numbers, features)


def _feature_inputs(
    features: Table | RawTable,
    path: Path,
    *,
    keep_all: bool,
    notes: list[str],
    uses: dict[str, str],
) -> Inputs:
    """The features that are worth learning from.

    A line for each column that is not used is added to ``notes``, and how each is used to ``uses``.

    Raises:
        DataError: If there are none.
    """
    if isinstance(features, Table):
        assert features.columns is not None
        kept = []
        for index, (name, cells) in enumerate(_columns(features)):
            problem = None if keep_all else _count_problem(cells)
            _note_use(name, "number", problem, notes, uses)
            if problem is None:
                kept.append(index)
                notes += _far_cells(name, cells)
        if not kept:
            raise _nothing_left(path, notes)
        values = features.values if len(kept) == len(features.columns) else features.values[:, kept]
        names = tuple(features.columns[index] for index in kept)
        return Table(np.ascontiguousarray(values, np.float64), columns=names)
    columns = features.columns
    if not keep_all:
        texts = [column for column in columns if _is_free_text(column)]
        if len(texts) == len(columns) == 1:
            notes.append(f"column {texts[0].name!r} is taken as texts")
            uses[texts[0].name] = "text"
            words = np.array((*texts[0].words, ""))
            places = np.where(np.isnan(texts[0].values), -1, texts[0].values).astype(np.int64)
            return replace(hash_text(words[places].tolist()), column=texts[0].name)
    useful = []
    for column in columns:
        problem = None if keep_all else _problem(column)
        _note_use(column.name, _kind(column), problem, notes, uses)
        if problem is None:
            useful.append(column)
        elif column.note is not None:  # why it is words, and so looks like ids
            notes.append(column.note)
    for column in useful:
        notes += [] if column.note is None else [column.note]
        if column.kind == "number":
            notes += _far_cells(column.name, column.values[~np.isnan(column.values)])
        if column.num_missing:
            notes.append(
                f"column {column.name!r} has {column.num_missing} empty cells of "
                f"{len(column.values)}, which are filled in"
            )
    if not useful:
        raise _nothing_left(path, notes)
    return RawTable(tuple(useful))


def _columns(table: Table) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Names and values of the columns; a few at a time are copied, to be read at full speed."""
    assert table.columns is not None
    for start in range(0, len(table.columns), _COPIED_COLUMNS):
        some = slice(start, start + _COPIED_COLUMNS)
        yield from zip(
            table.columns[some], np.array(table.values[:, some].T, order="C"), strict=True
        )


def _nothing_left(path: Path, notes: Sequence[str]) -> DataError:
    return DataError(f"{path}: no column is left to learn from; {'; '.join(notes)}")


def _note_use(
    name: str, kind: str, problem: tuple[str, str] | None, notes: list[str], uses: dict[str, str]
) -> None:
    """Records how a column is used, or why it is not used and what to do about it."""
    if problem is None:
        uses[name] = kind
        return
    why, remedy = problem
    uses[name] = f"not used: {why}"
    notes.append(f"column {name!r} is not used: it {why}" + (f"; {remedy}" if remedy else ""))


def _far_cells(name: str, values: NDArray[np.floating]) -> list[str]:
    """A note if a few cells, such as 999999 for a missing value, decide the scale of all others."""
    values = values.astype(np.float64)
    if not len(values) or (deviation := values.std()) <= _FAR * _least_width(values):
        return []
    low, middle, high = np.percentile(values, (25, 50, 75))
    if low == high or deviation <= _FAR * (high - low):
        return []
    distance = np.abs(values - middle)
    return [
        f"column {name!r}: {int((distance > _FAR * (high - low)).sum())} of {len(values)} cells, "
        f"such as {values[distance.argmax()]:g}, are so far from the others that these look alike "
        "on the scale of all; empty cells that stand for a missing value, and correct mistakes"
    ]


def _least_width(values: NDArray[np.floating]) -> float:
    """A width that the middle half of the cells has at least, found without sorting all of them."""
    low, high = np.percentile(values[:: len(values) // _FIRST_LOOK + 1], (35, 65))
    outer = min(np.count_nonzero(values <= low), np.count_nonzero(values >= high))
    return float(high - low) if outer > len(values) / 4 + 1 else 0.0


def _kind(column: RawColumn) -> str:
    words = f" of {len(column.words)} words" if column.kind == "category" else ""
    empty = f", {column.num_missing} cells empty" if column.num_missing else ""
    return f"{column.kind}{words}{empty}"


def _count_problem(values: NDArray[np.floating]) -> tuple[str, str] | None:
    parts = (values[:_FEWEST_ROWS], values)  # most columns are told by the first
    is_count = len(values) >= _FEWEST_ROWS and all((np.diff(part) == 1).all() for part in parts)
    return ("counts the rows", _AS_IDS) if is_count else None


def _problem(column: RawColumn) -> tuple[str, str] | None:
    """Why a column is not worth learning from, and what to do; None if it is worth it."""
    if column.num_missing == len(column.values):
        return "is empty", ""
    if column.kind == "number":
        return _count_problem(column.values)
    if column.kind == "category" and _is_free_text(column):
        return "holds texts", "to learn from them, give it as text_column"
    if column.kind == "category" and _are_ids(column):
        why = f"has {len(column.words)} different words in {len(column.values)} rows, as ids do"
        if column.note is not None:
            return why, ""
        if all(word.lower().endswith(SUFFIXES) for word in column.words):
            return why, f"if it names images: --set data.options.path_column={column.name}"
        return why, _AS_IDS
    return None


def _are_ids(column: RawColumn) -> bool:
    present = len(column.values) - column.num_missing
    return present >= _FEWEST_ROWS and len(column.words) > _MOST_DIFFERENT * present


def _is_free_text(column: RawColumn) -> bool:
    if column.kind != "category" or not _are_ids(column):
        return False
    return sum(len(word.split()) for word in column.words) >= _WORDS_OF_A_TEXT * len(column.words)


def _row_ids(
    roles: Roles, values: Mapping[str, Sequence[object]], *, source: str
) -> NDArray[np.str_]:
    named = roles.row_id or roles.path
    if named is None:
        return position_ids(len(values[roles.label]))
    return written_ids(as_texts(values[named]), source=source)


def as_texts(values: Sequence[object]) -> list[str]:
    """Cells as text; a missing one is empty text."""
    return [
        value.decode("utf-8", "replace")
        if isinstance(value, bytes)
        else ""
        if value is None
        else str(value)
        for value in values
    ]
