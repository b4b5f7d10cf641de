"""The search: a trial is a run under suggested settings, stopped early if it falls behind."""

import contextlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imae.errors import ArgumentError, DataError, ImaeError, check_integer, check_interval
from imae.records.files import hold, whole_file
from imae.train import Config, Stopped, build_config
from imae.train.rows import load_rows
from imae.tune.outcome import Outcome, conclude, setting_words
from imae.tune.study import (
    PROBLEM,
    SAME,
    STUDY,
    distinct,
    ended,
    open_study,
    storage_errors,
    trials,
    try_again,
)
from imae.tune.trial import OUT_OF_TIME, CleanRows, Objective, Space

if TYPE_CHECKING:
    import optuna

TRIALS = 20
_MOST_FAILURES = 3  # before the first success, after which the search gives up
_MOST_REPEATED = 20  # suggestions in a row that were tried before
_FILE = "search.json"
_LEFT = {"lock", "search.db"}  # by a search that was stopped before it began
# Settings that say where the rows are: what was read there is compared itself.
_READ = ("name", "root", "options", "labels", "workers", "from_python")


def tune(
    config: Config | Mapping[str, Any],
    *,
    trials: int | None = None,
    minutes: float | None = None,
    losses: Sequence[str] = (),
    lr: tuple[float, float] | None = None,
    clean_validation: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "tune",
    storage: str | None = None,
    study: str = STUDY,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Searches T, the cap and, if asked, the learning rate and the loss.

    A trial is a run under the other settings of ``config``. Its value is the accuracy on held-out
    given labels at its best epoch, or on clean labels if there are some. Without clean labels the
    ranking is exact only under uniform noise, and of settings that cannot be told apart the more
    cautious one is chosen; see ``imae.tune.outcome.choose``.

    The same call continues a search that was stopped or killed, and repeats no finished trial.

    Args:
        config: What to train, as for ``imae.train.train``; parameters that it gives are not
            searched.
        trials: Trials in all, over all calls and workers [20, without minutes].
        minutes: Time of this call.
        losses: Losses to choose from; by default only that of ``config``.
        lr: Lowest and highest learning rate; by default that of ``config``.
        clean_validation: Rows with labels that are right, in the form of the data.
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
    base = config if isinstance(config, Config) else build_config(config)
    _check_budget(base, trials, minutes)
    if storage is not None and not isinstance(storage, str):
        raise ArgumentError(f"storage must be the address of a database, got {storage!r}")
    names = (losses,) if isinstance(losses, str) else tuple(losses)
    space = Space(names or (base.method.name,), lr, dict(base.method.arguments))
    space.check()
    rows = load_rows(_without_features(base))
    clean = None if clean_validation is None else CleanRows(clean_validation, rows.data, base)
    if base.data.hold_out == 0 and rows.data.validation is None:
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
    url = storage or f"sqlite:///{(folder / 'search.db').resolve()}"
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
                warm_up=max(1, (base.train.epochs or 9) // 3),
                is_shared=storage is not None,
            )
        )
        if is_new:  # only now: a storage that cannot be used must not leave a claim behind
            _claim(folder, {**about, "study": study})
        if not found.get_trials(deepcopy=False):
            found.enqueue_trial(space.start(base.optimizer.lr), skip_if_exists=True)
        validation = rows.data.validation if base.data.own_validation else None
        num_validation = None if validation is None else len(validation)
        objective = Objective(base, space, folder, clean, deadline, num_validation)
        _search(found, objective, limit=limit, deadline=deadline, say=say)
        return conclude(
            [each for each in distinct(found) if each.state.name != "FAIL"],
            num_failed=sum(each.state.name == "FAIL" for each in distinct(found)),
            base=base,
            space=space.values,
            folder=folder,
            num_classes=rows.data.num_classes,
            clean_rows=None if clean is None else len(clean.labels),
        )


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


def _without_features(config: Config) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update={"features": None})})


def _fixed(config: Config) -> dict[str, Any]:
    """The settings that all trials share, without those that change no result."""
    content = config.model_dump(mode="json")
    for name in ("out", "log", "machine"):
        content.pop(name)
    for name in _READ:
        content["data"].pop(name)
    return content


def _claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Makes the folder that of this search."""
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
        if folder.exists() and (not folder.is_dir() or set(os.listdir(folder)) - _LEFT):
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


def _search(
    study: "optuna.Study",
    objective: Objective,
    *,
    limit: int | None,
    deadline: float | None,
    say: Callable[[str], None],
) -> None:
    """Runs trials until the budget is used up."""
    while deadline is None or time.monotonic() < deadline:
        done, running = len(distinct(study)), len(trials(study, "RUNNING"))
        if limit is not None and done >= limit:
            return
        if all(SAME in each.user_attrs for each in ended(study)[-_MOST_REPEATED:]) and done:
            say(f"the last {_MOST_REPEATED} suggestions were all tried before: the search ends")
            return
        if limit is not None and done + running >= limit:
            _wait_for_others(study)
            continue
        try:
            study.optimize(objective, n_trials=1)
        except (Stopped, KeyboardInterrupt) as stopped:
            assert objective.number is not None
            try_again(study, study.get_trials(deepcopy=False)[objective.number])
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
    """A moment for workers that do the last trials; one without a sign of life is taken over."""
    import optuna

    time.sleep(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is called experimental
        optuna.storages.fail_stale_trials(study)


def _line(study: "optuna.Study", objective: Objective) -> str:
    trial = study.get_trials(deepcopy=False)[objective.number or 0]
    line = f"trial {trial.number}: {setting_words(objective.space.values(trial.params))}: "
    if SAME in trial.user_attrs:
        return f"{line}as trial {trial.user_attrs[SAME]}, not trained again"
    if trial.state.name == "PRUNED":
        return f"{line}fell behind, stopped early"
    return f"{line}{trial.value:.1%} (best {study.best_value:.1%})"
