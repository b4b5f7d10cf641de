"""Who may write to a run folder: one process at a time, and never over files of somebody else."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from imae.errors import ArgumentError, ImaeError
from imae.records.files import explained_writing

# What a run writes before its configuration, which makes the folder a run.
_STARTED = {"lock", "env.json", "labels.npz", "held_labels.npz", "preparation.json"}
# Names of the files that a run writes, by folder.
_OWN = {
    ".": r"(config|env|preparation|progress|result)\.json|history\.(jsonl|csv)|(held_)?labels\.npz"
    r"|(wandb|mlflow)-id\.txt|lock",
    "checkpoints": r"step-\d{9,}\.(pt|json)",
    "dynamics": r"(epoch|held)-\d{5,}\.npz",
    "weights": r"(best|final)\.(pt|json)",
}
_locked: set[Path] = set()  # record locks do not hold against one's own process


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


def is_of_run(path: Path) -> bool:
    """Whether a file is one that the run in its folder wrote.

    Examples:
        >>> is_of_run(Path("not_a_run/config.json"))
        False
    """
    for part, names in _OWN.items():
        folder = path.parent if part == "." else path.parent.parent
        is_there = path.parent.name == part or part == "."
        if is_there and (folder / "config.json").is_file() and re.fullmatch(names, path.name):
            return True
    return False


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Holds a run folder for this process; see ``RunFolder.lock``.

    Raises:
        ImaeError: If another process holds it, or it cannot be written.
    """
    import fcntl

    path = folder.resolve() / "lock"
    in_use = ImaeError(
        f"{folder}: another process is training in this folder; "
        "wait for it, stop it, or choose another --out"
    )
    if path in _locked:  # and opening the file a second time would undo the lock
        raise in_use
    is_new = not path.parent.exists()
    with explained_writing(path, folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        try:
            # A record lock: worker processes that outlive a killed run do not inherit it.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use from None
        _locked.add(path)
        try:
            _remove_unfinished(folder)
            yield
        finally:
            _locked.discard(path)
            if list(path.parent.iterdir()) == [path]:
                path.unlink()
                if is_new:
                    path.parent.rmdir()


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
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "imae" in content


def check_overwriting(path: Path, *, overwrite: bool) -> None:
    """Raises if a file must not be written: it exists, or a run folder would lose its own.

    Raises:
        ArgumentError: If so.
    """
    if is_of_run(path):
        raise ArgumentError(f"{path}: is a file of a run; choose another --out")
    if path.is_file() and not overwrite:
        raise ArgumentError(f"{path}: exists already; choose another --out, or give --overwrite")
