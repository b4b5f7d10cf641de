"""Tables of numbers in MATLAB files of version 5 to 7, the format of the MARS track tables.

A short reader instead of scipy's: it needs no further package, and what a compressed file unpacks
to is bounded before it is unpacked.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

_MAX_FILE_BYTES = 16 << 20
_MAX_BYTES = 64 << 20
_HEADER_BYTES = 128
_COMPRESSED = 15
_MATRIX = 14
_NUMBERS = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 12: "i8", 13: "u8"},
    **{7: "f4", 9: "f8"},
}


def read_mat(path: Path) -> dict[str, NDArray[np.int64]]:
    """Tables of whole numbers by variable name; other variables are left out.

    Args:
        path: The file.

    Raises:
        DataError: If it is damaged, or of another version.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise DataError(f"{path}: more than {_MAX_FILE_BYTES} bytes, which no track table has")
    if len(data) < _HEADER_BYTES or data[126:128] not in (b"IM", b"MI"):
        raise DataError(f"{path}: not a MATLAB file of version 5 to 7: fetch it again")
    if data[124:128] != b"\x00\x01IM":
        raise DataError(f"{path}: a MATLAB file of version 7.3 or of big-endian order, not 5 to 7")
    tables: dict[str, NDArray[np.int64]] = {}
    try:
        for kind, content in _elements(data[_HEADER_BYTES:]):
            table = _table(*_unpacked(kind, content))
            if table is not None:
                tables[table[0]] = table[1]
    except (ValueError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise DataError(f"{path}: cut off or damaged ({error}): fetch it again") from error
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
            # Compressed elements alone are not filled up to a multiple of eight bytes.
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
    unpacked = unpacker.decompress(content, _MAX_BYTES)
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
