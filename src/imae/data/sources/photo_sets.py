"""Photo sets in their official layouts: Clothing1M, and MARS with its tracklets of frames."""

import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data.image_files import ImageFiles
from imae.data.sources.download import data_root, places
from imae.data.sources.image_set import check_files, read_lines, read_names
from imae.data.split import Data, Split
from imae.data.tracklets import Tracklets
from imae.errors import DataError, check_choice

CLASSES = (
    "T-Shirt",
    "Shirt",
    "Knitwear",
    "Chiffon",
    "Sweater",
    "Hoodie",
    "Windbreaker",
    "Jacket",
    "Down Coat",
    "Suit",
    "Shawl",
    "Dress",
    "Vest",
    "Underwear",
)
_VARIANTS = ("noisy", "clean", "both")
_SUBFOLDERS = ("", "annotations")


def clothing1m(root: str | os.PathLike[str] | None = None, variant: str = "noisy") -> Data:
    """Clothing1M: a million photos with noisy labels, clean validation and test rows, 14 classes.

    Photos are decoded when a batch needs them.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: Training rows: ``"noisy"`` for the million rows of the noisy list, ``"clean"`` for
            the clean list, ``"both"`` for the rows of the clean list that have a noisy label too:
            the noisy one is their label, the clean one their clean label.

    Raises:
        ArgumentError: If the variant is unknown.
        DataError: If the set is missing, or a list and a label file do not match.

    Reference:
        Xiao et al., "Learning from massive noisy labeled data for image classification", CVPR
        2015.
    """
    check_choice("variant", variant, _VARIANTS)
    folder = _clothing_folder(data_root(root))
    clean = _labels(_list(folder, "clean_label_kv.txt"))
    if variant == "clean":
        train = _split(folder, "clean_train_key_list.txt", clean)
    else:
        noisy = _labels(_list(folder, "noisy_label_kv.txt"))
        if variant == "noisy":
            train = _split(folder, "noisy_train_key_list.txt", noisy)
        else:
            train = _both(folder, noisy, clean)
    return Data(
        "clothing1m",
        train,
        validation=_split(folder, "clean_val_key_list.txt", clean),
        test=_split(folder, "clean_test_key_list.txt", clean),
    )


def locate_clothing1m(root: Path) -> Path | None:
    """The folder of the set, if its lists exist."""
    for folder in places("clothing1m", root):
        if any((folder / sub / "noisy_train_key_list.txt").is_file() for sub in _SUBFOLDERS):
            return folder
    return None


def verify_clothing1m(root: Path) -> dict[str, str]:
    """The SHA-256 of names and labels of each part, if every named photo exists.

    No official hash is published, so this finds missing files, not changed ones.

    Raises:
        DataError: If the set is missing, a list does not fit, or a photo is missing.
    """
    data = clothing1m(root)
    found = {}
    for part, split in (
        ("train", data.train),
        ("validation", data.validation),
        ("test", data.test),
    ):
        assert split is not None
        names = [str(name) for name in split.row_ids]
        check_files(_clothing_folder(root), names)
        lines = (f"{name} {label}\n" for name, label in zip(names, split.labels, strict=True))
        found[part] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return found


def _clothing_folder(root: Path) -> Path:
    folder = locate_clothing1m(root)
    if folder is None:
        raise DataError(
            f"clothing1m is not in {root}: ask its authors for it and put its lists and images in "
            f"{root / 'clothing1m'}"
        )
    return folder


def _list(folder: Path, name: str) -> Path:
    paths = [folder / sub / name for sub in _SUBFOLDERS]
    return next((path for path in paths if path.is_file()), paths[0])


def _labels(path: Path) -> dict[str, int]:
    """Label by photo, from a file of ``photo label`` lines."""
    labels: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line:
            continue
        name, _, label = line.rpartition(" ")
        if not name or not label.isdecimal() or int(label) >= len(CLASSES):
            raise DataError(
                f"{path}: line {number}: {line[:80]!r} is not a photo and a label from 0 to 13"
            )
        labels[name.strip()] = int(label)
    return labels


def _split(folder: Path, list_name: str, labels: dict[str, int]) -> Split:
    path = _list(folder, list_name)
    names = read_names(path)
    for name in names:
        if name not in labels:
            raise DataError(f"{path}: {name} has no label in the label file")
    return _rows(folder, names, np.array([labels[name] for name in names], np.int64))


def _both(folder: Path, noisy: dict[str, int], clean: dict[str, int]) -> Split:
    path = _list(folder, "clean_train_key_list.txt")
    names = [name for name in read_names(path) if name in noisy and name in clean]
    if not names:
        raise DataError(f"{path}: no photo has both a noisy and a clean label")
    given = np.array([noisy[name] for name in names], np.int64)
    return _rows(folder, names, given, np.array([clean[name] for name in names], np.int64))


def _rows(
    folder: Path,
    names: list[str],
    labels: NDArray[np.int64],
    clean_labels: NDArray[np.int64] | None = None,
) -> Split:
    return Split(
        inputs=ImageFiles(folder, names),
        labels=labels,
        row_ids=np.array(names),
        class_names=CLASSES,
        clean_labels=clean_labels,
    )


_JUNK = -1
_MAX_FILE_BYTES = 16 << 20
_MAX_TABLE_BYTES = 64 << 20
_HEADER_BYTES = 128  # of a MATLAB file, as are the kinds of elements below
_COMPRESSED = 15
_MATRIX = 14
_NUMBERS = dict(zip((*range(1, 8), 9, 12, 13), "bBhHiIfdqQ", strict=True))


def mars(root: str | os.PathLike[str] | None = None) -> Data:
    """MARS, frames for training: 509,914 images of 625 people, who are the classes.

    The test part shows other people, so there are no test rows; use ``mars_tracklets`` for
    retrieval on it.

    Args:
        root: Folder of the data sets, or None for the default one.

    Raises:
        DataError: If the set is missing, or a table and a list do not match.

    Reference:
        Zheng et al., "MARS: a video benchmark for large-scale person re-identification", ECCV
        2016.
    """
    folder = _mars_folder(data_root(root))
    names, table = _part(folder, "train")
    table = table[table[:, 2] != _JUNK]
    people = np.unique(table[:, 2])
    frames = _frames(names, table)
    labels = np.repeat(np.searchsorted(people, table[:, 2]), table[:, 1] - table[:, 0] + 1)
    split = Split(
        inputs=ImageFiles(folder, frames),
        labels=labels.astype(np.int64),
        row_ids=np.array(frames),
        class_names=tuple(f"{person:04d}" for person in people),
    )
    return Data("mars", split)


def mars_tracklets(root: str | os.PathLike[str] | None = None) -> Tracklets:
    """MARS, tracklets of the test part: queries and gallery; junk is left out, distractors stay.

    Args:
        root: Folder of the data sets, or None for the default one.

    Raises:
        DataError: If the set is missing, a table and a list do not match, or there is no query.
    """
    folder = _mars_folder(data_root(root))
    names, table = _part(folder, "test")
    query_path = folder / "info" / "query_IDX.mat"
    is_query = _queries(query_path, len(table))
    keep = table[:, 2] != _JUNK
    table, is_query = table[keep], is_query[keep]
    if not is_query.any():
        raise DataError(
            f"{query_path}: names no query, or only junk, so nothing can be retrieved; "
            f"download it again"
        )
    lengths = table[:, 1] - table[:, 0] + 1
    stops = np.cumsum(lengths)
    frames = _frames(names, table)
    return Tracklets(
        frames=ImageFiles(folder, frames),
        starts=stops - lengths,
        stops=stops,
        person_ids=table[:, 2].copy(),
        cameras=table[:, 3].copy(),
        is_query=is_query,
    )


def locate_mars(root: Path) -> Path | None:
    """The folder of the set, if its track tables exist."""
    for folder in places("mars", root):
        if (folder / "info" / "tracks_train_info.mat").is_file():
            return folder
    return None


def verify_mars(root: Path) -> dict[str, str]:
    """The SHA-256 of the names of the frames of each part, if every frame exists.

    No official hash is published, so this finds missing files, not changed ones.

    Raises:
        DataError: If the set is missing, a table does not fit, or a frame is missing.
    """
    folder = _mars_folder(root)
    mars(root)
    mars_tracklets(root)
    found = {}
    for part in ("train", "test"):
        names, _ = _part(folder, part)
        check_files(folder, names)
        found[part] = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return found


def _mars_folder(root: Path) -> Path:
    folder = locate_mars(root)
    if folder is None:
        raise DataError(
            f"mars is not in {root}: download its images and the track tables and put them in "
            f"{root / 'mars'}"
        )
    return folder


def _part(folder: Path, part: str) -> tuple[list[str], NDArray[np.int64]]:
    """Frame paths, and the track table: first frame, last frame (from 1), person, camera."""
    list_path = folder / "info" / f"{part}_name.txt"
    table_path = folder / "info" / f"tracks_{part}_info.mat"
    # A frame is in the folder of its person, named by the frame's first four letters.
    names = [f"bbox_{part}/{name[:4]}/{name}" for name in read_names(list_path)]
    table = _matrix(table_path, f"track_{part}_info")
    if table.ndim != 2 or table.shape[1] != 4:
        raise DataError(f"{table_path}: a table of shape {table.shape}, not of 4 columns")
    if (table[:, 2] == _JUNK).all():
        raise DataError(f"{table_path}: has no tracklet of a person; download it again")
    bad = (table[:, 0] < 1) | (table[:, 1] < table[:, 0]) | (table[:, 1] > len(names))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{table_path}: row {row + 1}: frames {table[row, 0]} to {table[row, 1]} of the "
            f"{len(names)} in {list_path.name}"
        )
    for row, (first, last, person, camera) in enumerate(table.tolist(), 1):
        for frame in range(first, last + 1) if person != _JUNK else ():
            name = names[frame - 1].rsplit("/", 1)[1]
            if name[:6] != f"{person:04d}C{camera}":
                raise DataError(
                    f"{table_path}: row {row}: person {person} and camera {camera}, but frame "
                    f"{frame} is {name}"
                )
    order = np.argsort(table[:, 0], kind="stable")
    shared = table[order[1:], 0] <= table[order[:-1], 1]
    if shared.any():
        place = int(shared.argmax())
        raise DataError(
            f"{table_path}: rows {order[place] + 1} and {order[place + 1] + 1} share frames"
        )
    return names, table


def _frames(names: list[str], table: NDArray[np.int64]) -> list[str]:
    return [names[row] for first, last in table[:, :2] for row in range(first - 1, last)]


def _queries(path: Path, num_tracklets: int) -> NDArray[np.bool_]:
    rows = _matrix(path, "query_IDX").ravel()
    if len(rows) and (rows.min() < 1 or rows.max() > num_tracklets):
        raise DataError(f"{path}: a query outside the {num_tracklets} tracklets of the test part")
    is_query = np.zeros(num_tracklets, bool)
    is_query[rows - 1] = True
    return is_query


def _matrix(path: Path, name: str) -> NDArray[np.int64]:
    if not path.is_file():
        raise DataError(f"{path}: no such table; see the layout in docs/datasets.md")
    tables = read_mat(path)
    if name not in tables:
        raise DataError(f"{path}: has no table {name} of whole numbers; download it again")
    return tables[name]


def read_mat(path: Path) -> dict[str, NDArray[np.int64]]:
    """Tables of whole numbers by variable name, from a MATLAB file of version 5 to 7.

    Other variables are left out. scipy's reader is not used: it ends the process on a file whose
    bytes 192 or 193 have changed (scipy 1.17), and does not limit what a file unpacks to.

    Args:
        path: The file.

    Raises:
        DataError: If it is damaged, or of another version.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise DataError(f"{path}: more than {_MAX_FILE_BYTES} bytes, which no track table has")
    if data[124:_HEADER_BYTES] != b"\x00\x01IM":
        raise DataError(f"{path}: not a little-endian MATLAB file of version 5 to 7")
    tables: dict[str, NDArray[np.int64]] = {}
    try:
        for kind, content in _elements(data[_HEADER_BYTES:]):
            table = _table(*_unpacked(kind, content))
            if table is not None:
                tables[table[0]] = table[1]
    except (ValueError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise DataError(f"{path}: cut off or damaged ({error}); download it again") from error
    return tables


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and content of the elements that follow each other in ``data``."""
    elements = []
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # the short form: size, kind and content in eight bytes
            kind, size, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            start = at + 8
            # Only compressed elements are not padded to a multiple of eight bytes.
            following = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(data):
            raise ValueError(f"an element of {size} bytes reaches past the end")
        elements.append((kind, data[start : start + size]))
        at = following
    return elements


def _unpacked(kind: int, content: bytes) -> tuple[int, bytes]:
    if kind != _COMPRESSED:
        return kind, content
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(content, _MAX_TABLE_BYTES)
    if not unpacker.eof:
        raise ValueError("a compressed element is cut off or larger than any track table")
    return _elements(unpacked)[0]


def _table(kind: int, content: bytes) -> tuple[str, NDArray[np.int64]] | None:
    """Name and values of a matrix of whole numbers, or None if the element is something else."""
    if kind != _MATRIX:
        return None
    parts = _elements(content)
    if len(parts) != 4 or parts[3][0] not in _NUMBERS:  # flags, shape, name, real values
        return None
    shape = tuple(int(size) for size in np.frombuffer(parts[1][1], "<i4"))
    values: NDArray[Any] = np.frombuffer(parts[3][1], f"<{_NUMBERS[parts[3][0]]}")
    if any(size < 0 for size in shape) or math.prod(shape) != len(values):
        raise ValueError(f"a table of shape {shape} with {len(values)} values")
    if not np.isfinite(values).all() or (values != np.trunc(values)).any():
        return None
    name = parts[2][1].decode("ascii", "replace")
    return name, values.astype(np.int64).reshape(shape, order="F")
