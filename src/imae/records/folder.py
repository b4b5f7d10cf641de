"""The run folder: everything a run writes, read and written without torch."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from imae.errors import ArgumentError, DataError
from imae.records.files import (
    check_free,
    check_lengths,
    explained_writing,
    hold,
    open_regular,
    parse_object,
    read_arrays,
    read_file,
    sync,
    whole_file,
)
from imae.records.measures import (
    EpochDynamics,
    RunLabels,
    check_dynamics,
    check_held_labels,
    check_labels,
    check_row,
)


def plain(value: Any) -> Any:
    """The value with numbers that JSON does not allow replaced by None.

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


_DYNAMICS = re.compile(r"epoch-(\d{5,})\.npz")
_RESULT_ROWS = ("best", "best_test", "final")


class RunFolder:
    """A run on disk. Files are written atomically; it can be read while the run trains.

    Args:
        path: The folder; it need not exist yet.

    Raises:
        ArgumentError: If it is not a path.

    Examples:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        >>> folder.append_history({"step": 1, "test_accuracy": 0.5})
        >>> folder.history()
        [{'step': 1, 'test_accuracy': 0.5}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(f"a run folder is given by its path, got {path!r}")
        self.path = Path(path)
        self._sizes: dict[str, tuple[int, int]] = {}  # rows and classes of the labels
        # Files are written one after another while the run trains: waiting for the disk took a
        # sixth of the time that a small table trains.
        self._writer: ThreadPoolExecutor | None = None
        self._being_written: list[Future[None]] = []

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
        """Versions, device, threads and machine; empty while the run has not written them."""
        return self._read_if_there("env.json") or {}

    def write_env(self, env: Mapping[str, Any]) -> None:
        """Writes versions, device, threads and machine."""
        self._write("env.json", env)

    def preparation(self) -> dict[str, Any]:
        """How rows become inputs of the network: class names, shape and statistics.

        Raises:
            DataError: If that is missing, or cannot be read, or the labels have other classes.
        """
        content = self._read_if_there("preparation.json")
        if content is None:
            raise DataError(
                f"{self.path / 'preparation.json'}: there is no such file, as in runs of an "
                "earlier version; train the run again"
            )
        for name in ("content", "annotations"):
            if not isinstance(content.get(name, {}), dict):
                raise DataError(f"{self.path / 'preparation.json'}: {name} must be a JSON object")
        number = content.get("num_validation", 0)
        if type(number) is not int or number < 0:  # bool is an int
            raise DataError(
                f"{self.path / 'preparation.json'}: num_validation must be a number of rows, got "
                f"{number!r}"
            )
        names = self.labels().class_names.tolist() if self.has_labels() else None
        if names is not None and content.get("class_names", names) != names:
            raise DataError(
                f"{self.path / 'preparation.json'}: its classes are not those of labels.npz; one "
                "of the two files was changed"
            )
        return content

    def write_preparation(self, preparation: Mapping[str, Any]) -> None:
        """Writes how rows become inputs of the network."""
        self._write("preparation.json", preparation)

    def result(self) -> dict[str, Any] | None:
        """Best and final measures, or None while the run has not ended.

        Raises:
            DataError: If it cannot be read, or its rows are not those of the history.
        """
        content = self._read_if_there("result.json")
        if content is None or not (self.path / "history.jsonl").exists():
            return content
        history = self.history()
        for name in _RESULT_ROWS:
            row = content.get(name)
            known = history[-1:] if name == "final" else history
            if row is not None and row not in known:
                raise DataError(
                    f"{self.path / 'result.json'}: {name!r} is not in history.jsonl; one of the "
                    "two files was changed"
                )
        return content

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Writes best and final measures."""
        self._write("result.json", result)

    def progress(self) -> dict[str, Any] | None:
        """Progress of the run, or None if it has not begun."""
        return self._read_if_there("progress.json")

    def write_progress(
        self, *, step: int, total_steps: int, seconds: float, status: str, message: str = ""
    ) -> None:
        """Writes the progress of the run; status is running, stopped, failed or finished."""
        progress = {"step": step, "total_steps": total_steps, "seconds": seconds}
        self._write("progress.json", {**progress, "status": status, "message": message})

    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation, in order of ``step``; a partial last line is left out.

        Raises:
            DataError: If a line is damaged, or not a row that a run writes.
        """
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(self._history_lines(), start=1):
            where = f"{self.path / 'history.jsonl'}, line {number}"
            row = parse_object(line, where)
            check_row(row, where, last_step=rows[-1]["step"] if rows else 0)
            rows.append(row)
        return rows

    def append_history(self, row: Mapping[str, Any], *, is_synced: bool = True) -> None:
        """Adds a row and waits until it is on the disk, or until ``sync``."""
        path = self.path / "history.jsonl"
        line = json.dumps(plain(row), allow_nan=False).encode() + b"\n"
        with self._writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open_regular(path, append=True) as file:
                file.write(line)
                file.flush()
                if is_synced:
                    os.fsync(file.fileno())

    def sync(self) -> None:
        """Waits until history and dynamics are on the disk, as a checkpoint requires.

        Raises:
            ImaeError: If something cannot be written, or could not be before.
        """
        written, self._being_written = self._being_written, []
        for each in written:
            each.result()
        with self._writing(self.path):
            for path in (self.path / "history.jsonl", self.path / "dynamics", self.path):
                if path.exists():
                    sync(path)

    def truncate(self, *, step: int, num_epochs: int) -> None:
        """Removes what was written after a step, so that a resumed run writes nothing twice.

        Args:
            step: Last step whose evaluation stays.
            num_epochs: Epochs whose dynamics stay.
        """
        both = zip(self._history_lines(), self.history(), strict=True)
        lines = [line for line, row in both if row["step"] <= step]
        with self._writing(self.path / "history.jsonl"):
            with whole_file(self.path / "history.jsonl") as file:
                file.write(b"".join(line + b"\n" for line in lines))
            for epoch in self.epochs():
                if epoch > num_epochs:
                    self._dynamics_file(epoch).unlink()
                    self._dynamics_file(epoch, "held").unlink(missing_ok=True)
            (self.path / "result.json").unlink(missing_ok=True)

    def has_labels(self) -> bool:
        """Whether the run has written the labels it trains on."""
        return (self.path / "labels.npz").exists()

    def labels(self) -> RunLabels:
        """Labels of the rows trained on.

        Raises:
            DataError: If they are missing, or cannot be read.
        """
        return self._read_labels("labels.npz", "epoch")

    def held_labels(self) -> RunLabels | None:
        """Labels not trained on: of held-out rows, and given ones of rows with a planted label."""
        path = self.path / "held_labels.npz"
        if not path.exists():
            return None
        labels = self._read_labels(path.name, "held")
        check_held_labels(labels, self.labels(), str(path))
        return labels

    def write_labels(self, labels: RunLabels, held: RunLabels | None = None) -> None:
        """Writes the labels trained on and those not trained on."""
        self._sizes.clear()
        for name, each in (("labels.npz", labels), ("held_labels.npz", held)):
            if each is not None:
                arrays = {key: value for key, value in vars(each).items() if value is not None}
                self._write_arrays(self.path / name, arrays)

    def epochs(self) -> list[int]:
        """Epochs with dynamics, counted from 1."""
        names = (_DYNAMICS.fullmatch(path.name) for path in (self.path / "dynamics").glob("*"))
        return sorted(int(name[1]) for name in names if name)

    def dynamics(self, epoch: int) -> EpochDynamics:
        """Dynamics of every row trained on, in an epoch counted from 1.

        Raises:
            DataError: If it is missing, or cannot be read.
        """
        return self._read_dynamics(epoch, "epoch")

    def held_dynamics(self, epoch: int) -> EpochDynamics:
        """Predictions for `held_labels` at the end of an epoch, counted from 1."""
        return self._read_dynamics(epoch, "held")

    def write_dynamics(
        self,
        epoch: int,
        dynamics: EpochDynamics,
        held: EpochDynamics | None = None,
        *,
        is_synced: bool = True,
    ) -> None:
        """Writes the dynamics of an epoch, counted from 1, of rows trained on and not trained on.

        Without ``is_synced`` they are written soon, and a crash before ``sync`` may lose the file.
        """
        for kind, each in (("held", held), ("epoch", dynamics)):
            if each is None:
                continue
            path = self._dynamics_file(epoch, kind)
            if is_synced:
                self._write_arrays(path, vars(each))
                continue
            if self._writer is None:
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="imae-dynamics")
            later = self._writer.submit(self._write_arrays, path, vars(each), is_name_synced=False)
            self._being_written.append(later)

    def _read_dynamics(self, epoch: int, kind: str) -> EpochDynamics:
        path = self._dynamics_file(epoch, kind)
        arrays = read_arrays(path, {"margin": "f", "predicted": "i", "weight": "f"})
        check_lengths(path, arrays)
        with np.errstate(over="ignore"):  # as they were written; anything larger is damage
            for name in ("margin", "weight"):
                arrays[name] = arrays[name].astype(np.float32, copy=False)
        dynamics = EpochDynamics(**arrays)
        if kind not in self._sizes and self.has_labels():
            _ = self.labels() if kind == "epoch" else self.held_labels()
        if kind in self._sizes:
            rows, classes = self._sizes[kind]
            check_dynamics(dynamics, str(path), rows=rows, classes=classes)
        return dynamics

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the folder for this process only; the lock ends with the process in any case.

        Files that a killed process left half written are removed, and so is a folder to which
        nothing was written.

        Raises:
            ArgumentError: If the folder holds files but no run.
            ImaeError: If another run holds it, or the folder cannot be written.
        """
        if not self.exists():
            check_free(self.path)
        with hold(self.path):
            try:
                yield
            finally:
                if self._writer is not None:  # before another process may hold the folder
                    self._writer.shutdown()
                    self._writer = None

    def _history_lines(self) -> list[bytes]:
        path = self.path / "history.jsonl"
        return read_file(path).split(b"\n")[:-1] if path.exists() else []

    def _dynamics_file(self, epoch: int, kind: str = "epoch") -> Path:
        return self.path / "dynamics" / f"{kind}-{epoch:05d}.npz"

    def _read_labels(self, name: str, kind: str) -> RunLabels:
        path = self.path / name
        kinds = {"row_ids": "U", "given": "iu", "class_names": "U"}
        further = {"clean": "iu", "planted": "b", "position": "i"}
        arrays = read_arrays(path, {**kinds, **further}, optional=tuple(further))
        names = arrays.pop("class_names")
        check_lengths(path, arrays)
        labels = RunLabels(class_names=names, **arrays)
        check_labels(labels, str(path))
        self._sizes[kind] = (len(labels.given), len(names))
        return labels

    def _read(self, name: str) -> dict[str, Any]:
        content = self._read_if_there(name)
        if content is None:
            path = self.path / name
            raise DataError(f"{path}: there is no such file; {self.path} is not a run")
        return content

    def _read_if_there(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        return parse_object(read_file(path), str(path)) if path.exists() else None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(plain(content), indent=2, allow_nan=False)
        with self._writing(self.path / name), whole_file(self.path / name) as file:
            file.write(text.encode() + b"\n")

    def _write_arrays(
        self, path: Path, arrays: Mapping[str, Any], *, is_name_synced: bool = True
    ) -> None:
        with self._writing(path), whole_file(path, is_name_synced=is_name_synced) as file:
            np.savez(file, **arrays)

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        with explained_writing(path, self.path):
            yield
