"""The table of a comparison, and what a page shows about the runs of one setting."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from imae.records import RunFolder
from imae.records.files import printable
from imae.records.measures import HELD_OUT, MEASURES, Column, Measure
from imae.report.chart import Chart, accuracy_series, line_chart
from imae.report.diagnosis import (
    Diagnosis,
    Number,
    Previewer,
    diagnose,
    large_numbers,
    verdict,
)
from imae.report.dynamics import (
    Labels,
    Panel,
    gather,
    list_epochs,
    panel,
    pool,
    share_chart,
    weight_chart,
)
from imae.report.formats import REPORTED, setting_words, thin
from imae.report.hints import Summary, notes_of_method, notes_of_setting, summarise
from imae.report.read import RunRecord

Key = TypeVar("Key", bound=Hashable)
_BASELINE = "cce"


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
        notes: What a reader must know about the runs of a setting, by the setting.
    """

    rows: tuple[Row, ...]
    notes: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that have a number; held-out labels only without test rows."""
        is_tested = all(row.values["final"] is not None for row in self.rows if row.seeds)
        return tuple(
            column
            for column in REPORTED
            if any(row.values[column.name] is not None for row in self.rows)
            and not (column.measure is HELD_OUT and is_tested)
        )

    def best(self, row: Row, column: Column) -> bool:
        """Whether no row of the same setting has a better mean, and some row has a worse one."""
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
    """The runs grouped by a key, in the order in which its values first appear."""
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


_NUM_EPOCHS = 60  # of the dynamics, evenly spread: more could not be told apart on a slider
_NUM_CLASSES = 24  # class names that are listed


@dataclass(frozen=True)
class Comparison:
    """One data set, noise and network, and everything that is shown about its runs."""

    names: tuple[str, str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    methods: tuple[str, ...]
    accuracies: Mapping[str, Chart]
    epochs: tuple[int, ...]
    panels: tuple[Panel, ...]
    weights: tuple[Chart, ...]
    shares: Chart | None
    classes: str | None
    verdict: str
    numbers: tuple[Number, ...]
    columns: tuple[Column, ...]
    diagnosis: Diagnosis | None

    @property
    def data(self) -> str:
        """Name of the data; for a path its last part."""
        return Path(self.names[0]).name or self.names[0]

    @property
    def title(self) -> str:
        """Data, noise and network in one line."""
        return setting_words((self.data, *self.names[1:]))

    @property
    def has_times(self) -> bool:
        """Whether a time relative to that of cce is known."""
        return any(row.relative_time is not None for row in self.rows)

    @property
    def has_unknown(self) -> bool:
        """Whether a cell of the table is unknown."""
        return any(
            row.values[column.name] is None for row in self.rows for column in self.columns
        ) or (self.has_times and any(row.relative_time is None for row in self.rows))

    @property
    def stops(self) -> dict[str, object]:
        """What the slider shows, for the script of the page: numbers, paths and fixed words."""
        panels = [
            [{"outlines": dict(frame.outlines), "words": frame.words} for frame in panel.frames]
            for panel in self.panels
        ]
        return {"epochs": self.epochs, "panels": panels}


def compare(
    runs: Sequence[RunRecord],
    whole: Table,
    labels: Mapping[Path, Labels | None],
    *,
    pictures: Previewer | None = None,
) -> Comparison:
    """What is shown about the runs of one setting.

    Args:
        runs: Runs that share data, noise and network; at least one.
        whole: Table of these and any other runs.
        labels: Labels of every run by its folder; None if there are none yet.
        pictures: Makes the pictures of suspect rows.

    Raises:
        DataError: If the dynamics of a run are damaged.
    """
    names = runs[0].setting
    methods = group(runs, lambda run: run.method)
    every = sorted({epoch for run in runs for epoch in list_epochs(run.folder)})
    epochs = thin(every, limit=_NUM_EPOCHS)
    known = {run.folder: own for run in runs if (own := labels[run.folder]) is not None}
    pooled = {
        method: pool(
            gather(run.folder, known[run.folder], epochs) for run in alike if run.folder in known
        )
        for method, alike in methods.items()
    }
    drawn = _drawn(methods)
    if len(drawn) == 1:
        drawn = _drawn(methods, is_wide=True)
    panels = [panel(method, parts, epochs) for method, parts in pooled.items()]
    is_lone = sum(map(bool, pooled.values())) == 1
    weights = [weight_chart(method, parts, is_wide=is_lone) for method, parts in pooled.items()]
    rows = tuple(row for row in whole.rows if row.setting == names)
    diagnosis = diagnose(methods, pictures=pictures)
    first = next((run.folder for run in runs if run.folder in known), None)
    return Comparison(
        names,
        rows=rows,
        notes=whole.notes.get(names, ()),
        methods=tuple(methods),
        accuracies=drawn,
        epochs=tuple(epochs),
        panels=tuple(one for one in panels if one is not None),
        weights=tuple(one for one in weights if one is not None),
        shares=share_chart(pooled, list(known.values())),
        classes=next((_classes(own) for own in known.values()), None),
        verdict=verdict(methods),
        numbers=large_numbers(
            methods, None if first is None else RunFolder(first).labels(), diagnosis
        ),
        columns=_columns(rows),
        diagnosis=diagnosis,
    )


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """The columns for which some row has a number; the best test accuracy last."""
    known = [each for each in REPORTED if any(row.values[each.name] is not None for row in rows)]
    return tuple(sorted(known, key=lambda column: column.moment == "best_test"))


def _drawn(
    methods: Mapping[str, Sequence[RunRecord]], *, is_wide: bool = False
) -> dict[str, Chart]:
    """The charts over training steps that have a line, by the name of what they show."""
    charts = {each.name: _accuracies(each, methods, is_wide=is_wide) for each in MEASURES}
    charts["T"] = _followed_parameter(methods, is_wide=is_wide)
    return {name: chart for name, chart in charts.items() if chart is not None}


def _followed_parameter(
    methods: Mapping[str, Sequence[RunRecord]], *, is_wide: bool
) -> Chart | None:
    """T of the methods that choose it in training."""
    lines = [accuracy_series(method, runs, "T", factor=1) for method, runs in methods.items()]
    title = "T, as the training set it"
    return line_chart(
        title, lines, x_label="training steps", unit="", from_zero=True, is_wide=is_wide
    )


def _accuracies(
    measure: Measure, methods: Mapping[str, Sequence[RunRecord]], *, is_wide: bool = False
) -> Chart | None:
    if measure.title is None or not measure.is_summary:
        return None
    lines = [accuracy_series(method, runs, measure.key) for method, runs in methods.items()]
    title = measure.title + measure.direction
    return line_chart(
        title, lines, x_label="training steps", unit="%", limit=(0, 100), is_wide=is_wide
    )


def _classes(labels: Labels) -> str:
    names = ", ".join(map(printable, labels.class_names[:_NUM_CLASSES]))
    more = len(labels.class_names) - _NUM_CLASSES
    return names + (f" and {more} more" if more > 0 else "")
