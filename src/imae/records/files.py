"""Files that are written whole or not at all, and damaged files refused in one line."""

import contextlib
import json
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError, ImaeError
from imae.records.measures import MEASURES


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes its place only when the block ends without an error.

    The bytes go to a temporary file in the same folder, are flushed to the disk and renamed, so
    a reader sees the old file or the new one, never a part, and neither does a crash leave one.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with whole_file(folder / "labels.csv") as file:
        ...     _ = file.write(b"row,label")
        >>> [path.name for path in folder.iterdir()]
        ['labels.csv']
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes it private; a result file is not
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True, eq=False)
class RunLabels:
    """Labels of the rows a run trained on, in training order, or of rows it did not train on.

    Args:
        row_ids: Id of every row, shape (N,), strings.
        given: Given labels, shape (N,), integers in [0, C).
        class_names: Names of the classes, shape (C,), strings.
        clean: True labels where they are known, shape (N,).
        planted: Whether the given label was drawn wrong on purpose, shape (N,), if any was.
    """

    row_ids: NDArray[np.str_]
    given: NDArray[np.int64]
    class_names: NDArray[np.str_]
    clean: NDArray[np.int64] | None = None
    planted: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class EpochDynamics:
    """What the training pass of one epoch showed of every row, in the order of the labels.

    Args:
        margin: Log-odds of the given label, float32, shape (N,); NaN for a row not seen.
        predicted: Most likely class, int32, shape (N,); -1 for a row not seen.
        weight: L1 norm of the gradient of the row's loss with respect to its logits, float32,
            shape (N,); NaN for a row not seen or not trained on.
    """

    margin: NDArray[np.float32]
    predicted: NDArray[np.int32]
    weight: NDArray[np.float32]


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
    raise ValueError(f"{constant} is not a JSON number")


def read_file(path: Path) -> bytes:
    """The bytes of a file, which must be a regular one: a pipe would be waited for forever.

    Raises:
        DataError: If it is not one, or cannot be read.
    """
    if not path.is_file():
        raise DataError(f"{path}: is not a regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


_NUMBERS = ("epoch", "seconds", "learning_rate", "train_loss")


def check_row(row: Mapping[str, Any], where: str, *, last_step: int) -> None:
    """Raises unless an object is a row of a history.

    Args:
        row: The object.
        where: File and line, for messages.
        last_step: Step of the row before it.

    Raises:
        DataError: If it has no step after that of the row before, or a value is not a number.
    """
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step <= last_step:
        raise DataError(
            f"{where}: must have a step after {last_step}, got {step!r}; no run wrote this file"
        )
    for name in (*(measure.key for measure in MEASURES), *_NUMBERS):
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise DataError(
                f"{where}: {name} must be a number, got {value!r}; no run wrote this file"
            )


def read_arrays(
    path: Path, kinds: Mapping[str, str], *, optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of one dimension in a ``.npz`` file.

    Args:
        path: The file.
        kinds: For each name the kinds of numpy that its values may be of, such as "iu".
        optional: Names of arrays that need not be there.

    Raises:
        DataError: If the file is missing or damaged, or an array is not as it should be.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for forever
            raise ValueError("not a regular file")
        with path.open("rb") as file:  # closed even if numpy fails
            _refuse_packed(file)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("one array without a name")
            names = [name for name in kinds if name not in optional or name in loaded]
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


def _refuse_packed(file: IO[bytes]) -> None:
    """Raises if a zip file is compressed: records are not, and a small file could fill memory."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed")
    file.seek(0)


def check_lengths(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raises unless the arrays of a file are of one length.

    Raises:
        DataError: If they are not.
    """
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: its arrays must be of one length, got {lengths}")


@contextlib.contextmanager
def explained_writing(path: Path, run: Path) -> Iterator[None]:
    """Turns a failure to write into one line that says how to continue.

    Args:
        path: What is being written.
        run: The run folder it belongs to.

    Raises:
        ImaeError: If the disk is full, the folder is not writable, and so on.
    """
    try:
        yield
    except OSError as error:
        raise ImaeError(
            f"{path}: cannot be written ({error.strerror or error}); fix that, then continue with: "
            f"imae train --resume {run}"
        ) from error


def plain(value: Any) -> Any:
    """The value with numbers that JSON does not know replaced by None.

    Examples:
        >>> plain({"loss": math.inf, "steps": (1, 2)})
        {'loss': None, 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
