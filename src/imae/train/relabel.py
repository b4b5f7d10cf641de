"""Given labels of a split replaced: by noise, by planted wrong labels, or by a file."""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae._draws import numpy_generator
from imae.data.assemble import written_ids
from imae.data.columns import ID_NAMES, LABEL_NAMES, listing, only_column
from imae.data.preparation import fit_scale
from imae.data.split import Data, Split
from imae.data.table import TABLE_SUFFIXES, as_texts
from imae.data.table_file import open_columns
from imae.errors import ArgumentError, DataError
from imae.noise import (
    KINDS,
    NoiseSpec,
    NoisyLabels,
    apply,
    parse,
    parse_mapping,
    read_manifest,
)
from imae.noise.manifest import MANIFEST_START
from imae.train.config import Config

_ROWS_AT_ONCE = 256


def corrupt_split(
    split: Split, spec: NoiseSpec, *, seed: int, mapping: str | None = None, exact: bool = False
) -> NoisyLabels:
    """The labels of a split with noise.

    Args:
        split: Rows whose labels count as clean.
        spec: Kind and rate.
        seed: Random seed.
        mapping: ``FROM:TO,FROM:TO`` by class name or number, for ``pairs``.
        exact: Change exactly this share of the rows.

    Raises:
        ArgumentError: If an option that the kind needs is missing, or one is given that it does not
            take.
    """
    options = KINDS.find(spec.kind).defaults
    if "mapping" in options and mapping is None:
        raise ArgumentError(
            f"noise {spec.kind!r} needs a map FROM:TO,FROM:TO "
            "of classes (--set noise_map=..., or imae noise --map)"
        )
    if "mapping" not in options and mapping is not None:
        raise ArgumentError(f"noise {spec.kind!r} takes no map; leave it out")
    if "exact" not in options and exact:
        raise ArgumentError(f"noise {spec.kind!r} cannot change an exact number; leave that out")
    return apply(
        spec,
        split.labels,
        num_classes=split.num_classes,
        seed=seed,
        exact=exact,
        mapping=None if mapping is None else parse_mapping(mapping, split.class_names),
        features=_features(split) if "features" in options else None,
    )


def configured_noise(config: Config, *, is_scaled: bool) -> Callable[[Split, int], NoisyLabels]:
    """The noise of a run: a function of a split and a seed.

    Args:
        config: Settings with noise.
        is_scaled: Whether the inputs are standardised.
    """
    assert config.noise is not None
    spec = parse(config.noise)

    def corrupt(split: Split, seed: int) -> NoisyLabels:
        # Noise that depends on the inputs sees standardised numbers, as a network does.
        seen = split if is_scaled else fit_scale(split, source=config.data.name)(split)
        return corrupt_split(
            seen, spec, seed=seed, mapping=config.noise_map, exact=config.noise_exact
        )

    return corrupt


def _features(split: Split) -> NDArray[np.float32]:
    features = np.empty((len(split), math.prod(split.inputs.shape)), dtype=np.float32)
    for start in range(0, len(split), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(split)))
        features[rows] = split.inputs.batch(rows, generator=None).flatten(1).numpy()
    return features


def counted_transition(split: Split) -> NDArray[np.float64] | None:
    """How often each class has each given label, where the truth is known."""
    if split.clean_labels is None:
        return None
    counts = np.zeros((split.num_classes, split.num_classes))
    np.add.at(counts, (split.clean_labels, split.labels), 1)
    counts += np.eye(split.num_classes) * (counts.sum(1) == 0)  # a class without a row
    transition: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return transition


def plant_wrong_labels(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """The rows with some labels made wrong on purpose, and the changed rows as they were.

    The rows and their new labels, drawn uniformly from the other classes, follow from
    the seed. True labels, where they are known, are not changed.

    Args:
        split: Rows with their given labels.
        share: Fraction of the rows to change, in (0, 1).
        seed: Seed of the draws.

    Raises:
        ArgumentError: If the share is less than one row.
    """
    number = round(share * len(split))
    if number == 0:
        raise ArgumentError(
            f"data.planted: {share:g} of {len(split)} rows is less than one; use a larger share"
        )
    generator = numpy_generator(seed, "planted")
    rows = np.sort(generator.permutation(len(split))[:number])
    labels = split.labels.copy()
    labels[rows] += generator.integers(1, split.num_classes, size=number)
    labels[rows] %= split.num_classes
    return replace(split, labels=labels), split.take(rows)


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REMOVED = "removed"  # column with text for rows that belong to no class
_GIVEN = "given"  # column with the label that the row had in the data


@dataclass(frozen=True, eq=False)
class LabelFile:
    """A table of labels by row id.

    Args:
        row_ids: Ids of the rows, shape (N,).
        labels: Labels as they were written.
        is_removed: Whether each row belongs to no class, shape (N,).
        given: Label that each row had in the data, as ``imae audit apply`` writes it, if it is in
            the file.
    """

    row_ids: NDArray[np.str_]
    labels: list[str]
    is_removed: NDArray[np.bool_]
    given: list[str] | None


def with_labels(data: Data, labels: str | Path | None) -> Data:
    """Data whose training rows have the labels of a file, if one is given.

    Raises:
        DataError: As ``relabel_from_file`` does.
    """
    if labels is None:
        return data
    skipped = [row.row_id for row in data.skipped]
    return replace(data, train=relabel_from_file(data.train, Path(labels), skipped=skipped))


def relabel_from_file(split: Split, path: Path, *, skipped: Collection[str] = ()) -> Split:
    """The rows with the labels of a file, which must list each of them once and no others.

    A file of ``imae noise`` also holds the labels before the noise: they must be those of the rows,
    and count as clean unless the rows have their own clean labels. Any other file only replaces
    the labels: true labels, if known, are kept, and the previous labels of the rows are
    dropped. Rows with text in a column ``removed`` belong to no class and are
    left out, as ``imae audit apply`` writes them; a column ``given`` must hold the labels that the
    rows have in the data: otherwise the ids may now mean other rows.

    Args:
        split: The rows.
        path: A file of ``imae noise``, or a CSV or Parquet file with a column ``row_id`` (or
            ``id``) and a column ``label`` (or ``labels``, ``target``, ``y``) of class names; or
            of class numbers from 0, if no class name is a number.
        skipped: Ids of rows that were left out of the data, and may appear in the file.

    Raises:
        DataError: If the file cannot be read, does not match the rows, or has an unknown label.
    """
    file = read_label_file(path)
    if file is None:
        manifest = read_manifest(path)
        places = _places(path, split.row_ids, manifest.row_ids, skipped)
        _check_before(path, split, manifest.clean_labels[places], manifest.num_classes)
        return split.relabel(manifest.labels[places])
    places = _places(path, split.row_ids, file.row_ids, skipped)
    if file.given is not None:
        _check_given(path, split, [file.given[place] for place in places])
    kept = np.flatnonzero(~file.is_removed[places])
    if len(kept) == 0:
        raise DataError(f"{path}: every training row is removed; there is nothing to train on")
    if len(kept) < len(split):
        split, places = split.take(kept), places[kept]
    numbers = _numbers(split.class_names)
    labels = np.empty(len(split), np.int64)
    for row, place in enumerate(places):
        # A folder's name may end in a blank; data with labels such as 1.0 has a class called 1.
        short = file.labels[place].strip()
        spelt = (file.labels[place], short, re.sub(r"\.0+$", "", short))
        number = next((numbers[text] for text in spelt if text in numbers), None)
        if number is None:
            raise DataError(
                f"{path}: row {str(file.row_ids[place])!r}: label {file.labels[place]!r} is none "
                f"of the classes ({listing(split.class_names)})"
            )
        labels[row] = number
    return replace(split, labels=labels)


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(len(_BYTE_ORDER_MARK) + len(MANIFEST_START))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return start.removeprefix(_BYTE_ORDER_MARK).startswith(MANIFEST_START)


def read_label_file(path: Path) -> LabelFile | None:
    """A table of labels by row id; None if the file is one of ``imae noise``.

    Raises:
        DataError: If it cannot be read, or lacks a column.
    """
    if _is_manifest(path):
        return None
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise DataError(f"{path}: a file of labels ends in {', '.join(TABLE_SUFFIXES)}")
    file = open_columns(path)
    columns = []
    for kind, names in (("ids", ID_NAMES), ("labels", LABEL_NAMES)):
        column = only_column(file, file.names, names)
        if column is None:
            raise DataError(
                f"{path}: line 1 has no column {' or '.join(names)} for the {kind} (columns: "
                f"{listing(file.names)})"
            )
        columns.append(column)
    further = [name for name in (_REMOVED, _GIVEN) if name in file.names]
    values, _ = file.read([*columns, *further], ())
    ids, labels = (as_texts(values[column]) for column in columns)
    removed = as_texts(values[_REMOVED]) if _REMOVED in further else [""] * len(ids)
    is_removed = np.array([bool(text.strip()) for text in removed], dtype=bool)
    given = as_texts(values[_GIVEN]) if _GIVEN in further else None
    return LabelFile(written_ids(ids, source=str(path)), labels, is_removed, given)


def _places(
    path: Path,
    wanted: NDArray[np.str_],
    named: NDArray[np.str_],
    skipped: Collection[str],
) -> NDArray[np.int64]:
    """Position of each of the rows in the file."""
    place = {row_id: number for number, row_id in enumerate(named.tolist())}
    missing = [row_id for row_id in wanted.tolist() if row_id not in place]
    if missing:
        raise DataError(
            f"{path}: has no label for training row {missing[0]!r} ({len(missing)} of "
            f"{len(wanted)} rows are missing)"
        )
    unknown = place.keys() - set(wanted.tolist()) - set(skipped)
    if unknown:
        first = next(row_id for row_id in place if row_id in unknown)
        raise DataError(
            f"{path}: row {first!r} is not a training row ({len(unknown)} of {len(named)} are "
            "unknown); remove them from the file"
        )
    return np.array([place[row_id] for row_id in wanted.tolist()], np.int64)


def _check_given(path: Path, split: Split, given: list[str]) -> None:
    """Raises unless the rows still have the labels that were corrected."""
    now = [split.class_names[label] for label in split.labels]
    differing = [row for row, label in enumerate(given) if label.strip() != now[row].strip()]
    if differing:
        row = differing[0]
        raise DataError(
            f"{path}: row {str(split.row_ids[row])!r} had the label {given[row]!r} in the data "
            f"that was audited, and has {now[row]!r} now ({len(differing)} of {len(now)} rows "
            "differ), so row ids may mean other rows; restore the data, or audit it again"
        )


def _check_before(path: Path, split: Split, before: NDArray[np.int64], num_classes: int) -> None:
    """Raises unless the noise was added to the labels that the rows have."""
    if num_classes != split.num_classes:
        raise DataError(
            f"{path}: was made for {num_classes} classes, the data has {split.num_classes}; make "
            "it again with imae noise"
        )
    differs = before != split.labels
    if differs.any():
        row = int(differs.argmax())
        raise DataError(
            f"{path}: row {str(split.row_ids[row])!r} had class {before[row]} before the noise, "
            f"in the data it has class {split.labels[row]}; make the file again with imae noise"
        )


def _numbers(class_names: tuple[str, ...]) -> Mapping[str, int]:
    """Class number by the texts that a file may use for it."""
    numbers = {name: number for number, name in enumerate(class_names)}
    if not any(name.isdecimal() for name in class_names):  # else a number could mean two classes
        numbers |= {str(number): number for number in range(len(class_names))}
    return numbers
