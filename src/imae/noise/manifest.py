"""Label files, from which the same labels can be read anywhere.

The first line holds the facts and a hash over them, the row ids and the labels; the rest is CSV:

    # imae-labels 1 kind=symmetric rate=0.4 seed=1 classes=10 sha256=...
    "row_id","given","clean"
    "train/0001.png",3,5
"""

import csv
import hashlib
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, as_labels
from imae.records.files import write_file

_COLUMNS = ["row_id", "given", "clean"]
_LONGEST_ID = 100_000  # the csv module reads fields of up to 131,072 characters
MANIFEST_START = b"# imae-labels "  # identifies a file before it is read
_FIRST_LINE = re.compile(
    r"# imae-labels 1 (?P<facts>kind=(?P<kind>\w+) rate=(?P<rate>[0-9]+(\.[0-9]+)?(e-[0-9]+)?) "
    r"seed=(?P<seed>[0-9]{1,4000}) classes=(?P<classes>[0-9]{1,9})) sha256=(?P<digest>[0-9a-f]{64})"
)


@dataclass(frozen=True, eq=False)
class Manifest:
    """Rows with the label they are given and the clean one.

    Args:
        row_ids: Name of every row, shape (N,), no two alike.
        labels: Given labels, shape (N,), integers in [0, C).
        clean_labels: Labels before the noise, shape (N,).
        kind: Name of the noise.
        rate: The requested rate.
        seed: Seed of the noise.
        num_classes: Number of classes C.
    """

    row_ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    clean_labels: NDArray[np.int64]
    kind: str
    rate: float
    seed: int
    num_classes: int

    def labels_for(self, row_ids: Sequence[str] | NDArray[np.str_]) -> NDArray[np.int64]:
        """The given labels of these rows, in their order, shape (len(row_ids),).

        Raises:
            DataError: If a row has no label here.
        """
        by_id = dict(zip(self.row_ids.tolist(), self.labels.tolist(), strict=True))
        missing = [row_id for row_id in map(str, row_ids) if row_id not in by_id]
        if missing:
            raise DataError(
                f"{len(missing)} rows have no label in this file, the first is {missing[0]!r}"
            )
        return np.array([by_id[str(row_id)] for row_id in row_ids], dtype=np.int64)


def write_manifest(
    path: str | os.PathLike[str],
    noisy: NoisyLabels,
    clean: ArrayOrTensor,
    row_ids: Sequence[str] | NDArray[np.str_],
) -> None:
    """Writes the labels, completely or not at all.

    Args:
        path: File to write, or to replace.
        noisy: The noise and the labels it gave.
        clean: The labels before the noise, shape (N,).
        row_ids: Name of every row, shape (N,), no two alike.

    Raises:
        ArgumentError: If the lengths differ, ``clean`` is not what the noise started from, or
            the kind is not one word.
        DataError: If a row id appears twice or cannot be written as text.

    Examples:
        >>> import tempfile
        >>> from imae.noise import symmetric
        >>> clean = [0, 1, 2, 0]
        >>> noisy = symmetric(clean, rate=0.5, num_classes=3, seed=1)
        >>> path = os.path.join(tempfile.mkdtemp(), "labels.csv")
        >>> write_manifest(path, noisy, clean, ["a", "b", "c", "d"])
        >>> bool((read_manifest(path).labels == noisy.labels).all())
        True
    """
    num_classes = len(noisy.transition)
    ids = [str(row_id) for row_id in row_ids]
    before = as_labels(clean, num_classes=num_classes)
    if not len(ids) == len(before) == len(noisy.labels):
        raise ArgumentError(
            f"row_ids, clean and noisy must have the same length, got {len(ids)}, {len(before)} "
            f"and {len(noisy.labels)}"
        )
    if not np.array_equal(noisy.labels != before, noisy.is_flipped):
        raise ArgumentError("clean must be the labels that the noise started from")
    _check_ids(ids)
    rate = float(noisy.rate) + 0.0  # a rate of -0.0 is 0.0
    facts = f"kind={noisy.kind} rate={rate!r} seed={noisy.seed} classes={num_classes}"
    first = f"# imae-labels 1 {facts} sha256={_digest(facts, ids, noisy.labels, before)}"
    if _FIRST_LINE.fullmatch(first) is None:
        raise ArgumentError(
            "noisy must have a kind of one word, and a rate and a whole seed of at least 0, "
            f"got kind {noisy.kind!r}, rate {noisy.rate!r} and seed {noisy.seed!r}"
        )
    text = io.StringIO(newline="")
    text.write(f"{first}\n")
    # Strings always in quotes: before Python 3.13 a lone carriage return was left without.
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(zip(ids, noisy.labels.tolist(), before.tolist(), strict=True))
    write_file(path, text.getvalue())


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The labels that `write_manifest` wrote, or an error if a byte that counts has changed.

    Raises:
        DataError: If the file cannot be read, is not such a file, is damaged, or its hash does
            not agree.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _read(path, file)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; write it again with imae noise") from error
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}); write it again with imae noise") from error


def _read(path: str | os.PathLike[str], file: TextIO) -> Manifest:
    # A spreadsheet that saves the file pads the first line with commas.
    first = _FIRST_LINE.fullmatch(file.readline(10_000).rstrip("\r\n,"))
    if first is None:
        raise DataError(f"{path}: line 1 is not that of a label file; make one with imae noise")
    num_classes = int(first["classes"])
    reader = csv.reader(file, strict=True)
    if next(reader, None) != _COLUMNS:
        raise DataError(f"{path}: line 2 must name the columns {','.join(_COLUMNS)}")
    ids: list[str] = []
    labels: list[tuple[int, int]] = []
    for row in reader:
        try:
            row_id, given, clean = row[0], int(row[1]), int(row[2])
        except (IndexError, ValueError):
            row_id, given, clean = "", num_classes, num_classes
        if len(row) != 3 or not (0 <= given < num_classes and 0 <= clean < num_classes):
            raise DataError(
                f"{path}: line {reader.line_num + 1} must be a row id and two labels in "
                f"[0, {num_classes}), got {','.join(row)[:80]!r}"
            )
        ids.append(row_id)
        labels.append((given, clean))
    columns = np.array(labels, dtype=np.int64).reshape(-1, 2)
    if _digest(first["facts"], ids, columns[:, 0], columns[:, 1]) != first["digest"]:
        raise DataError(
            f"{path}: {len(ids)} rows do not agree with the hash in line 1; the file was changed, "
            "take the original or make it again with imae noise"
        )
    return Manifest(
        row_ids=np.array(ids, dtype=np.str_),
        labels=columns[:, 0].copy(),
        clean_labels=columns[:, 1].copy(),
        kind=first["kind"],
        rate=float(first["rate"]),
        seed=int(first["seed"]),
        num_classes=num_classes,
    )


def _digest(
    facts: str, row_ids: list[str], given: NDArray[np.int64], clean: NDArray[np.int64]
) -> str:
    digest = hashlib.sha256(facts.encode())
    for row_id in row_ids:
        encoded = row_id.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    for labels in (given, clean):
        digest.update(labels.astype("<i8").tobytes())
    return digest.hexdigest()


def _check_ids(row_ids: list[str]) -> None:
    seen: set[str] = set()
    for row_id in row_ids:
        if row_id in seen:
            raise DataError(f"row id {row_id!r} appears twice; give every row its own")
        seen.add(row_id)
        if "\0" in row_id or any("\ud800" <= character <= "\udfff" for character in row_id):
            raise DataError(f"row id {row_id!r} cannot be written as text; rename the row")
        if len(row_id) > _LONGEST_ID:
            raise DataError(
                f"row id {row_id[:40]!r}... has {len(row_id)} characters, "
                f"more than {_LONGEST_ID}; rename the row"
            )
