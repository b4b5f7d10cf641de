"""Run folders read as plain values, and what their settings have in common."""

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imae.errors import ArgumentError, DataError
from imae.records import RunFolder
from imae.records.files import is_abandoned
from imae.records.measures import MEASURES, Column

ACCURACIES = tuple(measure.key for measure in MEASURES)
_NUMBERS = (
    *ACCURACIES,
    "step",
    "steps",
    "epoch",
    "seconds",
    "seconds_per_step",
    "learning_rate",
    "train_loss",
    "T",
)
_LONGEST_LIST = 40  # characters
_STATUSES = ("running", "stopped", "failed", "finished")

HistoryRow = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The contents of a run folder, except for the rows.

    Args:
        folder: The run folder.
        data: Name of the data.
        noise: Kind and rate of the noise that was added, or the file of the given labels;
            ``"none"`` for neither.
        model: Name of the network.
        loss: Name of the method without arguments, such as ``"imae"``.
        method: Name of the method with its arguments, such as ``"imae:T=8"``.
        seed: Seed of the run, as text.
        config: The whole configuration, a tree of plain values.
        environment: Versions and machine, a tree of plain values.
        history: The evaluations in order of their step; an unknown measure is None.
        result: What the run wrote when it ended, or None if it has not ended.
        progress: The progress that the run last recorded, or None.
    """

    folder: Path
    data: str
    noise: str
    model: str
    loss: str
    method: str
    seed: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    history: tuple[HistoryRow, ...]
    result: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def setting(self) -> tuple[str, str, str]:
        """Data, noise and network: runs that share them can be compared."""
        return self.data, self.noise, self.model

    @property
    def status(self) -> str:
        """``"finished"``, ``"running"``, ``"stopped"`` or ``"failed"``."""
        if self.result is not None:
            return "finished"
        status = (self.progress or {}).get("status")
        status = status if status in _STATUSES and status != "finished" else "running"
        return "stopped" if status == "running" and is_abandoned(self.folder) else status

    def value(self, column: Column) -> float | None:
        """The number of a column, if the run has ended and has it."""
        other = column.chosen_by
        if other is not None and self.measure(column.moment, other.key) is None:
            return None
        return self.measure(column.moment, column.measure.key)

    def measure(self, moment: str, key: str) -> float | None:
        """A measure of the finished run at ``"best"``, ``"best_test"`` or ``"final"``, if known."""
        row = (self.result or {}).get(moment) or {}
        value = row.get(key)
        return None if value is None else float(value)


def read_runs(folders: Iterable[str | os.PathLike[str]]) -> tuple[RunRecord, ...]:
    """The records of several run folders, in the order given.

    Raises:
        ArgumentError: If there is none, or one is given twice and would count twice.
        DataError: If one of them cannot be read.
    """
    runs = tuple(read_run(folder) for folder in folders)
    if not runs:
        raise ArgumentError("a report needs at least one run folder")
    seen: set[Path] = set()
    for run in runs:
        if run.folder.resolve() in seen:
            raise ArgumentError(f"run folder {run.folder} is given twice")
        seen.add(run.folder.resolve())
    return runs


def find_runs(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The run folders among these, and those inside the folders of comparisons and recipes.

    Args:
        folders: Run folders, or folders that hold run folders, directly or in ``runs``.
    """
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = []
        if not RunFolder(folder).exists():
            places = (*folder.glob("*/config.json"), *folder.glob("runs/*/config.json"))
            inside = sorted(place.parent for place in places)
        found += inside or [folder]
    return found


def read_run(folder: str | os.PathLike[str]) -> RunRecord:
    """The record of a run folder, finished or not.

    Args:
        folder: Run folder with at least a ``config.json``.

    Raises:
        DataError: If it is not a run folder or one of its files is damaged; the message names the
            file.
    """
    run = RunFolder(folder)
    if not run.exists():
        raise DataError(f"{run.path} is not a run folder: it has no config.json")
    where = run.path / "config.json"
    config = run.config()
    loss = _text(config, "method", "name", where=where)
    return RunRecord(
        folder=run.path,
        data=_text(config, "data", "name", where=where),
        noise=_noise(config),
        model=_text(config, "model", "name", where=where, default="automatic"),
        loss=loss,
        method=loss + _arguments(config, where),
        seed=plain_text(config.get("seed")),
        config=config,
        environment=run.env(),
        history=tuple(run.history()),
        result=_result(run),
        progress=run.progress(),
    )


def plain_text(value: object) -> str:
    """A plain value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _noise(config: Mapping[str, Any]) -> str:
    labels = config["data"].get("labels")
    if labels is not None:
        return f"labels from {Path(plain_text(labels)).name}"
    return "none" if config.get("noise") is None else plain_text(config["noise"])


def _arguments(config: Mapping[str, Any], where: Path) -> str:
    arguments = config["method"].get("arguments") or {}
    if not isinstance(arguments, dict):
        raise DataError(f"{where}: method.arguments must be an object, got {arguments!r}")
    shown = [f"{key}={_argument(value)}" for key, value in arguments.items()]
    return ":" + ",".join(shown) if shown else ""


def _argument(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    text = plain_text(value)
    if not isinstance(value, list) or len(text) <= _LONGEST_LIST:
        return text
    # Such as a matrix: two different ones must not become the same row of a table.
    return f"[{hashlib.sha256(text.encode()).hexdigest()[:8]}]"


def _text(
    config: Mapping[str, Any], part: str, key: str, *, where: Path, default: str | None = None
) -> str:
    inside = config.get(part)
    value = inside.get(key) if isinstance(inside, dict) else None
    if value is None and isinstance(inside, dict):
        value = default
    if not isinstance(value, str):
        raise DataError(f"{where}: {part}.{key} must be text, got {value!r}")
    return value


def _result(folder: RunFolder) -> dict[str, Any] | None:
    path, result = folder.path / "result.json", folder.result()
    if result is not None:
        _check_row(result, str(path))
        for moment in ("best", "best_test", "final"):
            if result.get(moment) is not None:
                _check_row(result[moment], f"{path}: {moment}")
    return result


def _check_row(row: object, where: str) -> None:
    if not isinstance(row, dict):
        raise DataError(f"{where}: must be a JSON object, got {type(row).__name__}")
    for key in _NUMBERS:
        value = row.get(key)
        if value is None:
            continue
        # 1e999 is valid JSON and reads as infinity, and a whole number may have any length.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:
            raise DataError(f"{where}: {key} must be a number or null, got {value!r}")
        if key in ACCURACIES and not 0 <= value <= 1:
            raise DataError(f"{where}: {key} must be in [0, 1], got {value!r}")


# Where and how fast a run was computed; its numbers do not depend on these.
_MACHINE = ("out", "log", "data.root", "data.workers", "machine.")
_PRECISION = "machine.precision"  # but on this they do


def is_machine_setting(key: str) -> bool:
    """Whether a setting, by its dotted name, is about the machine and not about the numbers.

    Examples:
        >>> is_machine_setting("machine.threads"), is_machine_setting("machine.precision")
        (True, False)
    """
    return key.startswith(_MACHINE) and key != _PRECISION


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of a nested configuration as text, by dotted name.

    Examples:
        >>> flatten({"train": {"epochs": 4, "nesterov": True}, "seed": 1})
        {'train.epochs': '4', 'train.nesterov': 'true', 'seed': '1'}
    """
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = plain_text(value)
    return flat


def shared(trees: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The values that all the configurations have in common, by dotted name."""
    first, *others = map(flatten, trees)
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }
