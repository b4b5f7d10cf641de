"""Files of a run that may be damaged, read into plain values or refused in one line."""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object that a text holds.

    Args:
        text: UTF-8.
        where: File, and place in it, for messages.

    Raises:
        DataError: If it holds none, or a number that JSON does not know.

    Examples:
        >>> parse_object(b'{"step": 1}', "history.jsonl, line 1")
        {'step': 1}
    """
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, endless nesting
        raise DataError(f"{where}: is not valid JSON ({error}); the file is damaged") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: must hold a JSON object, holds {type(value).__name__}")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def read_arrays(
    path: Path, kinds: Mapping[str, str], *, optional: str | None = None
) -> dict[str, NDArray[Any]]:
    """Arrays of one dimension in a ``.npz`` file.

    Args:
        path: The file.
        kinds: For each name the kinds of numpy that its values may be of, such as "iu".
        optional: Name of an array that need not be there.

    Raises:
        DataError: If the file is missing or damaged, or an array is not as it should be.
    """
    try:
        with path.open("rb") as file:  # closed whatever numpy makes of it
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("one array without a name")
            names = [name for name in kinds if name != optional or name in loaded]
            arrays = {name: np.asarray(loaded[name]) for name in names}
    except KeyError as error:
        raise DataError(f"{path}: an array is missing ({error})") from None
    except (
        ValueError,
        EOFError,
        OSError,
        MemoryError,
        RuntimeError,  # a password, or (NotImplementedError) a packing that Python does not know
        SyntaxError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        # Not numpy's own reason, which for a damaged file is advice to load it unsafely.
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is damaged"
        raise DataError(f"{path}: cannot be read ({reason})") from None
    for name, values in arrays.items():
        if values.ndim != 1 or values.dtype.kind not in kinds[name]:
            found = f"{values.dtype} of shape {values.shape}"
            raise DataError(f"{path}: {name} must not be {found}; the file is damaged")
    return arrays


def check_lengths(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raises unless the arrays of a file are of one length.

    Raises:
        DataError: If they are not.
    """
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: its arrays must be of one length, got {lengths}")
