"""Hashes that tell whether decoded arrays are the published ones, whatever file they came from."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError


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
