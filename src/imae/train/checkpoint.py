"""Checkpoints: written whole or not at all, with a checksum, safe to load."""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from imae.errors import DataError
from imae.records import explained_writing
from imae.records.files import whole_file

FORMAT = 1
_NAME = re.compile(r"step-(\d{9,})\.pt")


def save_checkpoint(folder: Path, content: dict[str, Any], *, step: int, keep: int) -> None:
    """Writes the state after a step and removes all but the newest ``keep`` checkpoints.

    Those of later steps are removed too: a run that is at this step could not read them.

    Args:
        folder: Folder of the checkpoints.
        content: Tensors and plain values, nested.
        step: Steps that are done.
        keep: Checkpoints to keep, at least 1.

    Raises:
        ImaeError: If it cannot be written; earlier checkpoints are kept.
    """
    save_tensors(folder / f"step-{step:09d}.pt", content)
    with explained_writing(folder, folder.parent):
        steps = {path: _step(path) for path in list_checkpoints(folder)}
        kept = [path for path, of_path in steps.items() if of_path <= step][-keep:]
        for path in steps.keys() - kept:
            _manifest(path).unlink(missing_ok=True)  # first: without it the file is ignored
            path.unlink(missing_ok=True)


def load_checkpoint(folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest checkpoint that is complete, or None if there is none.

    Args:
        folder: Folder of the checkpoints.
        say: Called with one line for each checkpoint that is damaged.
    """
    for path in reversed(list_checkpoints(folder)):
        try:
            return load_tensors(path)
        except DataError as error:
            say(f"{error}; trying the checkpoint before it")
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in the order of their steps; damage is found on loading."""
    found = [path for path in folder.glob("step-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(found, key=_step)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors and plain values, and beside them their size and SHA-256.

    Raises:
        ImaeError: If they cannot be written.
    """
    with explained_writing(path, path.parent.parent):
        memory = io.BytesIO()  # torch.save hides why a file cannot be written
        torch.save({"format": FORMAT, **content}, memory)
        with whole_file(path) as file:
            file.write(memory.getbuffer())
        sha256 = hashlib.sha256(memory.getbuffer()).hexdigest()
        manifest = {"sha256": sha256, "bytes": memory.getbuffer().nbytes}
        with whole_file(_manifest(path)) as file:
            file.write(json.dumps(manifest).encode() + b"\n")


def load_tensors(path: Path) -> dict[str, Any]:
    """What ``save_tensors`` wrote; no code of the file ever runs.

    Raises:
        DataError: If the file or its checksum is missing, or they do not fit.
    """
    for needed in (path, _manifest(path)):
        if not needed.is_file():  # nor a pipe, which would be waited for
            raise DataError(f"{needed}: is missing")
    try:
        manifest = json.loads(_manifest(path).read_text())
        with path.open("rb") as file:
            found = _digest(file)
        is_whole = isinstance(manifest, dict) and manifest.get("sha256") == found
    except (OSError, ValueError):
        is_whole = False
    if not is_whole:
        raise DataError(f"{path}: is damaged, its checksum differs")
    if not _is_unpacked(path):  # before torch unpacks it: a small file could fill the memory
        raise DataError(f"{path}: is compressed, which imae does not write")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch's own reason is advice to load it unsafely
        raise DataError(f"{path}: holds no tensors that can be read safely") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(
            f"{path}: was written by another version of imae; use that version to read it"
        )
    return dict(content)


def _is_unpacked(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return all(each.compress_type == zipfile.ZIP_STORED for each in archive.infolist())
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return False


def _digest(file: IO[bytes]) -> str:
    sha256 = hashlib.sha256()
    while block := file.read(1 << 20):
        sha256.update(block)
    return sha256.hexdigest()


def _manifest(path: Path) -> Path:
    return path.with_suffix(".json")
