"""Files of a run: atomic writing, checked reading, locks, and how to print names from them."""

import contextlib
import json
import os
import re
import shlex
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, DataError, ImaeError

_JOINERS = "\u200c\u200d"  # not printable by themselves, but part of names and emoji


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, is_name_synced: bool = True) -> Iterator[IO[bytes]]:
    """A binary file that gets its name only when the block ends without an error.

    The bytes go to a temporary file in the same folder, are flushed to the disk and renamed, so
    a reader sees the old file or the new one, never a part of it, even after a crash.

    Args:
        path: The file.
        is_name_synced: Whether to wait until the folder is on the disk too. Without it a crash of
            the machine may leave the old file, until ``sync`` is called for the folder.

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
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".tmp", dir=path.parent
        )
    except OSError as error:
        error.filename = os.fspath(path)  # not that of the temporary file
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private; a result file is not
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = os.fspath(path)  # a full disk names none
        raise
    if is_name_synced:
        sync(path.parent)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file, completely or not at all; text as UTF-8."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@cache
def _umask() -> int:
    # Read only once: reading sets it for a moment, while other threads may create files.
    umask = os.umask(0)
    os.umask(umask)
    return umask


def sync(path: Path) -> None:
    """Waits until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object that a text holds.

    Args:
        text: UTF-8.
        where: File, and place in it, for messages.

    Raises:
        DataError: If it is not an object, or holds a number that JSON does not allow.

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


def open_regular(path: Path, *, append: bool = False) -> IO[bytes]:
    """An open file, which must be a regular one: reading a pipe would block forever.

    Args:
        path: The file.
        append: Whether to open it for appending, and create it if it does not exist.

    Raises:
        DataError: If it is a pipe, a folder or a device.
        OSError: If it cannot be opened.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if append else os.O_RDONLY
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except IsADirectoryError:
        raise DataError(f"{path}: is not a regular file") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError(f"{path}: is not a regular file")
    return os.fdopen(handle, "ab" if append else "rb")


def read_file(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        DataError: If it is not one, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_arrays(
    path: Path, kinds: Mapping[str, str], *, optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of one dimension in a ``.npz`` file.

    Args:
        path: The file.
        kinds: For each name the kinds of numpy dtypes that it may have, such as "iu".
        optional: Names of arrays that may be missing.

    Raises:
        DataError: If the file is missing or damaged, or an array has the wrong shape or dtype.
    """
    try:
        with open_regular(path) as file:  # closed even if numpy fails
            _refuse_packed(file)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("one array without a name")
            names = [name for name in kinds if name not in optional or name in loaded]
            arrays = {name: np.asarray(loaded[name]) for name in names}
    except DataError:
        raise
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
    """Raises unless the arrays of a file have the same length.

    Raises:
        DataError: If they are not.
    """
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: its arrays must have the same length, got {lengths}")


@contextlib.contextmanager
def explained_writing(path: Path, run: Path, *, command: str = "train --resume") -> Iterator[None]:
    """Turns a failure to write into one line that says how to continue.

    Args:
        path: What is being written.
        run: The run folder it belongs to.
        command: The words of the command that continues, between `imae` and the folder.

    Raises:
        ImaeError: If the disk is full, the folder is not writable, and so on.
    """
    try:
        yield
    except OSError as error:
        remedy = f"fix that, then continue with: imae {command} {shlex.quote(str(run))}"
        if command == "train --resume" and not (run / "config.json").exists():
            remedy = "fix that, or choose another folder (--out)"  # there is no run to continue
        raise ImaeError(
            f"{path}: cannot be written ({error.strerror or error}); {remedy}"
        ) from error


# What a run writes before its configuration, which makes the folder a run.
_STARTED = {"lock", "env.json", "labels.npz", "held_labels.npz", "preparation.json"}
# Names of the files that a run writes, by folder.
_OWN = {
    ".": r"(config|env|preparation|progress|result)\.json|history\.(jsonl|csv)|(held_)?labels\.npz"
    r"|(wandb|mlflow)-id\.txt|lock",
    "checkpoints": r"step-\d{9,}\.(pt|json)",
    "dynamics": r"(epoch|held)-\d{5,}\.npz",
    "weights": r"(best|final)\.(pt|json)",
    "audit": r"audit\.(npz|json)|(data|check)\.json|(decisions|suspects)\.csv"
    r"|(review|check)\.html|lock",
}
_locked: set[Path] = set()  # record locks do not exclude the process that holds them


def check_free(folder: Path) -> None:
    """Raises if a folder without a run holds files that a run did not write.

    Raises:
        ArgumentError: If so, or if it is a file.
    """
    if not folder.is_dir():
        if folder.exists():
            raise ArgumentError(f"{folder}: is a file; choose another --out")
        return
    names = {path.name for path in folder.iterdir() if not _is_unfinished(path, ".")}
    if names - {"lock"} and not (names <= _STARTED and _is_environment(folder / "env.json")):
        other = sorted(names)[0]
        raise ArgumentError(
            f"{folder}: holds files but no run, such as {other}; choose another --out, or an "
            "empty folder"
        )


def check_regular(folder: Path) -> None:
    """Raises if a file that an audit reads or writes is not a regular file.

    Reading a pipe would block forever, and writing would replace a link.

    Args:
        folder: ``audit`` in a run folder; it may be missing.

    Raises:
        DataError: If a file is a pipe, a device, a folder or a link.
    """
    try:
        with os.scandir(folder) as entries:
            for each in sorted(entries, key=lambda entry: entry.name):
                is_own = re.fullmatch(_OWN["audit"], each.name)
                if is_own and not each.is_file(follow_symlinks=False):
                    raise DataError(f"{each.path}: is not a regular file; move it away")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from None


def belongs_to_run(path: Path) -> bool:
    """Whether a file is one that the run in its folder wrote.

    Examples:
        >>> belongs_to_run(Path("not_a_run/config.json"))
        False
    """
    for part, names in _OWN.items():
        folder = path.parent if part == "." else path.parent.parent
        is_there = path.parent.name == part or part == "."
        # An audit of probabilities is in a folder without a run.
        marks = (folder / "config.json", folder / "audit" / "audit.json")
        is_run = any(mark.is_file() for mark in marks)
        if is_there and is_run and re.fullmatch(names, path.name):
            return True
    return False


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Holds a run folder for this process; see ``RunFolder.lock``.

    Raises:
        ImaeError: If another process holds it, or it cannot be written.
    """
    path = folder.resolve() / "lock"
    in_use = (
        f"{folder}: another process is training in this folder; "
        "wait for it, stop it, or choose another --out"
    )
    is_new = not path.parent.exists()
    with exclusive(path, in_use, run=folder):
        try:
            _remove_unfinished(folder)
            yield
        finally:
            if list(path.parent.iterdir()) == [path]:
                path.unlink()
                if is_new:
                    path.parent.rmdir()


def is_abandoned(folder: Path) -> bool:
    """Whether a run was locked and no longer is, as after its process was killed."""
    import fcntl

    path = folder.resolve() / "lock"
    if path in _locked or not path.is_file():
        return False
    try:
        with path.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or it cannot be known
        return False
    return True


@contextlib.contextmanager
def exclusive(
    path: Path, in_use: str, *, run: Path, command: str = "train --resume"
) -> Iterator[None]:
    """Holds a lock file, created if it does not exist, which ends with the process in any case.

    Args:
        path: The file, resolved.
        in_use: Message if another process holds it.
        run: The run folder it belongs to.
        command: See ``explained_writing``.

    Raises:
        ImaeError: If another process holds it, or it cannot be written.
    """
    import fcntl

    if path in _locked:  # and opening the file a second time would undo the lock
        raise ImaeError(in_use)
    with explained_writing(path, run, command=command):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open_regular(path, append=True)
    with file:
        try:
            # A record lock: worker processes that outlive a killed run do not inherit it.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ImaeError(in_use) from None
        _locked.add(path)
        try:
            yield
        finally:
            _locked.discard(path)


def _remove_unfinished(folder: Path) -> None:
    for name in _OWN:
        for path in (folder / name).glob(".*.tmp"):
            if _is_unfinished(path, name):
                path.unlink(missing_ok=True)


def _is_unfinished(path: Path, part: str) -> bool:
    return re.fullmatch(rf"\.({_OWN[part]})\.\w{{8}}\.tmp", path.name) is not None


def _is_environment(path: Path) -> bool:
    """Whether a run wrote this file before it was interrupted."""
    try:
        content = json.loads(read_file(path))
    except ValueError:  # a DataError is one
        return False
    return isinstance(content, dict) and "imae" in content


def check_overwriting(path: Path, *, overwrite: bool, option: str = "--out") -> None:
    """Raises if a file must not be written: it exists, or belongs to a run.

    Args:
        path: The file.
        overwrite: Whether an existing file may be replaced.
        option: Option of the command line that names the file.

    Raises:
        ArgumentError: If so.
    """
    if belongs_to_run(path):
        raise ArgumentError(f"{path}: is a file of a run; choose another {option}")
    if path.is_file() and not overwrite:
        raise ArgumentError(f"{path}: exists already; choose another {option}, or give --overwrite")


def printable(value: object) -> str:
    r"""The value as one line of characters that a terminal, a page or a file can hold.

    Control characters, line breaks, characters that turn the direction of writing and halves of
    surrogate pairs each become the replacement character: a name from a file must not control
    a terminal or hide a part of itself.

    Examples:
        >>> printable("cat\x1b[2J")
        'cat�[2J'
    """
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else "\ufffd" for letter in str(value)
    )
