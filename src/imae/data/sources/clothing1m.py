"""Clothing1M in its official layout: photos of clothes under labels from the text around them."""

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.image_files import ImageFiles
from imae.data.sources.download import data_root, places
from imae.data.sources.image_set import check_files, read_lines, read_names
from imae.data.split import Data, Split
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


def clothing1m(root: str | os.PathLike[str] | None = None, variant: str = "noisy") -> Data:
    """Clothing1M: a million photos with noisy labels, clean validation and test rows, 14 classes.

    Photos are decoded when a batch asks for them.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: Training rows: ``"noisy"`` for the million rows of the noisy list, ``"clean"`` for
            the clean list, ``"both"`` for the rows of the clean list that have a noisy label too:
            the noisy one is their label, the clean one their clean label.

    Raises:
        ArgumentError: If the variant is unknown.
        DataError: If the set is not there, or a list and a label file do not fit.

    Reference:
        Xiao et al., "Learning from massive noisy labeled data for image classification", CVPR
        2015.
    """
    check_choice("variant", variant, _VARIANTS)
    folder = _folder(data_root(root))
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
    """The folder of the set, if its lists are there."""
    for folder in places("clothing1m", root):
        if any((folder / sub / "noisy_train_key_list.txt").is_file() for sub in _SUBFOLDERS):
            return folder
    return None


def verify_clothing1m(root: Path) -> dict[str, str]:
    """The SHA-256 of names and labels of each part, when every named photo is there.

    No official hash is published, so this finds missing files, not changed ones.

    Raises:
        DataError: If the set is not there, a list does not fit, or a photo is missing.
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
        check_files(_folder(root), names)
        lines = (f"{name} {label}\n" for name, label in zip(names, split.labels, strict=True))
        found[part] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return found


_SUBFOLDERS = ("", "annotations")


def _folder(root: Path) -> Path:
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
