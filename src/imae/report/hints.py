"""Notes below a table of runs: what an experienced reader would point out."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imae.records import RunFolder
from imae.records.measures import HELD_OUT, TEST
from imae.report.read import RunRecord, flatten, is_machine_setting

_NAMED = 4  # settings that a note lists by name
_VALUE_LENGTH = 40  # characters of a setting in a note
_RISING = 0.05  # gained in the last third of training: still learning
_ONE_CLASS = 0.99  # of the rows predicted as one class: nothing was learned
NOT_RECORDED = "the number of validation rows was not recorded"


@dataclass(frozen=True)
class Summary:
    """A number over several runs.

    Args:
        mean: Arithmetic mean.
        deviation: Standard deviation of a sample (divided by count - 1); None for one run.
        count: Runs that have the number.
    """

    mean: float
    deviation: float | None
    count: int


def summarise(numbers: Iterable[float | None]) -> Summary | None:
    """Mean and deviation of the known numbers; None if there are none."""
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Summary(statistics.fmean(known), deviation, len(known))


def notes_of_method(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """What a reader must know about the runs that are one row of a table."""
    unfinished = Counter(run.status for run in runs if run.result is None)
    notes = [f"{count} {status}" for status, count in unfinished.items()]
    names = list(differing([run.config for run in runs]))
    if names:
        notes.append(f"runs differ in {', '.join(names[:_NAMED])}{_more(names)}")
    doubled = [seed for seed, count in Counter(run.seed for run in runs).items() if count > 1]
    if doubled:
        notes.append(f"several runs with seed {', '.join(doubled)}")
    constant = [name for run in runs if (name := constant_class(run)) is not None]
    if constant:
        notes.append(
            f"{len(constant)} of {len(runs)} runs predict one class for every row "
            f"({', '.join(dict.fromkeys(constant))}): try another learning rate or more epochs"
        )
    elif is_rising(runs):
        slow = (
            "" if runs[0].loss == "cce" else " (robust losses learn more slowly than cross entropy)"
        )
        notes.append(f"accuracy was still rising when training ended: train longer{slow}")
    return tuple(notes)


def notes_of_setting(methods: Mapping[str, Sequence[RunRecord]]) -> tuple[str, ...]:
    """What a reader must know about the methods that are compared in one setting.

    Args:
        methods: Runs by the name of their method.
    """
    return (*_unequal(methods), *_other_rows(methods), *_best_held_out(methods))


def constant_class(run: RunRecord) -> str | None:
    """Name of the only class that a run predicts for its training rows, if it is one of several."""
    folder = RunFolder(run.folder)
    epochs = folder.epochs()
    if run.result is None or not epochs or not folder.has_labels():
        return None
    predicted = folder.dynamics(epochs[-1]).predicted
    counts = np.bincount(predicted[predicted >= 0])
    labels = folder.labels()
    is_one = len(counts) and counts.max() >= _ONE_CLASS * counts.sum()
    if not is_one or len(np.unique(labels.given)) < 2:
        return None
    # If nearly all labels are of one class, nearly all right predictions are too.
    share = np.bincount(labels.given).max() / len(labels.given)
    return None if share >= _ONE_CLASS else str(labels.class_names[int(counts.argmax())])


def is_rising(runs: Sequence[RunRecord]) -> bool:
    """Whether the mean accuracy of the finished runs rose in the last third of training."""
    gains = [gain for run in runs if (gain := _late_gain(run)) is not None]
    return bool(gains) and statistics.fmean(gains) >= _RISING


def _late_gain(run: RunRecord) -> float | None:
    if run.result is None:
        return None
    for key in (TEST.key, HELD_OUT.key):
        known = [(row["step"], row[key]) for row in run.history if row.get(key) is not None]
        before = [value for step, value in known if 3 * step <= 2 * known[-1][0]]
        if before:
            return float(known[-1][1] - max(before))
    return None


def _unequal(methods: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Settings other than the method in which the methods differ, with their values."""
    names = [
        name
        for name in differing([run.config for runs in methods.values() for run in runs])
        if not name.startswith("method.")
    ]
    lines = []
    for name in names[:_NAMED]:
        values = {
            method: [_short(value) for value in _values(runs, name)]
            for method, runs in methods.items()
        }
        if len({tuple(found) for found in values.values() if found}) > 1:
            each = ", ".join(f"{method} {' and '.join(v)}" for method, v in values.items() if v)
            lines.append(f"{name} ({each})")
    if not lines:
        return []
    return [f"the methods were not trained alike: {'; '.join(lines)}{_more(names)}"]


def _other_rows(methods: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """A note if data of the same name had different contents in some of the runs."""
    found: dict[str, list[str]] = {}
    for run in (run for runs in methods.values() for run in runs):
        content = _content(run)
        if content is not None:
            found.setdefault(content, []).append(run.name)
    if len(found) < 2:
        return []
    groups = "; ".join(f"{', '.join(names[:_NAMED])}{_more(names)}" for names in found.values())
    return [f"the data changed between these runs, so their numbers cannot be compared: {groups}"]


def _content(run: RunRecord) -> str | None:
    """Hash of the data that a run saw, as its folder holds it; None in records without one."""
    folder = RunFolder(run.folder)
    if not (folder.path / "preparation.json").exists():
        return None
    content = folder.preparation().get("content")
    return json.dumps(content, sort_keys=True) if content else None


def differing(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of every setting that differs, except for the seed and the machine.

    A setting that some of the configurations lack, for example those of another version, is
    compared between the others.

    Examples:
        >>> differing([{"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 2}, {"lr": 0.1}])
        {'lr': ['0.1', '0.2']}
    """
    values: dict[str, dict[str, None]] = {}
    for tree in trees:
        for name, value in flatten(tree).items():
            values.setdefault(name, {})[value] = None
    return {
        name: list(found)
        for name, found in values.items()
        if len(found) > 1 and name != "seed" and not is_machine_setting(name)
    }


def _values(runs: Sequence[RunRecord], name: str) -> list[str]:
    found = (flatten(run.config).get(name) for run in runs)
    return list(dict.fromkeys(value for value in found if value is not None))


def _best_held_out(methods: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Which method to choose by the held-out given labels, where there is no test part."""
    ended = [run for runs in methods.values() for run in runs if run.result is not None]
    if any(run.measure("final", TEST.key) is not None for run in ended):
        return []
    found = rank_held_out(methods)
    if found is None or len(found.summaries) < 2:
        return []
    line = (
        f"best on held-out given labels, at the best epoch: {found.best} "
        f"({100 * found.summaries[found.best].mean:.1f}, "
    )
    if found.error is None:
        line += f"standard error unknown, as {NOT_RECORDED})"
    else:
        near = f"within it: {', '.join(found.near)}" if found.near else "no other is within it"
        line += f"standard error {100 * found.error:.1f}; {near})"
    return [f"{line}. Some given labels may be wrong, so these are not true accuracies"]


@dataclass(frozen=True)
class Ranking:
    """Methods by their accuracy on held-out given labels at the best epoch.

    Args:
        best: The method with the highest mean.
        summaries: The accuracy of each method.
        error: Standard error of the highest mean, over seeds or over rows, whichever is larger;
            None if it is not known how many rows there are.
        near: Other methods that are at most a standard error below.
    """

    best: str
    summaries: Mapping[str, Summary]
    error: float | None
    near: tuple[str, ...]


def rank_held_out(methods: Mapping[str, Sequence[RunRecord]]) -> Ranking | None:
    """The methods at the epoch that ``imae predict`` uses; None if no row was held out."""
    ended = {
        method: [run for run in runs if run.result is not None] for method, runs in methods.items()
    }
    found = {
        method: summary
        for method, runs in ended.items()
        if (summary := summarise(run.measure("best", HELD_OUT.key) for run in runs)) is not None
    }
    if not found:
        return None
    best = max(found, key=lambda method: found[method].mean)
    error = _standard_error(found[best], ended[best])
    near = tuple(
        method
        for method, summary in found.items()
        if error is not None and method != best and found[best].mean - summary.mean <= error
    )
    return Ranking(best, found, error, near)


def _standard_error(summary: Summary, runs: Sequence[RunRecord]) -> float | None:
    """Standard error of a mean accuracy: the larger of that over seeds and that over rows."""
    over_seeds = (summary.deviation or 0.0) / math.sqrt(summary.count)
    rows = _num_validation(runs)
    return max(over_seeds, math.sqrt(summary.mean * (1 - summary.mean) / rows)) if rows else None


def _num_validation(runs: Sequence[RunRecord]) -> int | None:
    """Rows by which these runs were measured, each counted once; None if that is not known.

    Every seed holds out other rows; the validation part of the data is the same for all of them.
    """
    held_out = own = 0
    for run in runs:
        if run.measure("best", HELD_OUT.key) is None:
            continue
        number, is_held_out = _validation_of(run)
        if not number:
            return None
        held_out += number if is_held_out else 0
        own = max(own, 0 if is_held_out else number)
    return held_out + own or None


def _validation_of(run: RunRecord) -> tuple[int | None, bool]:
    """The number of validation rows of a run, and whether they were taken from its training rows.

    Runs of earlier versions did not record it: there it is that of the labels that were held out,
    or follows from the share that was to be, unless the data has a validation part of its own.
    """
    folder = RunFolder(run.folder)
    has_file = (folder.path / "preparation.json").exists()
    preparation = folder.preparation() if has_file else {}
    if "num_validation" in preparation:
        return preparation["num_validation"], preparation.get("is_held_out") is not False
    part = run.config["data"].get("hold_out")
    if not isinstance(part, float) or not 0 < part < 1 or not folder.has_labels():
        return None, True
    labels, held = folder.labels(), folder.held_labels()
    planted = 0 if labels.planted is None else int(labels.planted.sum())
    if held is not None and len(held.given) > planted:
        return len(held.given) - planted, True
    if "validation" in (preparation.get("content") or {}):
        return None, False
    return round(len(labels.given) * part / (1 - part)), True


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def _short(value: str) -> str:
    return value if len(value) <= _VALUE_LENGTH else value[: _VALUE_LENGTH - 1] + "…"
