"""A folder of class folders, and images that cannot be read."""

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from imae.data.assemble import SPLIT_NAMES, Columns, assemble
from imae.data.image_files import SUFFIXES, ImageFiles, confined_names, decode
from imae.data.split import Data, Skipped, Split, written_ids
from imae.errors import DataError, check_integer


def drop_unreadable(data: Data, *, workers: int = 0) -> Data:
    """The data without the images that cannot be read, which it lists under ``skipped``.

    Every image is decoded once, so this takes about as long as an epoch of reading.

    Args:
        data: Data whose inputs are image files; other inputs come back as they are.
        workers: Processes that decode; 0 does it in this one.

    Raises:
        ArgumentError: If ``workers`` is negative.
        DataError: If a split loses all its images, or the training rows a whole class.
    """
    check_integer("workers", workers, low=0)
    skipped: list[Skipped] = []

    def readable(split: Split) -> Split:
        problems = _problems(split, workers)
        kept = [row for row, problem in enumerate(problems) if problem is None]
        skipped.extend(
            Skipped(str(split.row_ids[row]), problem)
            for row, problem in enumerate(problems)
            if problem is not None
        )
        if not kept:
            raise DataError(f"{data.name}: no image can be read; the first: {problems[0]}")
        return split.take(np.array(kept)) if len(kept) < len(split) else split

    cleaned = data.map_splits(readable)
    left = np.bincount(cleaned.train.labels, minlength=data.num_classes)
    lost = np.flatnonzero((left == 0) & (np.bincount(data.train.labels, minlength=len(left)) > 0))
    if len(lost):
        raise DataError(
            f"{data.name}: no image of class {data.class_names[lost[0]]!r} can be read; "
            f"the first problem: {skipped[0].reason}"
        )
    if not skipped:
        return cleaned
    return replace(cleaned, skipped=(*data.skipped, *skipped)).with_notes(
        f"{len(skipped)} images cannot be read and are skipped; the first: {skipped[0].reason}"
    )


def check_present(data: Data) -> None:
    """Raises if an image file is not there; whether it can be read shows when it is.

    Raises:
        DataError: If one is missing, is empty or is no ordinary file; the message counts them all.
    """
    for split in data.splits().values():
        if not isinstance(split.inputs, ImageFiles):
            continue
        wrong = [
            (row, problem)
            for row, name in enumerate(split.inputs.names)
            if (problem := _absence(split.inputs.root / name)) is not None
        ]
        if wrong:
            row, problem = wrong[0]
            more = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
            raise DataError(f"{data.name}: row {str(split.row_ids[row])!r}: {problem}{more}")


def _problems(split: Split, workers: int) -> Sequence[str | None]:
    """What is wrong with the image of every row, or None."""
    if not isinstance(split.inputs, ImageFiles):
        return [None] * len(split)
    loader = DataLoader(
        _Checks(split.inputs), batch_size=None, num_workers=workers, generator=torch.Generator()
    )
    return [problem or None for problem in loader]


class _Checks(Dataset[str]):
    """What is wrong with each image, as text that may be empty."""

    def __init__(self, images: ImageFiles) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> str:
        path = self._images.root / self._images.names[row]
        absence = _absence(path)
        if absence is not None:
            return absence
        try:
            decode(path, size=1)
        except DataError as error:
            return str(error)
        return ""


def _absence(path: Path) -> str | None:
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: cannot be opened ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return f"{path}: is no ordinary file"
    return f"{path}: is empty (0 bytes)" if status.st_size == 0 else None


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
        root: Folder that all images must be in, if links lead out of ``path``.
        resize: Side of the square that an image is warped to.
        crop: Side of the square that is cut out of it.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If a class folder holds no image, there are fewer than two, folders of splits
            are mixed with others, a folder cannot be listed, or a link leads out.
    """
    folders = _folders(path)
    if not folders:
        raise DataError(f"{path}: holds no class folders and no arrays; give one folder a class")
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
    """Raises if folders of splits are mixed with others; train may be a class of vehicles."""
    if len({SPLIT_NAMES[name.lower()] for name in named}) > 1:
        others = [name for name in folders if name not in named]
        raise DataError(
            f"{path}: has {', '.join(named)} and also {', '.join(others[:3])}; move what is no "
            f"split elsewhere, or rename the classes"
        )


def _images(path: Path, prefixes: Sequence[str]) -> tuple[list[str], list[object]]:
    """Names below the path, with forward slashes, and class of every image, in sorted order."""
    names: list[str] = []
    labels: list[object] = []
    for prefix in prefixes:
        classes = _folders(path / prefix)
        if not classes:
            raise DataError(f"{path / prefix}: holds no class folders; give one folder a class")
        for label in classes:
            found = images_below(path / prefix / label)
            if not found:
                raise DataError(f"{path / prefix / label}: class folder holds no image; remove it")
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
    """Names of all images below a folder, with forward slashes, sorted; none that is hidden.

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
