"""A folder of class folders, alone or under train, validation and test."""

import os
from collections.abc import Sequence
from pathlib import Path

from imae.data.assemble import SPLIT_NAMES, Columns, assemble, written_ids
from imae.data.confine import confined_names
from imae.data.image_files import SUFFIXES, ImageFiles
from imae.data.split import Data
from imae.errors import DataError


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
    folders are looked for inside those. Images may lie deeper in a class folder; hidden files,
    files that are no images and links to further folders are left out. A row's id is its path
    below ``path``.

    Args:
        path: The folder.
        root: Folder that no image may lie outside of, if links lead out of ``path``.
        resize: Side of the square that an image is warped to.
        crop: Side of the square that is cut out of it.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If a class folder holds no image, there are fewer than two, folders of splits
            lie beside others, a folder cannot be listed, or a link leads out.
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
    """Raises if folders of splits lie beside others: train alone may be a class of vehicles."""
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
