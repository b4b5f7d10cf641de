"""Named members of an archive, read into memory; nothing is ever written to the disk.

A member's name is compared, never used as a path, so an archive cannot choose where anything
goes, and links and devices have nothing to act on.
"""

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from imae.errors import DataError

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
        DataError: If the archive is cut off or damaged, a wanted member is missing, stands twice,
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
                        raise tarfile.ReadError(f"member {name} stands twice")
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
