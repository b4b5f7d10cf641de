"""The digits that come inside the scikit-learn wheel: the set that is always there."""

import importlib.util
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data.images import ArrayImages
from imae.data.sources.archive import check_digests
from imae.data.split import Data, Split
from imae.errors import import_extra

_DIGESTS = {
    "images": "3eb20786d1144f147b623714174c53bc2ecc5145f598bbe3d1790117f227d56f",
    "labels": "d517a5fe48282efb3c8ac2ba68f3960dd4eb9519a4167e9992410c6a577de871",
}


def digits(root: str | os.PathLike[str] | None = None) -> Data:  # noqa: ARG001
    """Handwritten digits, 1,797 images of 8 x 8, 10 classes.

    Every fifth image of each class, in the order of the file, is a test row; the split is the
    same everywhere and always. The 17 grey levels are spread over 0 to 255.

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
