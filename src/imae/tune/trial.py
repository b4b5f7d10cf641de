"""A trial: what is searched, the run under suggested settings, and how it is measured."""

import base64
import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from imae.data import Data
from imae.data.loading import load_unscaled
from imae.errors import ArgumentError, DataError
from imae.methods.catalog import METHODS
from imae.records import RunFolder
from imae.records.measures import HELD_OUT
from imae.train import Config, Run, Stopped, build_config, resume, train, with_values
from imae.train.display import Display
from imae.train.predict import predict
from imae.tune.study import FIRST, PROBLEM, SAME, trials

if TYPE_CHECKING:
    import optuna

_T = (0.0, 16.0)
_CAP = (0.4, 0.95)
_Q = (0.1, 1.0)
_MOST_HITS = 20_000  # held-out rows whose predictions are kept, to compare trials row by row
PRUNED, OUT_OF_TIME = 0, 1  # codes of runs that the search stopped itself


@dataclass(frozen=True)
class Space:
    """What is searched.

    Args:
        losses: Losses to choose from.
        lr: Lowest and highest learning rate, if it is searched.
        fixed: Parameters of the loss that are given.
    """

    losses: tuple[str, ...]
    lr: tuple[float, float] | None
    fixed: dict[str, Any]

    def check(self) -> None:
        """Raises if a loss is unknown or a range is empty.

        Raises:
            ArgumentError: If so, or if nothing is left to search.
        """
        if self.lr is not None and not _is_range(self.lr):
            raise ArgumentError(f"lr must be a range such as 0.005:0.2, got {self.lr}")
        ranges = [_ranges(loss).keys() - self.fixed.keys() for loss in self.losses]
        if len(self.losses) == 1 and self.lr is None and not ranges[0]:
            raise ArgumentError(
                f"{self.losses[0]} leaves nothing to search: its parameters are given or it has "
                "none; give several losses or a range of the learning rate"
            )

    def start(self, lr: float) -> dict[str, Any]:
        """The first trial: the defaults, so that a search never ends below them unnoticed.

        Args:
            lr: The learning rate of the settings; where it is outside the range that is searched,
                the nearest end of it is taken.
        """
        defaults = METHODS.find(self.losses[0]).defaults
        start = {name: defaults[name] for name in _ranges(self.losses[0]) if name in defaults}
        start = {name: value for name, value in start.items() if name not in self.fixed}
        if start.get("T") == "auto":
            start["T rule"] = start.pop("T")
        if len(self.losses) > 1:
            start["loss"] = self.losses[0]
        if self.lr is not None:
            start["lr"] = min(max(lr, self.lr[0]), self.lr[1])
        return start

    def suggest(self, trial: "optuna.Trial") -> None:
        """Asks the search for all parameters of a trial; they are then among its ``params``."""
        loss = self.losses[0]
        if len(self.losses) > 1:
            loss = trial.suggest_categorical("loss", list(self.losses))
        ranges = {k: v for k, v in _ranges(loss).items() if k not in self.fixed}
        can_follow = "T" in ranges and METHODS.find(loss).defaults["T"] == "auto"
        if can_follow and trial.suggest_categorical("T rule", ["auto", "fixed"]) == "auto":
            ranges.pop("T")
        for name, (low, high, step) in ranges.items():
            trial.suggest_float(name, low, high, step=step)
        if self.lr is not None:
            trial.suggest_float("lr", *self.lr, log=True)

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The settings by dotted key that the parameters of a trial stand for."""
        loss = params.get("loss", self.losses[0])
        values: dict[str, Any] = {"method.name": loss}
        known = METHODS.find(loss).defaults
        arguments = {name: value for name, value in self.fixed.items() if name in known}
        arguments |= {name: params[name] for name in ("T", "cap", "q") if name in params}
        if params.get("T rule") == "auto":
            arguments["T"] = "auto"
        values |= {f"method.arguments.{name}": value for name, value in arguments.items()}
        if "lr" in params:
            values["optimizer.lr"] = params["lr"]
        return values


def _is_range(lr: object) -> bool:
    if not isinstance(lr, tuple | list) or len(lr) != 2:
        return False
    return all(isinstance(each, int | float) for each in lr) and 0 < lr[0] < lr[1] < math.inf


def _ranges(loss: str) -> dict[str, tuple[float, float, float]]:
    """Lowest and highest value and the step of each parameter of a loss that is searched."""
    defaults = METHODS.find(loss).defaults
    ranges: dict[str, tuple[float, float, float]] = {}
    if "T" in defaults:
        ranges["T"] = (*_T, 0.5)
    if defaults.get("cap") is not None:
        ranges["cap"] = (*_CAP, 0.05)
    if "q" in defaults:
        ranges["q"] = (*_Q, 0.05)
    return ranges


class CleanRows:
    """Rows with labels that are right.

    Args:
        path: A file or folder in the form of the data.
        data: The data, for its classes.
        config: The settings, for the names of columns.

    Raises:
        DataError: If they cannot be read, are none, or have a class that the data has not.
    """

    def __init__(self, path: str | os.PathLike[str], data: Data, config: Config) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(f"clean_validation must be a path, got {path!r}")
        self.path = os.fspath(path)
        if self.path == config.data.name:
            raise ArgumentError(f"{self.path}: is the data itself, whose labels may be wrong")
        rows, _ = load_unscaled(self.path, **config.data.options)
        self.labels: dict[str, int] = {}
        inputs = []
        for split in rows.splits().values():
            unknown = [name for name in split.class_names if name not in data.class_names]
            if unknown:
                raise DataError(
                    f"{self.path}: has the class {unknown[0]!r}, which {config.data.name} has not"
                )
            number = [data.class_names.index(name) for name in split.class_names]
            inputs.append(split.inputs.content_hash())
            ids = map(str, split.row_ids.tolist())
            self.labels |= dict(zip(ids, (number[each] for each in split.labels), strict=True))
        if not self.labels:
            raise DataError(f"{self.path}: has no rows")
        listed = json.dumps([inputs, sorted(self.labels.items())])
        self.digest = hashlib.sha256(listed.encode()).hexdigest()

    def accuracy(self, run: Run) -> float:
        """Accuracy of the weights that ``imae predict`` takes."""
        found = predict(run, self.path)
        truth = np.array([self.labels[str(row)] for row in found.row_ids])
        return float((found.labels == truth).mean())


class Objective:
    """A trial as a function of what optuna suggests.

    Args:
        base: Settings that all trials share.
        space: What is searched.
        folder: Folder of the search.
        clean: Rows with labels that are right, if there are any.
        deadline: When to stop, on the clock of ``time.monotonic``.
        num_validation: Rows of the data's own validation part, if it is what is measured on.
    """

    def __init__(
        self,
        base: Config,
        space: Space,
        folder: Path,
        clean: CleanRows | None,
        deadline: float | None,
        num_validation: int | None = None,
    ) -> None:
        self.base, self.space, self.folder = base, space, folder
        self.clean, self.deadline = clean, deadline
        self.num_validation = num_validation
        self.number: int | None = None

    def __call__(self, trial: "optuna.Trial") -> float:
        """The accuracy of a trial."""
        import optuna

        self.number = trial.number
        self.space.suggest(trial)
        for other in trials(trial.study, "COMPLETE", "PRUNED"):
            if other.params == trial.params:  # a run of the same settings would end the same
                trial.set_user_attr(SAME, other.number)
                if other.state.name == "PRUNED":
                    raise optuna.TrialPruned
                return float(other.value or 0.0)
        try:
            run = self._run(trial)
        except Stopped as stopped:
            if stopped.code == PRUNED:
                raise optuna.TrialPruned from None
            raise
        except Exception as error:
            trial.set_user_attr(PROBLEM, " ".join(f"{type(error).__name__}: {error}".split()))
            raise
        return self._measure(trial, run)

    def _run(self, trial: "optuna.Trial") -> Run:
        number = trial.user_attrs.get(FIRST, trial.number)
        path = self.folder / "trials" / f"{number:04d}"
        watch = _Watch(trial, self.deadline)
        if not RunFolder(path).exists():
            values = {"method": {}, **self.space.values(trial.params), "out": str(path)}
            content = with_values(self.base.model_dump(), values)
            return train(build_config(content), display=watch)
        for row in RunFolder(path).history():
            watch.measured(row)
        return resume(path, model=self.base.model.name, display=watch)

    def _measure(self, trial: "optuna.Trial", run: Run) -> float:
        result = run.result
        assert result is not None
        best = result["best"]
        held, epoch = run.folder.held_labels(), best["epoch"]
        if held is not None and epoch == int(epoch) and len(held.given) <= _MOST_HITS:
            predicted = run.folder.held_dynamics(int(epoch)).predicted
            packed = np.packbits(predicted == held.given).tobytes()
            trial.set_user_attr("hits", base64.b64encode(packed).decode())
        number = self.num_validation if held is None else len(held.given)
        trial.set_user_attr("num_held_out", number)
        trial.set_user_attr("held_out", best[HELD_OUT.key])
        trial.set_user_attr("fitted", best.get("train_accuracy"))
        trial.set_user_attr("epoch", epoch)
        if self.clean is not None:
            return self.clean.accuracy(run)
        return float(best[HELD_OUT.key])


class _Watch(Display):
    """Tells optuna how a run goes, and stops it if it falls behind or time is up."""

    def __init__(self, trial: "optuna.Trial", deadline: float | None) -> None:
        self._trial, self._deadline = trial, deadline
        self._best, self._number = 0.0, 0

    def measured(self, row: Mapping[str, Any]) -> None:
        """Reports the best accuracy on held-out given labels so far.

        Raises:
            Stopped: If the run is to be stopped.
        """
        self._best = max(self._best, float(row[HELD_OUT.key]))
        self._number += 1
        self._trial.report(self._best, self._number)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise Stopped("time is up", OUT_OF_TIME)
        if self._trial.should_prune():
            raise Stopped("pruned", PRUNED)
