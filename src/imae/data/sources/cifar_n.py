"""CIFAR-10N and CIFAR-100N: the CIFAR training images with labels given by people.

The labels are licensed CC BY-NC 4.0 and are not part of this package.
"""

import io
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data.arrays import check_packing, read_header
from imae.data.sources.archive import unpickle
from imae.data.sources.cifar import CIFAR10, CIFAR100, CIFAR100_COARSE_CLASSES
from imae.data.sources.download import data_root, fetch_command, places
from imae.data.sources.image_set import ImageSet, check_digests
from imae.data.split import Data, Split
from imae.errors import DataError, check_choice
from imae.noise.asymmetric import CIFAR100_COARSE

_MAX_BYTES = 16 << 20
_TORCH_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


@dataclass(frozen=True)
class HumanLabels:
    """Labels given by people to the training images of a set.

    Args:
        name: Name of the labelled set.
        images: The set whose training images were labelled.
        files: Names that the label file may have.
        official_names: Our name of an array by its name in the official files.
        digests: Published digest of each array.
    """

    name: str
    images: ImageSet
    files: tuple[str, ...]
    official_names: Mapping[str, str]
    digests: Mapping[str, str]

    def locate(self, root: Path) -> Path | None:
        """The label file, if both it and the images exist."""
        return None if self.images.locate(root) is None else self._file(root)

    def read(self, root: Path) -> dict[str, NDArray[np.uint8]]:
        """Labels by name, each of shape (N,), checked against the published digests.

        Raises:
            DataError: If the label file is missing, or not the published one.
        """
        path = self._file(root)
        if path is None:
            raise DataError(
                f"{self.name}: none of {', '.join(self.files)} is in {root}: get one with "
                f"`{fetch_command(self.name, root)}`"
            )
        columns = {
            self.official_names.get(name, name): labels
            for name, labels in read_label_file(path).items()
        }
        known = {name: labels for name, labels in columns.items() if name in self.digests}
        check_digests(str(path), known, self.digests)
        if "clean" not in known:
            raise DataError(f"{path}: has no array of clean labels; fetch it again")
        return known

    def verify(self, root: Path) -> dict[str, str]:
        """The digest of each array of images and labels; each is the published one.

        Raises:
            DataError: If images or labels are missing, or not the published ones.
        """
        found = self.images.verify(root)
        return {**found, **{name: self.digests[name] for name in self.read(root)}}

    def data(self, root: str | os.PathLike[str] | None, *, given: str) -> Data:
        """The images with the labels ``given``, and the true ones as clean labels.

        Args:
            root: Folder of the data sets, or None for the default one.
            given: Name of the array of given labels.

        Raises:
            DataError: If a file is missing, or the labels belong to other images.
        """
        folder = data_root(root)
        columns = self.read(folder)
        if given not in columns:
            raise DataError(f"{self._file(folder)}: has no array of {given} labels")
        arrays = self.images.read(folder)
        if not np.array_equal(columns["clean"], arrays["train_labels"]):
            raise DataError(
                f"{self._file(folder)}: its clean labels are not those of {self.images.name}: "
                "the rows are in another order"
            )
        train = self.images.split(
            arrays, "train", labels=columns[given], clean_labels=columns["clean"]
        )
        return Data(self.name, train, test=self.images.split(arrays, "test"))

    def _file(self, root: Path) -> Path | None:
        for folder in places(self.name, root):
            for name in self.files:
                if (folder / name).is_file():
                    return folder / name
        return None


def cifar10n(root: str | os.PathLike[str] | None = None, variant: str = "worst") -> Data:
    """CIFAR-10 with human labels; the true labels are its clean labels, the test rows are clean.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: ``"worst"`` (40.2% wrong), ``"aggregate"`` (9.0%), ``"random1"`` (17.2%),
            ``"random2"`` (18.1%) or ``"random3"`` (17.6%).

    Raises:
        ArgumentError: If the variant is unknown.
        DataError: If images or labels are missing, or not the published ones.

    Reference:
        Wei et al., "Learning with noisy labels revisited: a study using real-world human
        annotations", ICLR 2022.
    """
    variants = ("worst", "aggregate", "random1", "random2", "random3")
    check_choice("variant", variant, variants)
    return CIFAR10N.data(root, given=variant)


def cifar100n(root: str | os.PathLike[str] | None = None, variant: str = "fine") -> Data:
    """CIFAR-100 with human labels; the true labels are its clean labels, the test rows are clean.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: ``"fine"`` for the 100 classes (40.2% wrong), ``"coarse"`` for their
            superclasses (26.4% wrong).

    Raises:
        ArgumentError: If the variant is unknown.
        DataError: If images or labels are missing, or not the published ones.

    Reference:
        Wei et al., "Learning with noisy labels revisited: a study using real-world human
        annotations", ICLR 2022.
    """
    check_choice("variant", variant, ("fine", "coarse"))
    data = CIFAR100N.data(root, given="noisy")
    if variant == "fine":
        return data
    assert data.test is not None
    return Data(data.name, _in_superclasses(data.train), test=_in_superclasses(data.test))


def _in_superclasses(split: Split) -> Split:
    """The rows with the superclasses of their labels; people chose among the 100 classes."""
    superclasses = np.array(CIFAR100_COARSE, np.int64)
    clean = split.clean_labels
    return replace(
        split,
        labels=superclasses[split.labels],
        clean_labels=None if clean is None else superclasses[clean],
        class_names=CIFAR100_COARSE_CLASSES,
    )


def read_label_file(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Label arrays by name, from ``.npz``, ``.npy`` (a saved dictionary) or ``.pt``.

    Dictionaries are pickles: they are read by the restricted reader, so nothing in them runs.

    Args:
        path: The file.

    Raises:
        DataError: If the file is damaged, too large, or holds anything but arrays of labels.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise DataError(f"{path}: more than {_MAX_BYTES} bytes, which no label file has")
    if path.suffix == ".npz":
        members = _unzip(data, path)
        values = {
            name.removesuffix(".npy"): _read_npy(item, source=f"{path}: {name}")
            for name, item in members.items()
        }
    elif path.suffix == ".npy":
        values = _read_npy(data, source=str(path))
    else:
        values = _read_torch(data, path)
    if not isinstance(values, dict):
        raise DataError(f"{path}: not a dictionary of label arrays")
    return {_text(name): _labels(array, f"{path}: {_text(name)}") for name, array in values.items()}


def _unzip(data: bytes, path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > _MAX_BYTES or len(members) > 100:
                raise DataError(f"{path}: unpacks to more than a label file can hold")
            return {member.filename: _member(archive, member, path) for member in members}
    # RuntimeError: a password, or a packing that Python does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: cut off or damaged ({error}); fetch it again") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> bytes:
    check_packing(member, where=str(path))
    with archive.open(member) as stream:
        # Reads only as much as the header claims; reading everything could unpack far more.
        return stream.read(member.file_size)


def _read_npy(data: bytes, *, source: str) -> Any:
    file = io.BytesIO(data)
    shape, is_fortran, dtype = read_header(file, source)
    rest = data[file.tell() :]
    if dtype.hasobject:
        return unpickle(rest, source=source)
    if is_fortran or dtype.kind not in "ui" or len(rest) != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{source}: {dtype} of shape {shape} does not fit {len(rest)} bytes")
    return np.frombuffer(rest, dtype).reshape(shape)


def _read_torch(data: bytes, path: Path) -> Any:
    if data.startswith(_TORCH_MAGIC):  # before torch 1.6: magic, version, system, then the value
        return unpickle(data, source=str(path), skip=3)
    members = _unzip(data, path)
    pickles = [name for name in members if name.endswith("data.pkl")]
    if len(pickles) != 1:
        raise DataError(f"{path}: not a file that torch saved; fetch it again")
    return unpickle(members[pickles[0]], source=str(path))


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _labels(value: object, source: str) -> NDArray[np.uint8]:
    is_column = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "ui"
    if not isinstance(value, np.ndarray) or not is_column:
        raise DataError(f"{source}: not a column of integer labels")
    if len(value) and (value.min() < 0 or value.max() > 255):
        row = int(np.argmax((value < 0) | (value > 255)))
        raise DataError(f"{source}: row {row} has label {value[row]}, outside 0 to 255")
    return value.astype(np.uint8)


CIFAR10N = HumanLabels(
    name="cifar10n",
    images=CIFAR10,
    files=("cifar10n.npz", "CIFAR-10_human.npy", "CIFAR-10_human.pt"),
    official_names={
        "clean_label": "clean",
        "aggre_label": "aggregate",
        "worse_label": "worst",
        "random_label1": "random1",
        "random_label2": "random2",
        "random_label3": "random3",
    },
    digests={
        "clean": "ca779cfafccdf658020a1426fb4005f6eb305c6f038584df034b51d1b3eda57f",
        "worst": "f0696286645dec40f8ef43c2cb56f6d3b89562148bdca3829095bce67016de5f",
        "aggregate": "c16d7e8b3b19718a2a51b0964cc4bce9be69ae511f8a0981326f3e6cfa77eae1",
        "random1": "c26bcf39c9910e64530f2cef88de28892d8d6a31acc42165a8a8af4461b9e5f1",
        "random2": "7871f58957f45bedfe09cedcdd8e7912860a5daae8d7da8c750984b9cba998db",
        "random3": "7fb0db4b174e969d75ae35ad4c07bf3d7a8bd9c0289664089e16eb1b6a0307c3",
    },
)

CIFAR100N = HumanLabels(
    name="cifar100n",
    images=CIFAR100,
    files=("cifar100n.npz", "CIFAR-100_human.npy", "CIFAR-100_human.pt"),
    official_names={
        "clean_label": "clean",
        "noisy_label": "noisy",
        "noise_label": "noisy",  # the .npy file spells it so
    },
    digests={
        "clean": "df5292da06dc6e4c4484a78f6d8c5d6cd4db91b8cd39261c8d25ce211d78b4dc",
        "noisy": "762ad8cc85d841efe6083ce683cfc951123b379cc152ef7a074f73ae42be0926",
        "clean_coarse": "4dbb0b733cc3cb51bf449e06ddb49099e361c08611316302bab19b6399b6b3dd",
        "noisy_coarse": "346f25e20ca56fb11f0dba417870e283a12985620d46d99210ae320b8940acbe",
    },
)
