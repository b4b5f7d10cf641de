"""Sets of images on disk: digests and lists of files, and small images decoded into memory."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data.images import ArrayImages
from imae.data.sources.archive import read_archive
from imae.data.sources.download import data_root, fetch_command, places
from imae.data.split import Data, Split
from imae.errors import DataError

Arrays = Mapping[str, NDArray[Any]]
"""Decoded arrays: ``train_images`` (N, C, H, W), ``train_labels`` (N,), and so on."""


@dataclass(frozen=True)
class Layout:
    """One way in which the files of a set are published.

    Args:
        archive: Name of the archive that holds them, or None if they are separate files.
        prefix: Folder of the files, in the archive and where it was unpacked.
        files: Largest size in bytes by file name.
        decode: Turns the contents of the files, by name, into arrays.
    """

    archive: str | None
    prefix: str
    files: Mapping[str, int]
    decode: Callable[[Mapping[str, bytes]], Arrays]

    def locate(self, folder: Path) -> Path | None:
        """The folder or archive that has all the files, if there is one."""
        for place in (folder, folder / self.prefix):
            if all((place / name).is_file() for name in self.files):
                return place
        archive = None if self.archive is None else folder / self.archive
        return archive if archive is not None and archive.is_file() else None

    def read(self, place: Path) -> Arrays:
        """The decoded arrays.

        Raises:
            DataError: If a file is damaged; the message names it.
        """
        if place.is_file():
            wanted = {f"{self.prefix}/{name}": size for name, size in self.files.items()}
            members = read_archive(place, wanted)
            contents = {name: members[f"{self.prefix}/{name}"] for name in self.files}
        else:
            contents = {name: _read(place / name, limit) for name, limit in self.files.items()}
        try:
            return self.decode(contents)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error


@dataclass(frozen=True)
class ImageSet:
    """A set of small images.

    Args:
        name: Its name.
        layouts: Ways in which it is published; the first that is found is read.
        digests: Published digest of every decoded array.
        class_names: Names of the classes.
        mean: Mean of each channel of the training images, in [0, 1].
        std: Standard deviation of each channel of the training images, in [0, 1].
        pad: Pixels of padding for random crops.
        flip: Whether a mirrored image has the same class.
        system_folder: Where a package of the operating system puts the files.
    """

    name: str
    layouts: tuple[Layout, ...]
    digests: Mapping[str, str]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int
    flip: bool
    system_folder: str | None = None

    def locate(self, root: Path) -> Path | None:
        """The folder or archive that the set would be read from, if there is one."""
        found = self._find(root)
        return None if found is None else found[1]

    def read(self, root: Path) -> Arrays:
        """The decoded arrays, checked against the published digests.

        Raises:
            DataError: If the set is missing, or not the published one.
        """
        found = self._find(root)
        if found is None:
            raise DataError(
                f"{self.name} is not in {root}: get it with `{fetch_command(self.name, root)}`"
            )
        layout, place = found
        arrays = layout.read(place)
        check_digests(str(place), arrays, self.digests)
        return arrays

    def verify(self, root: Path) -> dict[str, str]:
        """The digest of each array; each is the published one.

        Raises:
            DataError: If the set is missing, or not the published one.
        """
        self.read(root)
        return dict(self.digests)

    def split(
        self,
        arrays: Arrays,
        part: str,
        *,
        labels: NDArray[Any] | None = None,
        class_names: tuple[str, ...] | None = None,
        clean_labels: NDArray[Any] | None = None,
    ) -> Split:
        """The training or test rows; a row's id is its part and its position in the official order.

        Args:
            arrays: The result of ``read``.
            part: ``"train"`` or ``"test"``.
            labels: Labels instead of the usual ones, shape (N,).
            class_names: Class names instead of the usual ones.
            clean_labels: True labels, where ``labels`` may be wrong, shape (N,).
        """
        pixels = np.ascontiguousarray(arrays[f"{part}_images"])
        labels = arrays[f"{part}_labels"] if labels is None else labels
        return Split(
            inputs=ArrayImages(pixels, mean=self.mean, std=self.std, pad=self.pad, flip=self.flip),
            labels=labels.astype(np.int64),
            row_ids=np.array([f"{part}/{row:05d}" for row in range(len(pixels))]),
            class_names=self.class_names if class_names is None else class_names,
            clean_labels=None if clean_labels is None else clean_labels.astype(np.int64),
        )

    def data(self, root: str | os.PathLike[str] | None) -> Data:
        """The set with its official training and test rows.

        Raises:
            DataError: If the set is missing, or not the published one.
        """
        arrays = self.read(data_root(root))
        return Data(self.name, self.split(arrays, "train"), test=self.split(arrays, "test"))

    def _find(self, root: Path) -> tuple[Layout, Path] | None:
        folders = places(self.name, root)
        if self.system_folder is not None:
            folders = (*folders, Path(self.system_folder))
        for folder in folders:
            for layout in self.layouts:
                place = layout.locate(folder)
                if place is not None:
                    return layout, place
        return None


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path}: has more than {limit} bytes, which the published file does not")
    return data


def array_digest(array: NDArray[Any]) -> str:
    """SHA-256 of an array's type, shape and values, in hexadecimal.

    Examples:
        >>> array_digest(np.arange(3, dtype=np.uint8))[:16]
        '1e9d5f87ad08f908'
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little.dtype.str} {little.shape}\n".encode())
    digest.update(np.ascontiguousarray(little).data)
    return digest.hexdigest()


def check_digests(
    source: str, arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, str]
) -> dict[str, str]:
    """The digest of every array that has an expected one.

    Args:
        source: The file or folder that the arrays came from, for the message.
        arrays: Decoded arrays by name.
        expected: Published digests by name.

    Raises:
        DataError: If a digest differs.
    """
    found = {name: array_digest(array) for name, array in arrays.items() if name in expected}
    for name, digest in found.items():
        if digest != expected[name]:
            raise DataError(
                f"{source}: {name.replace('_', ' ')} of shape {arrays[name].shape} are not the "
                f"published ones (sha256 {digest[:12]}, expected {expected[name][:12]}): delete "
                "the file and fetch it again"
            )
    return found


def read_names(path: Path) -> list[str]:
    """The lines of a list of files, without empty ones.

    Args:
        path: A text file with one relative path per line.

    Raises:
        DataError: If the list is missing, empty or not text, or a name is absolute or outside
            its folder; the message names the line.
    """
    names = []
    for number, line in enumerate(read_lines(path), 1):
        if line:
            check_relative(line, f"{path}: line {number}")
            names.append(line)
    if not names:
        raise DataError(f"{path}: the list is empty")
    return names


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, without the white space around them.

    Raises:
        DataError: If the file is missing or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such list: see the layout in docs/datasets.md") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file (byte {error.start})") from error
    return [line.strip() for line in text.split("\n")]


def check_relative(name: str, source: str) -> None:
    """Raises unless a name stays inside the folder that it is relative to.

    Raises:
        DataError: If it is absolute or has a part ``..``.
    """
    is_absolute = name.startswith(("/", "\\")) or name[1:2] == ":"
    if is_absolute or "\0" in name or ".." in name.replace("\\", "/").split("/"):
        raise DataError(f"{source}: {name!r} is outside the folder of the data set")


def check_files(root: Path, names: Sequence[str]) -> None:
    """Raises unless every named file exists.

    Raises:
        DataError: With the number of missing files and the first of them.
    """
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise DataError(
            f"{root}: {len(missing)} of {len(names)} images are missing, the first is {missing[0]}"
        )
