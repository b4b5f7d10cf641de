"""Arrays of images or features in ``.npz`` or ``.npy`` files, whose headers are not trusted."""

import math
import os
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from imae.data.assemble import Columns, assemble, divide, position_ids, written_ids
from imae.data.columns import first_invalid
from imae.data.features import Table
from imae.data.images import ArrayImages
from imae.data.split import Data, Inputs
from imae.errors import DataError
from imae.records.files import open_regular

# Real arrays compress at most tenfold; more than this is an attack or nearly all zeros.
LARGEST_UNPACKED = 64 * 2**20
LARGEST_RATIO = 100
# For other compressions Python unpacks a whole block, whatever size a member claims.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a ``.npy`` file.

    Raises:
        DataError: If it is damaged, its size contradicts its header, or it holds Python objects.
    """
    try:
        with open_regular(path) as file:
            return _read_array(file, os.fstat(file.fileno()).st_size, where=str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_npz(path: Path, keys: Collection[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names that a ``.npz`` file has.

    Raises:
        DataError: If it is damaged, a name appears twice, or an array would unpack to far more than
            the file holds, contradicts its header, or holds Python objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                if key in members:
                    raise DataError(f"{path}: array {key!r} is in the file twice")
                members[key] = member
            return {
                key: _read_member(archive, members[key], where=f"{path}, array {key!r}")
                for key in keys
                if key in members
            }
    # RuntimeError: a password, or a packing that Python does not know; UnicodeDecodeError: a
    # damaged name.
    except (OSError, zipfile.BadZipFile, EOFError, RuntimeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: is damaged or not a .npz file ({reason})") from error


def check_unpacked(packed: int, unpacked: int, *, where: str) -> None:
    """Raises if a file would unpack to far more than any real data does.

    Args:
        packed: Bytes in the file.
        unpacked: Bytes that it claims to hold.
        where: File, and what in it, for the message.

    Raises:
        DataError: If it would unpack to more than 64 MB and more than 100 times its size.
    """
    if unpacked > LARGEST_UNPACKED and unpacked > LARGEST_RATIO * packed:
        raise DataError(
            f"{where}: would unpack from {packed} bytes to {unpacked}; refused; "
            f"save it without compression if it is real"
        )


def check_packing(member: zipfile.ZipInfo, *, where: str) -> None:
    """Raises unless a member of a zip file is compressed as numpy and torch do it.

    Raises:
        DataError: If it is compressed in another way, which cannot be unpacked within bounds.
    """
    if member.compress_type not in _PACKINGS:
        raise DataError(
            f"{where}: is compressed in a way that numpy does not use; save it again with numpy"
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
    shape, fortran, dtype = read_header(stream, where)
    if dtype.hasobject:
        raise DataError(
            f"{where}: holds Python objects, which could run code; save it as numbers or text"
        )
    expected, found = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if expected != found:
        raise DataError(
            f"{where}: shape {shape} of {dtype} needs {expected} bytes, but there are {found}; "
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
        raise DataError(f"{where}: continues after its {expected} bytes")
    return data.view(dtype).reshape(shape, order="F" if fortran else "C")


def read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran order, and dtype of the ``.npy`` array in a stream.

    Raises:
        DataError: If the header is damaged, or describes anything but a plain array.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise DataError(f"{where}: version {version} of the format is not supported")
    except DataError:
        raise
    # The header is parsed as a Python literal, and a damaged one fails in many ways: ValueError,
    # SyntaxError, TypeError, KeyError, tokenize.TokenError ...
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{where}: is damaged or not a numpy array ({reason})") from error
    if any(length < 0 for length in shape) or dtype.names is not None or dtype.itemsize == 0:
        raise DataError(f"{where}: shape {shape} of {dtype} is not a plain array")
    return shape, fortran, dtype


ARRAY_SUFFIXES = (".npz", ".npy")
UNIT_SCALE = (1.0,)
"""Mean and deviation of each channel of images until they are known."""
_INPUTS = ("x", "images", "features")
_LABELS = ("y", "labels")
_OPTIONAL = ("row_ids", "clean_labels", "split", "weights", "class_names")


def load_array_file(path: Path, *, pad: int = 4, flip: bool = True) -> Data:
    """The data in a ``.npz`` file, or in a ``.npy`` file and others beside it.

    A ``.npz`` file holds the inputs as ``x``, ``images`` or ``features``, the labels as ``y`` or
    ``labels``, and if they are known ``row_ids``, ``clean_labels``, ``split``, ``weights`` and
    ``class_names``. A ``.npy`` file holds the inputs; the others are in the same folder under these
    names (``y.npy`` or ``labels.npy`` ...). Without ids a row's id is its position, from 0.

    Images are uint8, shape (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels; features
    are numbers, shape (N, F).

    Args:
        path: The file.
        pad: Black pixels added on each side of an image before it is cropped at random.
        flip: Whether half of the images are mirrored in training.

    Raises:
        DataError: If the file or a row of it cannot be used; the message says which and why.
    """
    where = str(path)
    arrays = _read(path, (*_INPUTS, *_LABELS, *_OPTIONAL))
    inputs = array_inputs(
        arrays.pop(_only(arrays, _INPUTS, where)), pad=pad, flip=flip, where=where
    )
    label_name = _only(arrays, _LABELS, where)
    for name, values in arrays.items():
        if name == "class_names" and values.ndim != 1:
            raise DataError(f"{where}: class_names must be a list, got shape {values.shape}")
        if name != "class_names" and values.shape != (len(inputs),):
            raise DataError(
                f"{where}: {len(inputs)} rows of inputs but {name} of shape {values.shape}"
            )
    lists = {name: _list(values) for name, values in arrays.items()}
    ids, weights = lists.get("row_ids"), arrays.get("weights")
    columns = Columns(
        source=where,
        inputs=inputs,
        labels=lists[label_name],
        row_ids=position_ids(len(inputs)) if ids is None else _ids(ids, where),
        clean_labels=lists.get("clean_labels"),
        weights=None if weights is None else _numbers(weights, where).astype(np.float32),
    )
    splits = list(map(str, lists["split"])) if "split" in lists else None
    class_names = list(map(str, lists["class_names"])) if "class_names" in lists else None
    return assemble(divide(columns, splits), name=path.stem, class_names=class_names)


def read_inputs(path: Path) -> tuple[Inputs, NDArray[np.str_]]:
    """The inputs in such a file and their ids; labels are neither needed nor read.

    Raises:
        DataError: If the file or a row of it cannot be used; the message says which and why.
    """
    where = str(path)
    arrays = _read(path, (*_INPUTS, "row_ids"))
    inputs = array_inputs(arrays[_only(arrays, _INPUTS, where)], pad=0, flip=False, where=where)
    ids = arrays.get("row_ids")
    if ids is None:
        return inputs, position_ids(len(inputs))
    if ids.shape != (len(inputs),):
        raise DataError(f"{where}: {len(inputs)} rows of inputs but row_ids of shape {ids.shape}")
    return inputs, _ids(_list(ids), where)


def _read(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    if path.suffix.lower() == ".npz":
        return read_npz(path, names)
    arrays = {"x": read_npy(path)}
    for name in [each for each in names if each not in _INPUTS]:
        beside = path.with_name(f"{name}.npy")
        if beside != path and beside.exists():
            arrays[name] = read_npy(beside)
    return arrays


def _only(arrays: Mapping[str, object], names: Sequence[str], where: str) -> str:
    found = [name for name in names if name in arrays]
    if len(found) != 1:
        has = " and ".join(found) or "none"
        raise DataError(f"{where}: needs one array called {' or '.join(names)}, has {has}")
    return found[0]


def array_inputs(values: NDArray[Any], *, pad: int, flip: bool, where: str) -> Inputs:
    """The array as features or images, not yet standardised; see ``load_array_file``."""
    if values.ndim == 2:
        if values.shape[1] == 0:
            raise DataError(f"{where}: inputs of shape {values.shape} have no features")
        return Table(_numbers(values, where))
    if values.ndim not in (3, 4) or values.size == 0:
        raise DataError(
            f"{where}: inputs of shape {values.shape} are neither features (N, F) nor images "
            f"(N, H, W), (N, H, W, C) or (N, C, H, W)"
        )
    if values.dtype != np.uint8:
        raise DataError(f"{where}: images must be uint8 from 0 to 255, got {values.dtype}")
    pixels = np.ascontiguousarray(_channels_first(values, where))
    unit = UNIT_SCALE * pixels.shape[1]
    return ArrayImages(pixels, mean=unit, std=unit, pad=pad, flip=flip)


def _channels_first(values: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    if values.ndim == 3:
        return values[:, None]
    first, last = values.shape[1] in (1, 3), values.shape[3] in (1, 3)
    if first == last:
        raise DataError(
            f"{where}: images of shape {values.shape} need 1 or 3 channels either as the second "
            f"or as the last dimension"
        )
    return values if first else values.transpose(0, 3, 1, 2)


def _numbers(values: NDArray[Any], where: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """The numbers in float32 if they were, else in float64: standardisation needs the precision."""
    if values.dtype.kind not in "iufb":
        raise DataError(f"{where}: features and weights must be numbers, got {values.dtype}")
    wrong = first_invalid(values)
    if wrong is not None:
        row = wrong // values[0].size
        raise DataError(
            f"{where}: row {row} (counted from 0) holds {values.flat[wrong]}; numbers must be "
            f"finite and fit float32"
        )
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _ids(values: Sequence[object], where: str) -> NDArray[np.str_]:
    return written_ids(list(map(str, values)), source=where)


def _list(values: NDArray[Any]) -> list[object]:
    is_bytes = values.dtype.kind == "S"
    return list((np.char.decode(values, "utf-8", "replace") if is_bytes else values).tolist())
