"""Archives and pickles, read in memory without running any code in them.

The official CIFAR archives and label files are pickles. A pickle is a program; this reader first
refuses every instruction that those files do not need, and then answers the five names they do
use with stand-ins of its own, so that no importable object is ever within a pickle's reach.
"""

import gzip
import io
import math
import pickle
import pickletools
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

# What an archive may hold beside the wanted members: readme files, scripts, tar headers.
_OTHER_BYTES = 64 << 20
_MAX_MEMBERS = 1_000


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded:
    """A stream that refuses to return more than a number of bytes, against decompression bombs."""

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


_INSTRUCTIONS = frozenset(
    re.findall(
        r"\w+",
        "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET "
        "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
        "SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES SHORT_BINUNICODE BINUNICODE "
        "EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS "
        "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL REDUCE BUILD",
    )
)
_MAX_TUPLES = 1_000  # deeply nested tuples as dictionary keys overflow the interpreter's stack
_TYPES = {"u1": np.uint8, "i4": np.int32, "i8": np.int64}


def unpickle(data: bytes, *, source: str, skip: int = 0) -> Any:
    """The value of a pickle made of dictionaries, lists, strings, integers and integer arrays.

    Strings of Python 2 are returned as bytes.

    Args:
        data: The pickle; several may follow each other.
        source: File name for messages.
        skip: Number of pickles to skip first.

    Raises:
        DataError: If the pickle is damaged or contains anything else.

    Examples:
        >>> unpickle(pickle.dumps({"labels": [3, 8]}, protocol=2), source="batch")
        {'labels': [3, 8]}
    """
    file = io.BytesIO(data)
    value = None
    try:
        for _ in range(skip + 1):
            start = file.tell()
            _scan(file)
            file.seek(start)
            value = _Unpickler(file, max_bytes=len(data)).load()
        return _plain(value)
    except Exception as error:  # a damaged pickle can raise almost any type
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{source}: refused, not the plain pickle of a data set ({reason}): fetch it again "
            "from the official address"
        ) from error


def _scan(file: io.BytesIO) -> None:
    """Checks the instructions of a pickle before any of them is executed."""
    tuples = 0
    for opcode, argument, position in pickletools.genops(file):
        if opcode.name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"instruction {opcode.name}")
        # The unpickler allocates an entry for every number below a memo number.
        if (
            opcode.name == "LONG_BINPUT"
            and isinstance(argument, int)
            and argument > (position or 0)
        ):
            raise pickle.UnpicklingError(f"memo number {argument}")
        tuples += "TUPLE" in opcode.name
        if tuples > _MAX_TUPLES:
            raise pickle.UnpicklingError(f"more than {_MAX_TUPLES} tuples")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, *, max_bytes: int) -> None:
        super().__init__(file, encoding="bytes")
        self._bytes_left = max_bytes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _StandIn(self._latin_bytes)
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None

    def _latin_bytes(self, text: str, encoding: Any) -> bytes:
        if encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"encoding {encoding!r}")
        self._bytes_left -= len(text)  # a pickle can make the same call again and again
        if self._bytes_left < 0:
            raise pickle.UnpicklingError("more bytes than it holds")
        return text.encode("latin1")


class _StandIn:
    """What a pickle gets instead of a global: it can be called, but not changed."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> object:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to change a global")


class _Type:
    """Replaces ``numpy.dtype``; knows the few types that label files use."""

    __slots__ = ("code",)

    def __init__(self, code: Any, align: object = False, copy: object = True) -> None:
        del align, copy
        self.code = code.decode("ascii") if isinstance(code, bytes) else str(code)
        if self.code not in (*_TYPES, "O8", "O"):
            raise pickle.UnpicklingError(f"arrays of type {self.code!r}")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", "|"):
            raise pickle.UnpicklingError(f"byte order {order!r}")


class _Array:
    """Replaces an array while it is being rebuilt."""

    __slots__ = ("value",)

    def __init__(self, *arguments: object) -> None:
        del arguments  # an empty array that numpy pickles before its state
        self.value: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if not isinstance(kind, _Type) or is_fortran:
            raise pickle.UnpicklingError("arrays of an unknown layout")
        if kind.code.startswith("O"):  # numpy.save wraps a dictionary in an array of no dimension
            if shape != () or not isinstance(data, list) or len(data) != 1:
                raise pickle.UnpicklingError("arrays of objects")
            self.value = data[0]
        else:
            self.value = _numbers(data, shape, np.dtype(_TYPES[kind.code]))


def _numbers(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if any(size < 0 for size in shape) or len(data) != math.prod(shape) * dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of shape {shape} with {len(data)} bytes")
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)


def _refuse(*arguments: object) -> object:
    raise pickle.UnpicklingError(f"it calls numpy.ndarray with {len(arguments)} arguments")


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy", "ndarray"): _StandIn(_refuse),
    ("numpy", "dtype"): _StandIn(_Type),
}


def _plain(value: Any) -> Any:
    """The value with its stand-ins for arrays replaced by the arrays, two levels deep."""
    if isinstance(value, _Array):
        value = value.value
    if isinstance(value, dict):
        return {
            key: item.value if isinstance(item, _Array) else item for key, item in value.items()
        }
    return value
