"""The table of a comparison: one row per method, mean and deviation over its seeds."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from imae.records.measures import COLUMNS, HELD_OUT, Column
from imae.report.hints import Summary, notes_of_method, notes_of_setting, summarise
from imae.report.read import RunRecord

Key = TypeVar("Key", bound=Hashable)
_BASELINE = "cce"


# The columns of a report: all of the test rows, and the measures that sum a run up.
REPORTED = tuple(column for column in COLUMNS if column.measure.is_summary)


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
    """Rows in the order in which the runs were given.

    Args:
        rows: One for each method.
        notes: What a reader must know of the runs of a setting, by the setting.
    """

    rows: tuple[Row, ...]
    notes: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)

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
    rows, setting_notes = [], {}
    for setting, compared in group(runs, lambda run: run.setting).items():
        baseline = _time([run for run in compared if run.loss == _BASELINE])
        methods = group(compared, lambda run: run.method)
        setting_notes[setting] = notes_of_setting(methods)
        for method, alike in methods.items():
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
                    notes=notes_of_method(alike),
                )
            )
    return Table(tuple(rows), {setting: notes for setting, notes in setting_notes.items() if notes})


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
