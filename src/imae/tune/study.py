"""The search on disk: an optuna study that outlives its processes, in a file or a database."""

import contextlib
import json
import logging
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imae._draws import derive_seed
from imae.errors import ArgumentError, ImaeError, import_extra

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

STUDY = "imae"
_HEARTBEAT_SECONDS = 10
_STALE_SECONDS = 60  # without a heartbeat, after which another worker takes over a trial
_ATTEMPTS = 5  # to open a database
_STARTUP_TRIALS = 8  # drawn at random before the search learns from them
_ABOUT = "about"  # attribute of a study: what it searches
PROBLEM = "problem"  # attribute of a trial: why its training failed
SAME = "same as"  # attribute of a trial: number of a trial of these settings that has ended
FIRST = "first"  # attribute of a trial that is tried again: number of its first attempt


@contextlib.contextmanager
def open_study(
    url: str, *, name: str, about: Mapping[str, Any], seed: int, warm_up: int, is_shared: bool
) -> "Iterator[optuna.Study]":
    """The study of this name, new or existing; its connections are closed after the block.

    Args:
        url: Where it is stored, as SQLAlchemy writes it.
        name: Name of the study in the storage.
        about: What is searched, in plain values by topic; a study about something else is refused.
        seed: Seed of all suggestions.
        warm_up: Measurements of a trial before it may be pruned.
        is_shared: Whether other processes may work on it. If not, trials that are marked as
            running were left by a process that died, and are tried again. Trials that failed by
            themselves are tried again in either case: their cause may be gone.

    Raises:
        ArgumentError: If the storage cannot be reached, or the study is about something else.
        MissingExtraError: If optuna is not installed.
    """
    import_extra("optuna", extra="tune")
    import optuna

    logging.getLogger("optuna").setLevel(logging.ERROR)  # after the import, which sets its own
    with storage_errors(url), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # signs of life are called experimental
        storage = _storage(url, is_shared=is_shared)
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            sampler=_sampler(seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warm_up),
        )
        _check_about(study, about, url)
        for trial in _without_result(study, is_shared=is_shared):
            try_again(study, trial)  # first: a process that dies in between finds both
        if not is_shared:
            for trial in trials(study, "RUNNING"):
                storage.set_trial_state_values(trial._trial_id, state=optuna.trial.TrialState.FAIL)
    try:
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def file_url(path: Path) -> str:
    """The address of a database in a file.

    Raises:
        MissingExtraError: If sqlalchemy is not installed.
    """
    engine = import_extra("sqlalchemy.engine", extra="tune")
    return str(engine.URL.create("sqlite", database=str(path)).render_as_string())


def _storage(url: str, *, is_shared: bool) -> "optuna.storages.RDBStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    options: dict[str, Any] = {}
    if is_shared:
        options = {
            "heartbeat_interval": _HEARTBEAT_SECONDS,
            "grace_period": _STALE_SECONDS,
            "heartbeat_stale_trial_callback": try_again,
        }
    for _ in range(_ATTEMPTS):
        # If workers start together, one creates the tables, and the others collide with it.
        with contextlib.suppress(IntegrityError, ProgrammingError):
            return RDBStorage(url, **options)
        time.sleep(1)
    return RDBStorage(url, **options)


def _check_about(study: "optuna.Study", about: Mapping[str, Any], url: str) -> None:
    # As text, so that numbers and tuples compare equal when they are read from a database.
    wanted = {topic: json.dumps(value, sort_keys=True) for topic, value in about.items()}
    before = study.user_attrs.get(_ABOUT)
    if before is None:
        study.set_user_attr(_ABOUT, wanted)
        return
    for topic in wanted:
        if before.get(topic) != wanted[topic]:
            raise ArgumentError(
                f"{shown(url)}: holds a search with other {topic}; choose another --study or "
                f"--out for this one"
            )


def try_again(study: "optuna.Study", trial: "FrozenTrial") -> None:
    """Puts a trial without a result at the front of the queue."""
    from optuna.trial import TrialState, create_trial

    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={FIRST: first_number(trial)},
            system_attrs=trial.system_attrs,  # parameters that were asked for, if any
        )
    )


def _without_result(study: "optuna.Study", *, is_shared: bool) -> "list[FrozenTrial]":
    """Trials that failed, or whose process died or was stopped, that are not tried again yet."""
    every = study.get_trials(deepcopy=False)
    failed = [each for each in every if each.state.name == "FAIL"]
    if is_shared:  # what another worker leaves is noticed by its silence
        failed = [each for each in failed if not _was_stopped(each)]
        return _last_attempts(failed, every)
    running = [each for each in every if each.state.name == "RUNNING"]
    return _last_attempts([*running, *failed], every)


def _last_attempts(
    some: "Sequence[FrozenTrial]", every: "Sequence[FrozenTrial]"
) -> "list[FrozenTrial]":
    """Those of some trials that no later attempt replaces."""
    last = {first_number(each): each.number for each in every}
    return [each for each in some if last[first_number(each)] == each.number]


def first_number(trial: "FrozenTrial | optuna.Trial") -> int:
    """The number of a trial, of one that is tried again that of its first attempt."""
    return int(trial.user_attrs.get(FIRST, trial.number))


def trials(study: "optuna.Study", *states: str) -> "list[FrozenTrial]":
    """The trials in these states, by number."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=[TrialState[state] for state in states])


def ended(study: "optuna.Study") -> "list[FrozenTrial]":
    """Trials that have ended: finished, pruned, or failed by themselves and not tried again."""
    some = [each for each in trials(study, "COMPLETE", "PRUNED", "FAIL") if not _was_stopped(each)]
    return _last_attempts(some, study.get_trials(deepcopy=False))


def _was_stopped(trial: "FrozenTrial") -> bool:
    """Whether its process died or was stopped, so that it has no result."""
    return trial.state.name == "FAIL" and PROBLEM not in trial.user_attrs


def distinct(study: "optuna.Study") -> "list[FrozenTrial]":
    """Trials that have ended, without those that repeat earlier settings."""
    return [each for each in ended(study) if SAME not in each.user_attrs]


def num_before(study: "optuna.Study", number: int) -> int:
    """Number of trials with a smaller number that have ended or are running."""
    counted = (*distinct(study), *trials(study, "RUNNING"))
    return sum(each.number < number for each in counted)


def _sampler(seed: int) -> Any:
    """Tree-structured Parzen estimation whose draws follow from the seed and the ended trials.

    So a search that was killed and resumed makes the same suggestions as one that was not. Trials
    of other workers that are still running count too, or two workers would draw the same.
    """
    from optuna.samplers import BaseSampler, TPESampler

    class Sampler(BaseSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:  # noqa: ARG002
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:  # noqa: ARG002
            return {}

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            others = (*ended(study), *trials(study, "RUNNING"))
            before = sum(each.number < trial.number for each in others)
            sampler = TPESampler(
                n_startup_trials=_STARTUP_TRIALS,
                multivariate=False,
                constant_liar=False,
                seed=derive_seed(seed, "suggestion", before, zlib.crc32(name.encode())) % 2**32,
            )
            return sampler.sample_independent(study, trial, name, distribution)

    return Sampler()


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """One clear line, without a password, for whatever a database raises.

    Raises:
        ArgumentError: If the address is wrong or nobody answers.
        ImaeError: If the database fails later.
    """
    try:
        yield
    except ImaeError:
        raise
    except ImportError as error:
        driver = "'psycopg[binary]'" if url.startswith("postgresql:") else "its driver"
        raise ArgumentError(f"--storage {shown(url)}: needs: pip install {driver}") from error
    except Exception as error:
        if not _is_of_database(error):
            raise
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise ArgumentError(f"--storage {shown(url)}: cannot be used ({reason[:200]})") from error


def _is_of_database(error: BaseException | None) -> bool:
    while error is not None:
        if type(error).__module__.partition(".")[0] in ("sqlalchemy", "optuna", "alembic"):
            return True
        error = error.__cause__
    return False


def shown(url: str) -> str:
    """The address without its password.

    Examples:
        >>> shown("postgresql://ann:secret@host/trials")
        'postgresql://ann:***@host/trials'
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError as BadAddress

    try:
        return make_url(url).render_as_string(hide_password=True)
    except (BadAddress, ValueError):
        return "(not an address such as postgresql://user:password@host/database)"
