"""Label files of CIFAR-N: arrays by name, whichever of three formats they were saved in."""

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data.arrays import check_packing
from imae.data.sources.unpickle import unpickle
from imae.errors import DataError

_MAX_BYTES = 16 << 20
_TORCH_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


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
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        ValueError,
    ) as error:
        raise DataError(f"{path}: cut off or damaged ({error}): fetch it again") from error
    except RuntimeError as error:  # an encrypted member
        raise DataError(f"{path}: cannot be unpacked ({error})") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> bytes:
    check_packing(member, where=str(path))
    with archive.open(member) as stream:
        # Asked for as much as it claims to hold, it unpacks no more; asked for all it would.
        return stream.read(member.file_size)


def _read_npy(data: bytes, *, source: str) -> Any:
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except (ValueError, TypeError, SyntaxError, EOFError, tokenize.TokenError) as error:
        raise DataError(f"{source}: cut off or damaged npy file: fetch it again") from error
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
        raise DataError(f"{path}: not a file that torch saved: fetch it again")
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
