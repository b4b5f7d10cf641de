"""The head of a page and what the rows of one run show: verdict, confusion, classes, suspects."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.records import RunFolder, RunLabels
from imae.records.measures import HELD_OUT, NOISY, TEST, Measure
from imae.report.formats import percent, summary_text, thin
from imae.report.hints import NOT_RECORDED, Ranking, Summary, rank_held_out, summarise
from imae.report.read import RunRecord

NUM_SUSPECTS = 12
_MATRIX_CLASSES = 12  # with more, the confusion is a list of pairs
_NUM_PAIRS = 12
_NUM_CLASSES = 24
_NUM_EPOCHS = 10  # the probability of a given label is the mean over these
_SHADES = 6
_LEVEL = 0.05  # points: a smaller difference is 0.0 with one decimal

Previewer = Callable[[RunRecord, Sequence[str]], Mapping[str, str]]
"""Pictures of rows of a run as ``data:`` addresses, by row id; rows without one are left out."""


@dataclass(frozen=True)
class Number:
    """A large number of the head: its text and what it is."""

    text: str
    label: str


@dataclass(frozen=True)
class Cell:
    """Rows of one given and one predicted class; ``shade`` grows from 0 with their share."""

    count: int
    shade: int
    is_diagonal: bool


@dataclass(frozen=True)
class ClassCount:
    """The training rows that are labelled as one class."""

    name: str
    rows: int
    contradicted: int
    wrong: int | None


@dataclass(frozen=True)
class Suspect:
    """A row whose given label the network believes least."""

    row_id: str
    given: str
    predicted: str
    truth: str | None
    p: float
    picture: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What the rows of one run show at its last epoch.

    Args:
        run: Name of the run.
        folder: Its folder.
        method: Its method.
        epoch: The epoch of the predictions.
        names: Names of the classes of ``matrix``.
        matrix: Rows by given (row) and predicted class (column); empty with many classes.
        pairs: Most frequent contradictions: given class, predicted class, rows.
        counts: Rows of each class, those with most contradictions first.
        num_contradicted: Rows whose predicted class is not the given label.
        num_classes: Number of all classes.
        suspects: Rows believed least, the least first.
        audit: The review page of the run, if it was audited.
    """

    run: str
    folder: str
    method: str
    epoch: int
    names: tuple[str, ...]
    matrix: tuple[tuple[Cell, ...], ...]
    pairs: tuple[tuple[str, str, int], ...]
    counts: tuple[ClassCount, ...]
    num_contradicted: int
    num_classes: int
    suspects: tuple[Suspect, ...]
    audit: Path | None


def best_method(methods: Mapping[str, Sequence[RunRecord]]) -> tuple[str, Measure, Summary] | None:
    """The method to prefer: by final test accuracy, else by held-out labels at the best epoch."""
    found = _final(methods, TEST)
    if found:
        best = max(found, key=lambda name: found[name].mean)
        return best, TEST, found[best]
    ranking = rank_held_out(methods)
    return None if ranking is None else (ranking.best, HELD_OUT, ranking.summaries[ranking.best])


def verdict(methods: Mapping[str, Sequence[RunRecord]]) -> str:
    """What the runs of one setting show, in one sentence."""
    if found := _final(methods, TEST):
        return _tested(methods, found)
    ranking = rank_held_out(methods)
    if ranking is not None:
        return _held_out(methods, ranking)
    unfinished = sum(run.result is None for runs in methods.values() for run in runs)
    return "No run has finished yet." if unfinished else "No accuracy was measured."


def _tested(methods: Mapping[str, Sequence[RunRecord]], found: Mapping[str, Summary]) -> str:
    name, second = _first_two(found)
    own = f"predicts {_percents(found[name])} of the test rows right"
    memorised = _mean(methods[name], "final", NOISY)
    tail = (
        ""
        if memorised is None
        else f", and memorised {percent(memorised.mean)}% of the wrong labels"
    )
    if second is None:
        return f"{name} {own}{tail}."
    gap = 100 * (found[name].mean - found[second].mean)
    lead = f"{gap:.1f} points above {second}" if gap >= _LEVEL else f"level with {second}"
    spread = 100 * max(found[each].deviation or 0.0 for each in (name, second))
    if _LEVEL <= gap <= spread:
        lead += " (within the spread of the seeds)"
    return f"{name} ends highest: it {own}, {lead}{tail}."


def _held_out(methods: Mapping[str, Sequence[RunRecord]], ranking: Ranking) -> str:
    name, second = _first_two(ranking.summaries)
    own = (
        f"predicts {_percents(ranking.summaries[name])} of the held-out given labels (some of "
        "which may be wrong) at its best epoch"
    )
    memorised = _mean(methods[name], "best", NOISY)
    tail = (
        ""
        if memorised is None
        else f", and has memorised {percent(memorised.mean)}% of the wrong labels by then"
    )
    if second is None:
        return f"{name} {own}{tail}."
    if ranking.near and ranking.error is not None:
        *others, last = ranking.near
        near = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        return (
            f"No method is clearly ahead: {name} {own}{tail}; {near} within its standard error "
            f"of {100 * ranking.error:.1f} points."
        )
    gap = 100 * (ranking.summaries[name].mean - ranking.summaries[second].mean)
    lead = f"it {own}, {gap:.1f} points above {second}{tail}"
    if ranking.error is None:
        return f"{name} is highest: {lead}; whether by chance cannot be said, as {NOT_RECORDED}."
    return f"{name} is ahead: {lead}."


def _first_two(found: Mapping[str, Summary]) -> tuple[str, str | None]:
    """The method with the highest mean, and the next one if there is one."""
    first, *others = sorted(found, key=lambda name: -found[name].mean)
    return first, others[0] if others else None


def _percents(summary: Summary) -> str:
    return f"{summary_text(summary, seeds=summary.count)}%"


_NUM_NUMBERS = 4


def large_numbers(
    methods: Mapping[str, Sequence[RunRecord]],
    labels: RunLabels | None,
    diagnosis: Diagnosis | None = None,
) -> tuple[Number, ...]:
    """Three or four numbers of the best method that summarise a setting.

    Numbers that need test rows or true labels are replaced, where these are missing, by those of
    the held-out labels and by the number of labels that the network contradicts.
    """
    best = best_method(methods)
    numbers: list[Number] = []
    if best is not None:
        runs = methods[best[0]]
        of_whom = f", {best[0]}" if len(methods) > 1 else ""
        # As the verdict: at the end, or at the epoch that held-out labels choose.
        moment_of_best, end = ("best", "best epoch") if best[1] is HELD_OUT else ("final", "end")
        for measure, moment, label in (
            (TEST, "final", "test rows right at the end"),
            (HELD_OUT, "best", "held-out given labels predicted at the best epoch"),
            (NOISY, moment_of_best, f"wrong labels memorised at the {end}"),
            (HELD_OUT, "final", "held-out given labels predicted at the end"),
        ):
            found = _mean(runs, moment, measure)
            if found is not None and len(numbers) < _NUM_NUMBERS - 1:
                numbers.append(Number(f"{percent(found.mean)}%", label + of_whom))
        if diagnosis is not None and len(numbers) < _NUM_NUMBERS - 1:
            words = "given labels contradicted at the end"
            numbers.append(Number(f"{diagnosis.num_contradicted:,}", words + of_whom))
    if labels is not None:
        rows = f"{len(labels.given):,}"
        wrong = "" if labels.clean is None else f", {_share(labels)}% with a wrong label"
        numbers.append(Number(rows, f"training rows{wrong}"))
    return tuple(numbers)


def by_held_out(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs, first those that predict most held-out given labels at their best epoch."""
    return sorted(runs, key=lambda run: -(run.measure("best", HELD_OUT.key) or 0.0))


def diagnose(
    methods: Mapping[str, Sequence[RunRecord]], *, pictures: Previewer | None = None
) -> Diagnosis | None:
    """What the rows of a run of the best method show; None if no run has kept its rows.

    Args:
        methods: Runs of one setting by method.
        pictures: Makes the pictures of the suspects.

    Raises:
        DataError: If labels or dynamics are damaged.
    """
    best = best_method(methods)
    ordered = sorted(methods, key=lambda name: best is None or name != best[0])
    for run in (run for name in ordered for run in by_held_out(methods[name])):
        folder = RunFolder(run.folder)
        epochs = folder.epochs()
        if epochs and folder.has_labels():
            return _diagnosis(run, folder, epochs, pictures)
    return None


def _diagnosis(
    run: RunRecord, folder: RunFolder, epochs: Sequence[int], pictures: Previewer | None
) -> Diagnosis:
    labels = folder.labels()
    predicted = folder.dynamics(epochs[-1]).predicted.astype(np.int64)
    names = [str(name) for name in labels.class_names]
    seen = (predicted >= 0) & _is_from_data(labels)
    pairs = np.zeros((len(names), len(names)), np.int64)
    np.add.at(pairs, (labels.given[seen], predicted[seen]), 1)
    audit = Path(run.folder) / "audit"
    reviews = [audit / "review.html", *sorted((audit / "review").glob("page-*.html"))]
    return Diagnosis(
        run=run.name,
        folder=str(run.folder),
        method=run.method,
        epoch=epochs[-1],
        names=tuple(names),
        matrix=_matrix(pairs) if len(names) <= _MATRIX_CLASSES else (),
        pairs=_pairs(pairs, names),
        counts=_counts(labels, pairs, names),
        num_contradicted=int(pairs.sum() - np.trace(pairs)),
        num_classes=len(names),
        suspects=_suspects(run, folder, labels, predicted, epochs, pictures),
        audit=next((page for page in reviews if page.is_file()), None),
    )


def _matrix(pairs: NDArray[np.int64]) -> tuple[tuple[Cell, ...], ...]:
    """Cells shaded by their share of the rows of the given class, on a scale of square roots."""
    shares = np.sqrt(pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1))
    shades = np.ceil(shares * _SHADES).astype(int)
    return tuple(
        tuple(
            Cell(int(count), int(shade), given == place)
            for place, (count, shade) in enumerate(zip(row, line, strict=True))
        )
        for given, (row, line) in enumerate(zip(pairs, shades, strict=True))
    )


def _pairs(pairs: NDArray[np.int64], names: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    off = pairs * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-off, axis=None, kind="stable")[:_NUM_PAIRS]
    places = [np.unravel_index(place, off.shape) for place in order]
    return tuple((names[i], names[j], int(off[i, j])) for i, j in places if off[i, j])


def _counts(
    labels: RunLabels, pairs: NDArray[np.int64], names: Sequence[str]
) -> tuple[ClassCount, ...]:
    size = len(names)
    rows = np.bincount(labels.given, minlength=size)
    against = pairs.sum(axis=1) - np.diag(pairs)
    wrong = None
    if labels.clean is not None:
        wrong = np.bincount(labels.given[labels.given != labels.clean], minlength=size)
    order = np.argsort(-against, kind="stable")[:_NUM_CLASSES]
    return tuple(
        ClassCount(
            names[i], int(rows[i]), int(against[i]), None if wrong is None else int(wrong[i])
        )
        for i in order
    )


def _is_from_data(labels: RunLabels) -> NDArray[np.bool_]:
    """Whether each label is that of the data, not one that was planted."""
    return np.ones(len(labels.given), np.bool_) if labels.planted is None else ~labels.planted


def _suspects(
    run: RunRecord,
    folder: RunFolder,
    labels: RunLabels,
    predicted: NDArray[np.int64],
    epochs: Sequence[int],
    pictures: Previewer | None,
) -> tuple[Suspect, ...]:
    margins = [folder.dynamics(epoch).margin for epoch in thin(epochs, limit=_NUM_EPOCHS)]
    p = np.stack([(1 + np.tanh(margin.astype(np.float64) / 2)) / 2 for margin in margins])
    known = ~np.isnan(p)
    mean = np.where(known, p, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    can = (predicted >= 0) & (predicted != labels.given) & _is_from_data(labels)
    order = np.flatnonzero(can)[np.argsort(mean[can], kind="stable")][:NUM_SUSPECTS]
    ids = [str(labels.row_ids[row]) for row in order]
    found = {} if pictures is None else pictures(run, ids)
    names = labels.class_names
    return tuple(
        Suspect(
            row_id=row_id,
            given=str(names[labels.given[row]]),
            predicted=str(names[predicted[row]]),
            truth=None if labels.clean is None else str(names[labels.clean[row]]),
            p=float(mean[row]),
            picture=found.get(row_id),
        )
        for row, row_id in zip(order, ids, strict=True)
    )


def _final(methods: Mapping[str, Sequence[RunRecord]], measure: Measure) -> dict[str, Summary]:
    """A measure at the end of training, of each method for which it is known."""
    found = {name: _mean(runs, "final", measure) for name, runs in methods.items()}
    return {name: summary for name, summary in found.items() if summary is not None}


def _mean(runs: Sequence[RunRecord], moment: str, measure: Measure) -> Summary | None:
    return summarise(run.measure(moment, measure.key) for run in runs if run.result is not None)


def _share(labels: RunLabels) -> str:
    return percent(float((labels.given != labels.clean).mean()) if len(labels.given) else 0.0)


def relative_link(target: Path, page: str | os.PathLike[str] | None) -> str | None:
    """The relative link from a page to a file, or None if the path of the page is not known."""
    return None if page is None else Path(os.path.relpath(target, Path(page).parent)).as_posix()
