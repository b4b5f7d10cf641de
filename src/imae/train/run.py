"""A run on disk: its checkpoints and weights, and the network read from them."""

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn

from imae.errors import ArgumentError, DataError, check_choice
from imae.methods.catalog import METHODS
from imae.models import MODELS, Network, build, input_options
from imae.models.network import as_network
from imae.records import RunFolder, explained_writing
from imae.records.files import open_regular, read_file, whole_file
from imae.records.measures import HELD_OUT
from imae.train.config import FROM_PYTHON, Config, build_config
from imae.train.learner import add_output


class Run:
    """A run on disk, with its network.

    Args:
        path: The run folder.
        model: Name of the network, if it is a function of your own: a folder by itself, which may
            come from anybody, imports nothing. For a network that was given as a module, a module
            of the same kind.

    Raises:
        DataError: If there is no run, or it has another network.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, model: str | nn.Module | None = None
    ) -> None:
        self.folder = RunFolder(path)
        content = self.folder.config()
        try:
            self.config: Config = build_config(content)
        except ArgumentError as error:
            raise ArgumentError(f"{self.folder.path / 'config.json'}: {error}") from None
        self._trusted_model = model
        if not isinstance(model, nn.Module) and model not in (None, self.config.model.name):
            raise DataError(
                f"{self.folder.path}: its network is {self.config.model.name}, not {model}"
            )

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation."""
        return self.folder.history()

    @property
    def result(self) -> dict[str, Any] | None:
        """Best and final measures, or None while the run has not ended."""
        return self.folder.result()

    @property
    def module(self) -> nn.Module | None:
        """The module that was given for its network, if any."""
        return self._trusted_model if isinstance(self._trusted_model, nn.Module) else None

    def load_model(self, which: str | None = None) -> Network:
        """The trained network, in evaluation mode; its outputs are those that the loss saw.

        Args:
            which: "best" on the held-out labels, or "final"; by default the best if rows were held
                out, or the run was stopped early.

        Raises:
            ArgumentError: If ``which`` is neither.
            DataError: If the weights do not exist yet or are damaged, or the network is code that
                was not named.
        """
        if which is not None:
            check_choice("which", which, ("final", "best"))
        self.refuse_code()
        weights = self.path / "weights"
        is_by_default = which is None
        which = which or ("best" if self._has_best() else "final")
        path = weights / f"{which}.pt"
        if which == "best" and is_by_default and not path.exists():
            raise DataError(
                f"{path}: is missing, and this run chose its best weights by held-out given "
                "labels or an early stop; put it back, or ask for the final ones (--which final)"
            )
        content = load_tensors(path)
        model = self.config.model
        if model.name is None:
            raise DataError(f"{self.folder.path}: its config.json names no network")
        try:
            if self.module is not None:
                network = as_network(self.module, content["num_classes"])
            else:
                options = {**input_options(model.name, content["input_shape"]), **model.arguments}
                _check_shapes(model.name, content, options)
                network = build(model.name, num_classes=content["num_classes"], **options)
            network.load_state_dict(content["network"])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, ArgumentError):
                raise
            reason = " ".join(str(error).split())
            raise DataError(f"{path}: does not match the network {model.name} ({reason})") from None
        method = self.config.method
        add_output(network, METHODS.build(method.name, **method.arguments))
        return network.eval()

    def _has_best(self) -> bool:
        """Whether the run keeps its best weights beside the final ones."""
        if (self.path / "weights" / "best.pt").exists():
            return True
        is_measured = any(row.get(HELD_OUT.key) is not None for row in self.history)
        return is_measured or self.config.train.early_stop is not None

    def refuse_code(self) -> None:
        """Raises if building the network would import code that the caller did not name.

        Raises:
            DataError: If so.
        """
        name = self.config.model.name or ""
        if self.module is not None:
            return
        if name.startswith(FROM_PYTHON):
            raise DataError(
                f"{self.path}: its network was given in Python; give one like it again: "
                f"imae.train.Run({str(self.path)!r}, model=...)"
            )
        if ":" in name and name != self._trusted_model:
            raise DataError(
                f"{self.path}: its network is code, {name}, which a run folder by itself does not "
                f"import; if you trust it, name it too: --model {name}"
            )

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def _check_shapes(name: str, content: dict[str, Any], options: dict[str, Any]) -> None:
    """Raises before memory is allocated for a network much larger than the weights in its file."""
    if name not in MODELS:  # a function of the user's
        return
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = MODELS.build(name, num_classes=content["num_classes"], **options)
    for key, tensor in network.state_dict().items():
        if content["network"][key].shape != tensor.shape:
            raise ValueError(
                f"size mismatch for {key}: {tuple(content['network'][key].shape)} in the file, "
                f"{tuple(tensor.shape)} in the network"
            )


FORMAT = 1


_NAME = re.compile(r"step-(\d{9,})\.pt")


def save_checkpoint(folder: Path, content: dict[str, Any], *, step: int, keep: int) -> None:
    """Writes the state after a step and removes all but the newest ``keep`` checkpoints.

    Those of later steps are removed too: they do not belong to a run that is at this step.

    Args:
        folder: Folder of the checkpoints.
        content: Tensors and plain values, nested.
        step: Number of steps done.
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


def load_checkpoint(
    folder: Path,
    say: Callable[[str], None],
    restore: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """The newest checkpoint that is complete and matches the run, or None if none is complete.

    Args:
        folder: Folder of the checkpoints.
        say: Called with one line for each checkpoint that is damaged or does not match.
        restore: Called with the content; fails if it does not belong to the run.

    Raises:
        DataError: If no complete one matches: training from the start would overwrite the run.
    """
    is_any_complete = False
    for path in reversed(list_checkpoints(folder)):
        try:
            content = load_tensors(path)
            is_any_complete = True
            if restore is not None:
                _restore(content, path, restore)
            return content
        except DataError as error:
            say(f"{error}; trying the checkpoint before it")
    if is_any_complete:
        raise DataError(
            f"{folder.parent}: no checkpoint fits this run; if its config.json was changed, change "
            "it back, else train again with another --out"
        )
    return None


def _restore(
    content: dict[str, Any], path: Path, restore: Callable[[dict[str, Any]], None]
) -> None:
    try:
        if content["step"] != _step(path):
            raise ValueError(f"it belongs to step {content['step']!r}")
        restore(content)
    # The file may hold anything, of any type and shape.
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: does not fit this run ({reason})") from None


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
        # Its name goes to the disk with that of the manifest, without which it is ignored.
        with whole_file(path, is_name_synced=False) as file:
            file.write(memory.getbuffer())
        sha256 = hashlib.sha256(memory.getbuffer()).hexdigest()
        manifest = {"sha256": sha256, "bytes": memory.getbuffer().nbytes}
        with whole_file(_manifest(path)) as file:
            file.write(json.dumps(manifest).encode() + b"\n")


def load_tensors(path: Path) -> dict[str, Any]:
    """What ``save_tensors`` wrote; no code of the file ever runs.

    Raises:
        DataError: If the file or its checksum is missing, or they do not match.
    """
    for needed in (path, _manifest(path)):
        if not needed.is_file():  # nor a pipe, which would be waited for
            raise DataError(f"{needed}: is missing")
    try:
        manifest = json.loads(read_file(_manifest(path)))
        with open_regular(path) as file:
            found = _digest(file)
        is_whole = isinstance(manifest, dict) and manifest.get("sha256") == found
    except (OSError, ValueError):  # a DataError is one
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
