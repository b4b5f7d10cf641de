"""Numpy's files, read without trusting a word of their headers."""

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

# Real arrays shrink by ten at most; a file that claims more than this is a trap or nearly empty.
LARGEST_UNPACKED = 256 * 2**20
LARGEST_RATIO = 100
# Of the other packings of zip files Python unpacks a whole block, whatever size a member claims.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a ``.npy`` file.

    Raises:
        DataError: If it is damaged, of another size than it says, or holds Python objects.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "x.npy"
        >>> np.save(path, np.arange(3))
        >>> read_npy(path)
        array([0, 1, 2])
    """
    try:
        with path.open("rb") as file:
            return _read_array(file, path.stat().st_size, where=str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_npz(path: Path, keys: Collection[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names in a ``.npz`` file, as far as they are in it.

    Raises:
        DataError: If it is damaged, a name stands twice, an array would unpack to far more than
            the file holds, is of another size than it says, or holds Python objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                if key in members:
                    raise DataError(f"{path}: array {key!r} stands twice in the file")
                members[key] = member
            return {
                key: _read_member(archive, members[key], where=f"{path}, array {key!r}")
                for key in keys
                if key in members
            }
    # RuntimeError: a password; NotImplementedError: a packing that Python does not know;
    # UnicodeDecodeError: a damaged name.
    except (
        OSError,
        zipfile.BadZipFile,
        EOFError,
        RuntimeError,
        NotImplementedError,
        UnicodeDecodeError,
    ) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: is damaged or no .npz file ({reason})") from error


def check_unpacked(packed: int, unpacked: int, *, where: str) -> None:
    """Raises if a file would unpack to far more than any real data does.

    Args:
        packed: Bytes in the file.
        unpacked: Bytes that it says it holds.
        where: File, and what in it, for the message.

    Raises:
        DataError: If it would unpack to more than 256 MB and more than 100 times its size.
    """
    if unpacked > LARGEST_UNPACKED and unpacked > LARGEST_RATIO * packed:
        raise DataError(
            f"{where}: would unpack from {packed} bytes to {unpacked}; refused as a trap, "
            f"save it without compression if it is real"
        )


def check_packing(member: zipfile.ZipInfo, *, where: str) -> None:
    """Raises unless a member of a zip file is packed as numpy and torch do it.

    Raises:
        DataError: If it is packed otherwise: that cannot be unpacked within bounds.
    """
    if member.compress_type not in _PACKINGS:
        raise DataError(
            f"{where}: is packed in a way that numpy does not use; save it again with numpy"
        )


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, *, where: str) -> NDArray[Any]:
    check_packing(member, where=where)
    check_unpacked(member.compress_size, member.file_size, where=where)
    try:
        with archive.open(member) as stream:
            return _read_array(stream, member.file_size, where=where)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{where}: is damaged ({error}); save it again") from error


def _read_array(stream: IO[bytes], size: int, *, where: str) -> NDArray[Any]:
    if size == 0:
        raise DataError(f"{where}: is empty (0 bytes)")
    shape, fortran, dtype = _read_header(stream, where)
    if dtype.hasobject:
        raise DataError(
            f"{where}: holds Python objects, which could run code; save it as numbers or text"
        )
    expected, found = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if expected != found:
        raise DataError(
            f"{where}: shape {shape} of {dtype} takes {expected} bytes but {found} are there; "
            f"it was cut off or changed"
        )
    data = np.empty(expected, np.uint8)
    view = data.data
    filled = 0
    while filled < expected:
        part = stream.readinto(view[filled : filled + 2**20])  # type: ignore[attr-defined]
        if not part:
            raise DataError(f"{where}: ends after {filled} of {expected} bytes")
        filled += part
    if stream.read(1):  # reading to the end is what makes zipfile compare its checksum
        raise DataError(f"{where}: goes on after its {expected} bytes")
    return data.view(dtype).reshape(shape, order="F" if fortran else "C")


def _read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise DataError(f"{where}: version {version} of the format holds no plain arrays")
    except DataError:
        raise
    # The header is parsed as a Python literal, and a damaged one fails in as many ways as those
    # do: ValueError, SyntaxError, TypeError, KeyError, tokenize.TokenError ...
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{where}: is damaged or no numpy array ({reason})") from error
    if any(length < 0 for length in shape) or dtype.names is not None or dtype.itemsize == 0:
        raise DataError(f"{where}: shape {shape} of {dtype} is no plain array")
    return shape, fortran, dtype
