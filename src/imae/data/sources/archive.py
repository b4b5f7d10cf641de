"""Files of named data sets: where they lie, archives read in memory, lists, digests."""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the data sets.

    Args:
        root: Folder given by the user, or None for ``$IMAE_DATA``, and ``~/.cache/imae`` where
            that is not set.

    Examples:
        >>> data_root("photos").name
        'photos'
    """
    if root is not None:
        return Path(root).expanduser()
    given = os.environ.get("IMAE_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "imae"


def places(name: str, root: Path) -> tuple[Path, ...]:
    """Folders in which the files of a set may lie: one of its own in ``root``, or ``root``."""
    return (root / name, root)


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
        path: A text file with one relative path in a line.

    Raises:
        DataError: If the list is missing, empty or not text, or a name is absolute or leads out
            of its folder; the message names the line.
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
        raise DataError(
            f"{path}: there is no such list: see the layout in the data set page"
        ) from error
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
        raise DataError(f"{source}: {name!r} leads out of the folder of the data set")


def check_files(root: Path, names: Sequence[str]) -> None:
    """Raises unless every named file is there.

    Raises:
        DataError: With the number of missing files and the first of them.
    """
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise DataError(
            f"{root}: {len(missing)} of {len(names)} images are missing, the first is {missing[0]}"
        )


# What an archive may hold beside the wanted members: readme files, scripts, tar headers.
_OTHER_BYTES = 64 << 20
_MAX_MEMBERS = 1_000


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """A stream that refuses to give more than a number of bytes, so a bomb cannot go off."""

    def __init__(self, stream: _Readable, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError("it unpacks to more than the data set can hold")
        return data


def read_archive(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The contents of the wanted members of a tar file, gzip compressed or plain.

    Args:
        path: The archive.
        wanted: Largest size in bytes by full member name.

    Raises:
        DataError: If the archive is cut off or damaged, a wanted member is missing, appears twice,
            is not a regular file or is larger than its limit.
    """
    with path.open("rb") as file:
        magic = file.read(2)
        file.seek(0)
        if magic == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as stream:
                return read_tar(stream, wanted, source=str(path))
        return read_tar(file, wanted, source=str(path))


def read_tar(stream: _Readable, wanted: Mapping[str, int], *, source: str) -> dict[str, bytes]:
    """The contents of the wanted members of an open, uncompressed tar stream.

    Args:
        stream: Anything with ``read``; it is read once, forwards.
        wanted: Largest size in bytes by full member name.
        source: What to call the stream in messages.

    Raises:
        DataError: As ``read_archive`` does.
    """
    bounded = _Bounded(stream, sum(wanted.values()) + _OTHER_BYTES)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=bounded, mode="r|") as tar:  # type: ignore[call-overload]
            for position, member in enumerate(tar):
                if position >= _MAX_MEMBERS:
                    raise tarfile.ReadError(f"it has more than {_MAX_MEMBERS} members")
                name = member.name.removeprefix("./")
                if name in wanted:
                    if name in found:
                        raise tarfile.ReadError(f"member {name} appears twice")
                    found[name] = _contents(tar, member, wanted[name])
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{source}: the archive is cut off or damaged ({reason}): delete it and fetch it again"
        ) from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{source}: the archive has no member {missing[0]}: fetch it again")
    return found


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


def _contents(tar: tarfile.TarFile, member: tarfile.TarInfo, limit: int) -> bytes:
    if not member.isreg() or member.issparse():
        raise tarfile.ReadError(f"member {member.name} is not a regular file")
    if member.size > limit:
        raise tarfile.ReadError(f"member {member.name} has {member.size} bytes, limit {limit}")
    file = tar.extractfile(member)
    data = b"" if file is None else file.read(limit + 1)
    if len(data) != member.size:
        raise tarfile.ReadError(f"member {member.name} is cut off")
    return data
