"""The table of a comparison: one row per method, mean and deviation over its seeds."""

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from imae.records.measures import COLUMNS, HELD_OUT, Column
from imae.report.read import RunRecord, plain_text

_PLACE_OF_THE_RUN = ("out", "seed")  # differ between the runs of one recipe by their nature


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


def differences(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted names of what differs between the configurations, apart from seed and place."""
    common = shared(trees)
    names = dict.fromkeys(name for tree in trees for name in flatten(tree))
    return [name for name in names if name not in common and name not in _PLACE_OF_THE_RUN]


Key = TypeVar("Key", bound=Hashable)
_BASELINE = "cce"
_NAMED = 4  # settings that a note lists by name


# The columns of a report: all of the test rows, and the measures that sum a run up.
REPORTED = tuple(column for column in COLUMNS if column.measure.is_summary)


@dataclass(frozen=True)
class Summary:
    """A number over several runs.

    Args:
        mean: Arithmetic mean.
        deviation: Standard deviation of a sample (divided by count - 1); None for one run.
        count: Runs that know the number.
    """

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True)
class Row:
    """One method on one data set, noise and network.

    Args:
        data: Name of the data.
        noise: Kind and rate of the added noise.
        model: Name of the network.
        method: Name of the method with its arguments.
        seeds: Finished runs; every number is taken over these.
        values: Accuracies as fractions by the name of their column; None where unknown.
        seconds_per_step: Wall time of a training step.
        relative_time: That time divided by the one of cce in the same setting.
        notes: What a reader must know: unfinished runs, differing settings, a seed run twice.
    """

    data: str
    noise: str
    model: str
    method: str
    seeds: int
    values: Mapping[str, Summary | None]
    seconds_per_step: Summary | None
    relative_time: float | None
    notes: tuple[str, ...]

    @property
    def setting(self) -> tuple[str, str, str]:
        """Data, noise and network: rows that share them can be compared."""
        return self.data, self.noise, self.model


@dataclass(frozen=True)
class Table:
    """Rows in the order in which the runs were given."""

    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of which a number is known; held-out labels only where test rows lack."""
        is_tested = all(row.values["final"] is not None for row in self.rows if row.seeds)
        return tuple(
            column
            for column in REPORTED
            if any(row.values[column.name] is not None for row in self.rows)
            and not (column.measure is HELD_OUT and is_tested)
        )

    def best(self, row: Row, column: Column) -> bool:
        """Whether no row of the same setting has a better mean, and one has a worse."""
        own = row.values[column.name]
        others = [other.values[column.name] for other in self.rows if other.setting == row.setting]
        means = [other.mean for other in others if other is not None]
        if own is None or min(means) == max(means):
            return False
        return own.mean == (max(means) if column.measure.higher_is_better else min(means))


def table(runs: Sequence[RunRecord]) -> Table:
    """The table of these runs: a row for each data set, noise, network and method.

    Args:
        runs: Records of run folders; unfinished ones are counted and add no number.
    """
    rows = []
    for setting, compared in group(runs, lambda run: run.setting).items():
        baseline = _time([run for run in compared if run.loss == _BASELINE])
        for method, alike in group(compared, lambda run: run.method).items():
            finished = [run for run in alike if run.result is not None]
            time = _time(finished)
            values = {
                column.name: summarise(run.value(column) for run in finished) for column in REPORTED
            }
            rows.append(
                Row(
                    *setting,
                    method=method,
                    seeds=len(finished),
                    values=values,
                    seconds_per_step=time,
                    relative_time=_ratio(time, baseline),
                    notes=_notes(alike),
                )
            )
    return Table(tuple(rows))


def group(runs: Iterable[RunRecord], key: Callable[[RunRecord], Key]) -> dict[Key, list[RunRecord]]:
    """The runs by what ``key`` says of them, in the order in which it first says so."""
    groups: dict[Key, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _ratio(time: Summary | None, baseline: Summary | None) -> float | None:
    if time is None or baseline is None or baseline.mean == 0:
        return None
    return time.mean / baseline.mean


def _time(runs: Sequence[RunRecord]) -> Summary | None:
    return summarise((run.result or {}).get("seconds_per_step") for run in runs)


def summarise(numbers: Iterable[float | None]) -> Summary | None:
    """Mean and deviation of the numbers that are known; None if none is."""
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Summary(statistics.fmean(known), deviation, len(known))


def _notes(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    unfinished = Counter(run.status for run in runs if run.result is None)
    notes = [f"{count} {status}" for status, count in unfinished.items()]
    differing = differences([run.config for run in runs])
    if differing:
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        notes.append(f"runs differ in {', '.join(differing[:_NAMED])}{more}")
    doubled = [seed for seed, count in Counter(run.seed for run in runs).items() if count > 1]
    if doubled:
        notes.append(f"several runs with seed {', '.join(doubled)}")
    return tuple(notes)
