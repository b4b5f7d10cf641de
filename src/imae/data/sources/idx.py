"""IDX files, the format of MNIST and Fashion-MNIST."""

import math

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

_UNSIGNED_BYTE = 8


def read_idx(data: bytes, *, source: str) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes: two zeros, type, number of dimensions, sizes, values.

    Raises:
        DataError: If the header is not one, or the sizes do not fit the length.

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
