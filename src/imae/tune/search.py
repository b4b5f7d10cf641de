"""The search: a trial is a run with suggested settings, stopped early if it falls behind."""

import base64
import contextlib
import hashlib
import json
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from imae.data import Data, ImageFiles, Split, from_arrays
from imae.data.loading import load_unlabelled, load_unscaled
from imae.data.preparation import fit_scale
from imae.data.sources.catalog import SOURCES
from imae.errors import (
    ArgumentError,
    DataError,
    ImaeError,
    check_integer,
    check_interval,
    in_one_line,
)
from imae.methods.catalog import METHODS
from imae.records import RunFolder
from imae.records.files import hold, whole_file
from imae.records.measures import HELD_OUT
from imae.train import Config, Run, Stopped, build_config, resume, train
from imae.train.config import MethodConfig, TrainConfig
from imae.train.display import Display
from imae.train.launch import given_data
from imae.train.predict import predict
from imae.train.rows import load_rows
from imae.train.setup import DEFAULT_BATCH_SIZE, DEFAULT_EPOCHS
from imae.tune.outcome import Outcome, conclude, setting_words, trial_config
from imae.tune.study import (
    PROBLEM,
    SAME,
    STUDY,
    distinct,
    ended,
    file_url,
    first_number,
    num_before,
    open_study,
    storage_errors,
    trials,
    try_again,
)

if TYPE_CHECKING:
    import optuna

TRIALS = 20
_MOST_FAILURES = 3  # before the first success, after which the search gives up
_MOST_REPEATED = 20  # suggestions in a row that were tried before
_FILE = "search.json"
# Files of a search that was stopped before it began, with those that SQLite keeps beside it.
_LEFT = re.compile(r"lock|search\.db(-journal|-wal|-shm)?|\.search\.json\..*\.tmp")
# Settings that say where the rows are: the contents are compared instead.
_READ = ("name", "root", "options", "labels", "workers", "from_python")
_T = (0.0, 16.0)
_CAP = (0.4, 0.95)
_Q = (0.1, 1.0)
_MOST_HITS = 20_000  # held-out rows whose predictions are kept, to compare trials row by row
PRUNED, OUT_OF_TIME = 0, 1  # codes of runs that the search stopped itself


def tune(
    config: Config | Mapping[str, Any] | None = None,
    data: object = None,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    losses: Sequence[str] = (),
    lr: tuple[float, float] | None = None,
    clean_validation: object = None,
    out: str | os.PathLike[str] = "tune",
    storage: str | None = None,
    study: str = STUDY,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Searches T, the cap and, if asked, the learning rate and the loss.

    A trial is a run with the other settings of ``config``. Its value is the accuracy on held-out
    given labels at its best epoch, or on clean labels if there are any. Without clean labels the
    ranking is exact only under uniform noise, and among settings that cannot be told apart the more
    cautious one is chosen; see ``imae.tune.outcome.choose``.

    The same call continues a search that was stopped or killed, and repeats no finished trial.

    Args:
        config: What to train, as for ``imae.train.train``; parameters that it gives are not
            searched.
        data: The rows, in place of ``data.name``, as for ``imae.train.train``. To continue a
            search, give the same rows.
        trials: Total number of trials, over all calls and workers [20, without minutes].
        minutes: Time of this call.
        losses: Losses to choose from; by default only that of ``config``.
        lr: Lowest and highest learning rate; by default that of ``config``.
        clean_validation: Rows with labels that are right, in the form of the data: their path, or
            arrays or texts ``(X, y)``, where X may be a frame.
        out: Folder for the runs, the result and the page.
        storage: Address of a database, such as ``postgresql://user@host/name``, that several
            workers share; by default a SQLite file in ``out``.
        study: Name of the search in a database.
        say: Called with one line for each trial.

    Raises:
        ArgumentError: If an option cannot be used, the database cannot be reached, or the storage
            holds another search.
        DataError: If the data or the clean rows cannot be used.
        Stopped: If Ctrl-C or SIGTERM ended it; the same call continues.
        ImaeError: If no trial succeeds.
        MissingExtraError: If optuna is not installed.

    Examples:
        >>> import tempfile
        >>> settings = {"data": {"name": "digits"}, "train": {"steps": 30}}
        >>> outcome = tune(settings, trials=2, out=tempfile.mkdtemp())
        >>> len(outcome.trials), sorted(outcome.settings)[0]
        (2, 'method.arguments.T')
    """
    names = (losses,) if isinstance(losses, str) else tuple(losses)
    given, settings = None, {} if config is None else _with_loss(config, names)
    if data is not None:
        given, base = given_data(settings, data)
    else:
        base = settings if isinstance(settings, Config) else build_config(settings)
    _check_budget(base, trials, minutes)
    if storage is not None and not isinstance(storage, str):
        raise ArgumentError(f"storage must be the address of a database, got {storage!r}")
    space = Space(names or (base.method.name,), lr, dict(base.method.arguments))
    space.check()
    rows = load_rows(_without_features(base), given)
    clean = None if clean_validation is None else CleanRows(clean_validation, rows.data, base)
    if clean is not None and clean.num_trained:
        say(
            f"{clean.num_trained} of {len(clean.labels)} rows of {clean.name} are in "
            f"{base.data.name} too, where they are trained on; remove them from it"
        )
    if base.data.hold_out == 0 and _own_validation(base, rows.data) is None:
        raise ArgumentError("data.hold_out: nothing is held out to choose by; leave it at 0.1")
    folder = Path(out)
    about = {
        "data": {"content": dict(rows.content), "classes": list(rows.data.class_names)},
        "settings": _fixed(base),
        "ranges": [list(space.losses), space.lr, space.fixed],
        "clean labels": None if clean is None else clean.digest,
    }
    limit = trials if trials is not None or minutes is not None else TRIALS
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    url = storage or file_url((folder / "search.db").resolve())
    with contextlib.ExitStack() as stack:
        is_new = _check_folder(folder, {**about, "study": study})
        if storage is None:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold(folder))
        stack.enter_context(storage_errors(url))
        found = stack.enter_context(
            open_study(
                url,
                name=study,
                about=about,
                seed=base.seed,
                warm_up=max(1, _num_measurements(base.train, len(rows.data.train)) // 3),
                is_shared=storage is not None,
            )
        )
        if is_new:  # only now: a storage that cannot be used must not leave a claim behind
            _claim(folder, {**about, "study": study})
        if not found.get_trials(deepcopy=False):
            found.enqueue_trial(space.start(base.optimizer.lr), skip_if_exists=True)
        validation = _own_validation(base, rows.data)
        num_validation = None if validation is None else len(validation)
        objective = Objective(base, space, folder, clean, limit, deadline, num_validation, given)
        _search(found, objective, say=say)
        return conclude(
            [each for each in distinct(found) if each.state.name != "FAIL"],
            num_failed=sum(each.state.name == "FAIL" for each in distinct(found)),
            base=base,
            space=space.values,
            folder=folder,
            num_classes=rows.data.num_classes,
            clean_rows=None if clean is None else len(clean.labels),
        )


def _with_loss(
    settings: Config | Mapping[str, Any], losses: Sequence[str]
) -> Config | Mapping[str, Any]:
    """Settings that name no loss, with the first loss that takes the parameters they give."""
    if not isinstance(settings, Mapping):
        return settings
    method = settings.get("method")
    if not isinstance(method, Mapping) or "name" in method:
        return settings
    given = method.get("arguments")
    wanted = given.keys() if isinstance(given, Mapping) else set()
    usual = MethodConfig().name
    fitting = [name for name in (usual, *losses) if wanted <= METHODS.find(name).defaults.keys()]
    name = fitting[0] if fitting else usual
    return settings if name == usual else {**settings, "method": {**method, "name": name}}


def _check_budget(config: Config, number: int | None, minutes: float | None) -> None:
    if number is not None:
        check_integer("trials", number, low=1)
    if minutes is not None:
        check_interval("minutes", minutes, low=0, open_low=True, open_high=True)
    if config.machine.devices * config.machine.nodes > 1:
        raise ArgumentError(
            "machine.devices: a trial runs in one process; start the command several times with "
            "one --storage instead"
        )

    if config.data.planted:
        raise ArgumentError("data.planted: a search needs no planted labels; leave it out")


def _own_validation(config: Config, data: Data) -> Split | None:
    """The data's own validation part, if accuracy is measured on it."""
    is_used = config.data.own_validation and config.data.trusted != "validation"
    return data.validation if is_used else None


def _num_measurements(train: TrainConfig, num_rows: int) -> int:
    """About how often a trial measures the accuracy on held-out rows."""
    batch_size = train.batch_size or min(DEFAULT_BATCH_SIZE, num_rows)
    steps_per_epoch = -(-num_rows // batch_size)
    steps = train.steps or (train.epochs or DEFAULT_EPOCHS) * steps_per_epoch
    return steps // (train.evaluate_every or steps_per_epoch)


def _without_features(config: Config) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update={"features": None})})


def _fixed(config: Config) -> dict[str, Any]:
    """The settings that all trials share, without those that do not affect results."""
    content = config.model_dump(mode="json")
    for name in ("out", "log", "machine"):
        content.pop(name)
    for name in _READ:
        content["data"].pop(name)
    return content


def _claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Marks the folder as that of this search."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / _FILE) as file:
        file.write(json.dumps(about, indent=2, sort_keys=True).encode() + b"\n")


def _check_folder(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether the folder is new; if not, it must be that of this search.

    Raises:
        ArgumentError: If it holds something else.
    """
    path = folder / _FILE
    if not path.exists():
        names = os.listdir(folder) if folder.is_dir() else []
        is_file = folder.exists() and not folder.is_dir()
        if is_file or not all(map(_LEFT.fullmatch, names)):
            raise ArgumentError(f"{folder}: is not empty and holds no search; choose another --out")
        return True
    try:
        before = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path}: is damaged; choose another --out") from None
    for topic, value in json.loads(json.dumps(about)).items():
        if not isinstance(before, dict) or before.get(topic) != value:
            raise ArgumentError(
                f"{folder}: holds a search with other {topic}; choose another --out for this one"
            )
    return False


def _search(study: "optuna.Study", objective: "Objective", *, say: Callable[[str], None]) -> None:
    """Runs trials until the budget is used up."""
    limit, deadline = objective.limit, objective.deadline
    while deadline is None or time.monotonic() < deadline:
        last, running = ended(study), len(trials(study, "RUNNING"))
        done = sum(SAME not in each.user_attrs for each in last)
        if limit is not None and done >= limit:
            return
        if all(SAME in each.user_attrs for each in last[-_MOST_REPEATED:]) and done:
            say(f"the last {_MOST_REPEATED} suggestions were all tried before: the search ends")
            return
        if limit is not None and done + running >= limit:
            _wait_for_others(study)
            continue
        try:
            study.optimize(objective, n_trials=1)
        except _SurplusError:
            _wait_for_others(study)
        except (Stopped, KeyboardInterrupt) as stopped:
            unfinished = trials(study, "RUNNING", "FAIL")
            for each in [each for each in unfinished if each.number == objective.number]:
                try_again(study, each)
            if isinstance(stopped, Stopped) and stopped.code == OUT_OF_TIME:
                return
            line = f"stopped after {len(distinct(study))} trials; the same command continues"
            raise Stopped(line, getattr(stopped, "code", 130)) from None
        except Exception:
            trial = study.get_trials(deepcopy=False)[objective.number or 0]
            if PROBLEM not in trial.user_attrs:  # such as a database that went away
                raise
            say(f"trial {trial.number} failed: {trial.user_attrs[PROBLEM]}")
            failed = [each for each in ended(study) if PROBLEM in each.user_attrs]
            if len(failed) >= _MOST_FAILURES and len(failed) == len(ended(study)):
                raise ImaeError(
                    f"the first {len(failed)} trials failed: {trial.user_attrs[PROBLEM]}"
                ) from None
        else:
            say(_line(study, objective))


def _wait_for_others(study: "optuna.Study") -> None:
    """Waits for workers with the last trials, and takes over a trial without a heartbeat."""
    import optuna

    time.sleep(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is called experimental
        optuna.storages.fail_stale_trials(study)


def _line(study: "optuna.Study", objective: "Objective") -> str:
    trial = study.get_trials(deepcopy=False)[objective.number or 0]
    line = f"trial {first_number(trial)}: {setting_words(objective.space.values(trial.params))}: "
    if SAME in trial.user_attrs:
        return f"{line}as trial {trial.user_attrs[SAME]}, not trained again"
    if trial.state.name == "PRUNED":
        return f"{line}fell behind, stopped early"
    return f"{line}{trial.value:.1%} (best {study.best_value:.1%})"


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
            ArgumentError: If so, if no loss takes a parameter that is given, or if nothing is left
                to search.
        """
        if self.lr is not None and not _is_range(self.lr):
            raise ArgumentError(f"lr must be a range such as 0.005:0.2, got {self.lr}")
        taken = [METHODS.find(loss).defaults.keys() for loss in self.losses]
        if unknown := self.fixed.keys() - set().union(*taken):
            names = ", ".join(self.losses)
            raise ArgumentError(f"method.arguments.{min(unknown)}: is not a parameter of {names}")
        ranges = [_ranges(loss).keys() - self.fixed.keys() for loss in self.losses]
        if len(self.losses) == 1 and self.lr is None and not ranges[0]:
            raise ArgumentError(
                f"{self.losses[0]}: nothing to search, as its parameters are given or it has "
                "none; give several losses or a range of the learning rate"
            )

    def start(self, lr: float) -> dict[str, Any]:
        """The first trial: the defaults, so that a search never ends below them unnoticed.

        Args:
            lr: The learning rate of the settings; if it is outside the range that is searched,
                the nearest end is used.
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
        """Asks optuna for all parameters of a trial, which are then in its ``params``."""
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
        """The settings, by dotted key, for the parameters of a trial."""
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
    """Lowest value, highest value and step of each parameter of a loss that is searched."""
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
    """Rows with labels that are right; ``num_trained`` of them are in the training rows too.

    Args:
        source: A file or folder in the form of the data, or arrays or texts and their labels.
        data: The data, for its classes and rows.
        config: The settings, for the names of columns.

    Raises:
        DataError: If they cannot be read, there are none, they have a class that is not in the
            data, or they are not of the kind and shape of its rows.
    """

    def __init__(self, source: object, data: Data, config: Config) -> None:
        self._inputs: Any
        # The folder of a known set's files is not the one that a table's images are below.
        is_known = isinstance(source, str) and source in SOURCES
        is_alike = is_known == (config.data.name in SOURCES)
        self._root = config.data.root if is_alike else None
        if isinstance(source, str | os.PathLike):
            self.name = self._inputs = os.fspath(source)
            if self.name == config.data.name:
                raise ArgumentError(f"{self.name}: is the data itself, whose labels may be wrong")
            rows, _ = load_unscaled(self.name, root=self._root, **config.data.options)
        elif isinstance(source, tuple | list) and len(source) == 2:
            self.name, self._inputs = "clean_validation", source[0]
            rows = from_arrays(*source, name=self.name)
        else:
            raise ArgumentError(
                "clean_validation must be a path, or rows and their labels (X, y), got "
                f"{type(source).__name__}"
            )
        self.labels: dict[str, int] = {}
        self.num_trained = 0
        trained = _keys(data.train)
        inputs = []
        for split in rows.splits().values():
            unknown = [name for name in split.class_names if name not in data.class_names]
            if unknown:
                raise DataError(
                    f"{self.name}: has the class {unknown[0]!r}, which is not in {config.data.name}"
                )
            number = [data.class_names.index(name) for name in split.class_names]
            inputs.append(split.inputs.content_hash())
            self.num_trained += int(np.isin(_keys(split), trained).sum())
            ids = map(str, split.row_ids.tolist())
            self.labels |= dict(zip(ids, (number[each] for each in split.labels), strict=True))
        if not self.labels:
            raise DataError(f"{self.name}: has no rows")
        # As a trial will read them: what does not fit is said before anything is written.
        scaled = fit_scale(data.train, source=data.name)(data.train)
        options = config.data.options
        load_unlabelled(self._inputs, like=scaled.inputs, options=options, root=self._root)
        listed = json.dumps([inputs, sorted(self.labels.items())])
        self.digest = hashlib.sha256(listed.encode()).hexdigest()

    def accuracy(self, run: Run) -> float:
        """Accuracy of the weights that ``imae predict`` uses."""
        found = predict(run, self._inputs, root=self._root)
        truth = np.array([self.labels[str(row)] for row in found.row_ids])
        return float((found.labels == truth).mean())


def _keys(split: Split) -> NDArray[np.uint64]:
    """Hashes of the rows; none for image files, whose hashes are valid within one folder only."""
    keys = None if isinstance(split.inputs, ImageFiles) else split.inputs.row_keys()
    return np.zeros(0, np.uint64) if keys is None else keys


class _SurplusError(Exception):
    """Another worker has begun the last trial of the budget at the same time."""


class Objective:
    """A trial as a function of what optuna suggests.

    Args:
        base: Settings that all trials share.
        space: What is searched.
        folder: Folder of the search.
        clean: Rows with labels that are right, if there are any.
        limit: Total number of trials.
        deadline: When to stop, on the clock of ``time.monotonic``.
        num_validation: Rows of the data's own validation part, if accuracy is measured on it.
        data: Rows from Python.
    """

    def __init__(
        self,
        base: Config,
        space: Space,
        folder: Path,
        clean: CleanRows | None,
        limit: int | None,
        deadline: float | None,
        num_validation: int | None = None,
        data: Data | None = None,
    ) -> None:
        self.base, self.space, self.folder = base, space, folder
        self.clean, self.limit, self.deadline = clean, limit, deadline
        self.num_validation, self.data = num_validation, data
        self.number: int | None = None

    def __call__(self, trial: "optuna.Trial") -> float:
        """The accuracy of a trial."""
        import optuna

        self.number = trial.number
        if self.limit is not None and num_before(trial.study, trial.number) >= self.limit:
            raise _SurplusError
        self.space.suggest(trial)
        for other in trials(trial.study, "COMPLETE", "PRUNED"):
            if other.params == trial.params:  # a run of the same settings would end the same
                trial.set_user_attr(SAME, first_number(other))
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
            trial.set_user_attr(PROBLEM, in_one_line(error))
            raise
        return self._measure(trial, run)

    def _run(self, trial: "optuna.Trial") -> Run:
        number = first_number(trial)
        path = self.folder / "trials" / f"{number:04d}"
        watch = _Watch(trial, self.deadline)
        if not RunFolder(path).exists():
            config = trial_config(self.base, self.space.values(trial.params))
            config = config.model_copy(update={"out": str(path)})
            return train(config, data=self.data, display=watch)
        for row in RunFolder(path).history():
            watch.measured(row)
        return resume(path, data=self.data, model=self.base.model.name, display=watch)

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
    """Reports a run's progress to optuna, and stops it if it falls behind or time is up."""

    def __init__(self, trial: "optuna.Trial", deadline: float | None) -> None:
        self._trial, self._deadline = trial, deadline
        self._best, self._number, self._step = 0.0, 0, -1

    def measured(self, row: Mapping[str, Any]) -> None:
        """Reports the best accuracy on held-out given labels so far.

        Raises:
            Stopped: If the run is to be stopped.
        """
        if row["step"] <= self._step:  # again, after the checkpoint of a run that was resumed
            return
        self._step = row["step"]
        self._best = max(self._best, float(row[HELD_OUT.key]))
        self._number += 1
        self._trial.report(self._best, self._number)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise Stopped("time is up", OUT_OF_TIME)
        if self._trial.should_prune():
            raise Stopped("pruned", PRUNED)
