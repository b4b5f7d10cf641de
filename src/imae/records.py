"""The run folder: everything a run writes down, read and written without torch."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae._files import whole_file
from imae.errors import DataError, ImaeError

_DYNAMICS = re.compile(r"epoch-(\d+)\.npz")
_locked: set[Path] = set()  # record locks do not hold against one's own process


@dataclass(frozen=True, eq=False)
class RunLabels:
    """Labels of the rows a run trained on, in training order.

    Args:
        row_ids: Id of every row, shape (N,), strings.
        given: Given labels, shape (N,), integers in [0, C).
        class_names: Names of the classes, shape (C,), strings.
        clean: True labels where they are known, shape (N,).
    """

    row_ids: NDArray[np.str_]
    given: NDArray[np.int64]
    class_names: NDArray[np.str_]
    clean: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class EpochDynamics:
    """What the training pass of one epoch showed of every row, in the order of the labels.

    Args:
        margin: Log-odds of the given label, float32, shape (N,); NaN for a row not seen.
        predicted: Most likely class, int32, shape (N,); -1 for a row not seen.
        weight: L1 norm of the gradient of the row's loss with respect to its logits, float32,
            shape (N,); NaN for a row not seen.
    """

    margin: NDArray[np.float32]
    predicted: NDArray[np.int32]
    weight: NDArray[np.float32]


class RunFolder:
    """A run on disk. Files appear whole; a reader may look in while the run goes on.

    Args:
        path: The folder; it need not exist yet.

    Examples:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        >>> folder.append_history({"step": 1, "test_accuracy": 0.5})
        >>> folder.history()
        [{'step': 1, 'test_accuracy': 0.5}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "config.json").is_file()

    def config(self) -> dict[str, Any]:
        """The whole configuration.

        Raises:
            DataError: If there is none, or it cannot be read.
        """
        return self._read("config.json")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes the configuration."""
        self._write("config.json", config)

    def env(self) -> dict[str, Any]:
        """Versions, device, threads and machine."""
        return self._read("env.json")

    def write_env(self, env: Mapping[str, Any]) -> None:
        """Writes versions, device, threads and machine."""
        self._write("env.json", env)

    def result(self) -> dict[str, Any] | None:
        """Best and final measures, or None while the run has not ended."""
        return self._read("result.json") if (self.path / "result.json").exists() else None

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Writes best and final measures."""
        self._write("result.json", result)

    def progress(self) -> dict[str, Any] | None:
        """How far the run is, or None if it has not begun."""
        return self._read("progress.json") if (self.path / "progress.json").exists() else None

    def write_progress(
        self, *, step: int, total_steps: int, seconds: float, status: str, message: str = ""
    ) -> None:
        """Writes how far the run is; status is running, stopped, failed or finished."""
        progress = {"step": step, "total_steps": total_steps, "seconds": seconds}
        self._write("progress.json", {**progress, "status": status, "message": message})

    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation, in order of ``step``; a line half written is left out."""
        return [json.loads(line) for line in self._history_lines()]

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Adds a row and waits until it is on the disk."""
        path = self.path / "history.jsonl"
        line = json.dumps(_plain(row), allow_nan=False).encode() + b"\n"
        with self._writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())

    def truncate(self, *, step: int, num_epochs: int) -> None:
        """Takes back what lies after a step, so that a resumed run writes nothing twice.

        Args:
            step: Last step whose evaluation stays.
            num_epochs: Epochs whose dynamics stay.
        """
        lines = [line for line in self._history_lines() if json.loads(line)["step"] <= step]
        with self._writing(self.path / "history.jsonl"):
            with whole_file(self.path / "history.jsonl") as file:
                file.write(b"".join(line + b"\n" for line in lines))
            for epoch in self.epochs():
                if epoch > num_epochs:
                    self._dynamics_file(epoch).unlink()
            (self.path / "result.json").unlink(missing_ok=True)

    def labels(self) -> RunLabels:
        """Labels of the rows trained on."""
        with np.load(self.path / "labels.npz", allow_pickle=False) as arrays:
            clean = arrays.get("clean")
            return RunLabels(arrays["row_ids"], arrays["given"], arrays["class_names"], clean)

    def write_labels(self, labels: RunLabels) -> None:
        """Writes the labels of the rows trained on."""
        arrays = {name: value for name, value in vars(labels).items() if value is not None}
        self._write_arrays(self.path / "labels.npz", arrays)

    def epochs(self) -> list[int]:
        """Epochs whose dynamics are there, counted from 1."""
        names = (_DYNAMICS.fullmatch(path.name) for path in (self.path / "dynamics").glob("*"))
        return sorted(int(name[1]) for name in names if name)

    def dynamics(self, epoch: int) -> EpochDynamics:
        """What an epoch, counted from 1, showed of every row."""
        with np.load(self._dynamics_file(epoch), allow_pickle=False) as arrays:
            return EpochDynamics(arrays["margin"], arrays["predicted"], arrays["weight"])

    def write_dynamics(self, epoch: int, dynamics: EpochDynamics) -> None:
        """Writes what an epoch, counted from 1, showed of every row."""
        self._write_arrays(self._dynamics_file(epoch), vars(dynamics))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the folder for this process alone; the lock ends with the process, however that is.

        Files that a killed process left half written are swept away.

        Raises:
            ImaeError: If another run holds it, or the folder cannot be written.
        """
        import fcntl

        path = self.path.resolve() / "lock"
        in_use = ImaeError(
            f"{self.path}: another process is training in this folder; "
            "wait for it, stop it, or choose another --out"
        )
        if path in _locked:  # and opening the file a second time would undo the lock
            raise in_use
        with self._writing(path):
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
                self._sweep()
                yield
            finally:
                _locked.discard(path)

    def _sweep(self) -> None:
        for folder in (self.path, self.checkpoints, self.path / "dynamics"):
            for stray in folder.glob(".*.tmp"):
                stray.unlink(missing_ok=True)

    def _history_lines(self) -> list[bytes]:
        path = self.path / "history.jsonl"
        if not path.exists():
            return []
        return path.read_bytes().split(b"\n")[:-1]

    def _dynamics_file(self, epoch: int) -> Path:
        return self.path / "dynamics" / f"epoch-{epoch:05d}.npz"

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file; {self.path} is no run") from None
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from None
        if not isinstance(content, dict):
            raise DataError(f"{path}: must hold an object")
        return content

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(_plain(content), indent=2, allow_nan=False)
        with self._writing(self.path / name), whole_file(self.path / name) as file:
            file.write(text.encode() + b"\n")

    def _write_arrays(self, path: Path, arrays: Mapping[str, Any]) -> None:
        with self._writing(path), whole_file(path) as file:
            np.savez(file, **arrays)

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        with explained_writing(path, self.path):
            yield


@contextlib.contextmanager
def explained_writing(path: Path, run: Path) -> Iterator[None]:
    """Turns a failure to write into one line that says how to go on.

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
            f"{path}: cannot be written ({error.strerror or error}); mend that, then go on with: "
            f"imae train --resume {run}"
        ) from error


def _plain(value: Any) -> Any:
    """The value with numbers that JSON does not know replaced by None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
