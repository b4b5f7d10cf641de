"""The outcome of a search: the chosen setting, its uncertainty, the command and the page."""

import base64
import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import ImaeError
from imae.noise.catalog import parse
from imae.records.files import whole_file
from imae.records.measures import wilson
from imae.report import chart
from imae.report.chart import LEFT, RIGHT, WIDE, WIDTH, Axis, log_ticks, round_axis, ticks_between
from imae.report.page import build_environment, policy
from imae.train import Config, build_config, with_values
from imae.tune.study import first_number

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


# Settings that `imae train` has an option for; all others are given by --set.
_OPTIONS = {
    "method.name": "--loss",
    "method.arguments.T": "--T",
    "method.arguments.cap": "--cap",
    "model.name": "--model",
    "noise": "--noise",
    "data.labels": "--labels",
    "seed": "--seed",
    "train.epochs": "--epochs",
    "train.steps": "--steps",
    "train.batch_size": "--batch-size",
    "optimizer.lr": "--lr",
    "data.hold_out": "--hold-out",
    "data.features": "--features",
    "data.root": "--root",
}

_ARGUMENTS = "method.arguments."
_FIRST = 0  # number of the trial that has the defaults


@dataclass(frozen=True, eq=False)
class Trial:
    """A trial that has ended.

    Args:
        number: Its number.
        settings: What was tried, by dotted key.
        accuracy: On held-out given labels, or on clean labels if there are some; None if the
            trial was stopped early.
        fitted: Part of the training rows that it predicts as labelled, at its best epoch.
        epoch: Its best epoch.
        is_hit: Whether each held-out row was predicted as labelled, if that was kept.
        num_rows: Rows that the accuracy was measured on.
    """

    number: int
    settings: Mapping[str, Any]
    accuracy: float | None
    fitted: float | None = None
    epoch: float | None = None
    is_hit: NDArray[np.bool_] | None = None
    num_rows: int = 0

    @property
    def status(self) -> str:
        """``"finished"``, or ``"stopped early"`` because it fell behind the others."""
        return "stopped early" if self.accuracy is None else "finished"

    @property
    def memorised(self) -> float:
        """How much larger its share of predicted training labels is than of held-out ones."""
        if self.fitted is None or self.accuracy is None:
            return 0.0
        return max(0.0, self.fitted - self.accuracy)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a search.

    Args:
        settings: The chosen settings by dotted key, such as ``method.arguments.T``.
        command: The command that trains with them, or the call, if the rows are from Python.
        chosen: The trial they are from.
        best: The trial with the highest accuracy.
        standard_error: Of the best accuracy, as half of Wilson's interval of one standard
            deviation.
        shrinkage: By how much differences between settings are smaller on given labels than on
            true ones, in (0, 1]; 1 with clean labels.
        noise_rate: Share of wrong labels: that of the noise that was added, if it follows from its
            rate, or else the most it can be by the held-out labels that the best trial does not
            predict.
        is_rate_known: Whether it is that of the noise that was added.
        is_clean: Whether accuracies are on clean labels.
        trials: All that ended, by number.
        folder: Where the runs are.
        page: The page about it.
    """

    settings: dict[str, Any]
    command: str
    chosen: Trial
    best: Trial
    standard_error: float
    shrinkage: float
    noise_rate: float
    is_rate_known: bool
    is_clean: bool
    trials: tuple[Trial, ...]
    folder: Path
    page: Path

    def lines(self) -> list[str]:
        """The result in words, a line each."""
        assert self.best.accuracy is not None
        kind = "clean validation labels" if self.is_clean else "held-out given labels"
        low, high = wilson(self.best.accuracy, self.best.num_rows)
        lines = [
            f"best: {self.best.accuracy:.1%} of {self.best.num_rows} {kind}, standard error "
            f"{100 * self.standard_error:.1f} points, 95% interval {low:.1%} to {high:.1%}"
        ]
        if not self.is_clean:
            limit, least = ("", "") if self.is_rate_known else ("at most ", " or more")
            lines.append(
                f"with {limit}{self.noise_rate:.0%} wrong labels, differences show at "
                f"{self.shrinkage:.2f} of their true size{least} (1 - C r / (C - 1)); the ranking "
                "is exact only under uniform noise"
            )
        if self.chosen is not self.best and self.chosen.number == _FIRST:
            lines.append(
                "chosen: the first trial, which has the defaults; the best one is not better by "
                "more than a standard error"
            )
        elif self.chosen is not self.best:
            lines.append(
                f"chosen: trial {self.chosen.number}, which cannot be told from the best and has "
                f"memorised less: it predicts {100 * self.chosen.memorised:.1f} points more of the "
                f"training labels than of the held-out ones, the best one "
                f"{100 * self.best.memorised:.1f}"
            )
        return lines


def shrinkage(noise_rate: float, num_classes: int) -> float:
    """How much of a difference in accuracy remains when it is measured on noisy labels.

    Formula, for uniform noise:

        accuracy on given labels = (1 - r) a + r (1 - a) / (C - 1)
        differences shrink by 1 - C r / (C - 1)

    Examples:
        >>> round(shrinkage(0.4, 10), 2), round(shrinkage(0.8, 10), 2)
        (0.56, 0.11)
    """
    return max(0.0, 1 - num_classes * noise_rate / (num_classes - 1))


def choose(trials: Sequence[Trial], *, is_clean: bool) -> Trial:
    """Chooses a trial.

    With clean labels it is the best one. Without, every trial whose accuracy is within a standard
    error of the best counts as equally good. The first trial, which has the defaults, is chosen if
    it is one of these: without clean labels a search must show more than chance. Otherwise it is
    the one with the highest accuracy minus memorised share. The standard error is that of the
    difference on the same held-out rows, sqrt(d) / n with d rows on which the two disagree.

    A network that memorises nothing predicts the same share of training labels as of held-out
    ones, right and wrong labels alike; what it predicts beyond that is memorised. A network that
    has learned little has also memorised little, so the share of training labels that it predicts
    would not do.

    Examples:
        >>> trials = [Trial(0, {}, 0.40, fitted=0.4, num_rows=400),
        ...           Trial(1, {}, 0.60, fitted=0.9, num_rows=400),
        ...           Trial(2, {}, 0.59, fitted=0.7, num_rows=400)]
        >>> choose(trials, is_clean=False).number, choose(trials, is_clean=True).number
        (2, 1)
    """
    known = [each for each in trials if each.accuracy is not None]
    best = max(known, key=lambda each: (each.accuracy or 0.0, -each.number))
    if is_clean:
        return best
    close = [
        each
        for each in known
        if (best.accuracy or 0.0) - (each.accuracy or 0.0) <= _error(best, each)
    ]
    first = next((each for each in close if each.number == _FIRST), None)
    return first or max(
        close, key=lambda each: ((each.accuracy or 0.0) - each.memorised, -each.number)
    )


def standard_error(accuracy: float, num_rows: int) -> float:
    """Standard error of an accuracy measured on this number of rows, not 0 if all are right.

    It is half of Wilson's interval of one standard deviation.

    Examples:
        >>> round(standard_error(0.5, 100), 3), round(standard_error(1.0, 20), 3)
        (0.05, 0.024)
    """
    low, high = wilson(accuracy, num_rows, z=1.0)
    return (high - low) / 2


def _error(best: Trial, other: Trial) -> float:
    if best.is_hit is None or other.is_hit is None:
        return standard_error(best.accuracy or 0.0, best.num_rows)
    return math.sqrt(int((best.is_hit != other.is_hit).sum())) / len(best.is_hit)


def conclude(
    ended: "Sequence[FrozenTrial]",
    *,
    num_failed: int,
    base: Config,
    space: Callable[[Mapping[str, Any]], dict[str, Any]],
    folder: Path,
    num_classes: int,
    clean_rows: int | None,
) -> Outcome:
    """Chooses, and writes ``result.json`` and the page.

    Args:
        ended: Trials that finished or were stopped early.
        num_failed: Trials that failed.
        base: Settings that all trials share.
        space: Translates the parameters of a trial into settings.
        folder: Folder of the search.
        num_classes: Number of classes.
        clean_rows: Number of rows with clean labels, if accuracy was measured on these.

    Raises:
        ImaeError: If no trial finished.
    """
    trials = (_trial(each, space(each.params), clean_rows) for each in ended)
    tried = tuple(sorted(trials, key=lambda each: each.number))
    if not any(each.accuracy is not None for each in tried):
        why = f"{num_failed} failed; remove the cause" if num_failed else "give more time"
        raise ImaeError(f"no trial has finished; {why}, the same command continues")
    is_clean = clean_rows is not None
    chosen = choose(tried, is_clean=is_clean)
    best = choose(tried, is_clean=True)
    assert best.accuracy is not None
    known_rate = added_rate(base, num_classes)
    rate = noise_rate(best, is_clean=is_clean) if known_rate is None else known_rate
    outcome = Outcome(
        settings=dict(chosen.settings),
        command=train_command(base, chosen.settings),
        chosen=chosen,
        best=best,
        standard_error=standard_error(best.accuracy, best.num_rows),
        shrinkage=1.0 if is_clean else shrinkage(rate, num_classes),
        noise_rate=rate,
        is_rate_known=known_rate is not None,
        is_clean=is_clean,
        trials=tried,
        folder=folder,
        page=folder / "tune.html",
    )
    days = [each.datetime_start.date().isoformat() for each in ended if each.datetime_start]
    write_page(outcome, num_failed, data=base.data.name, date=max(days, default=None))
    return outcome


def _trial(trial: "FrozenTrial", settings: dict[str, Any], clean_rows: int | None) -> Trial:
    attributes = trial.user_attrs
    number, hits = attributes.get("num_held_out") or 0, attributes.get("hits")
    is_hit = None
    if hits is not None and clean_rows is None:
        packed = np.frombuffer(base64.b64decode(hits), np.uint8)
        is_hit = np.unpackbits(packed, count=number).astype(bool)
    is_complete = trial.state.name == "COMPLETE"
    return Trial(
        first_number(trial),
        settings,
        trial.value if is_complete else None,
        attributes.get("fitted"),
        attributes.get("epoch"),
        is_hit,
        number if clean_rows is None else clean_rows,
    )


def added_rate(base: Config, num_classes: int) -> float | None:
    """The share of labels that added noise makes wrong, if that follows from its rate.

    Examples:
        >>> base = build_config({"data": {"name": "digits"}, "noise": "uniform:0.4"})
        >>> round(added_rate(base, 10), 2)
        0.36
    """
    if base.noise is None:
        return None
    noise = parse(base.noise)
    if noise.kind == "uniform":  # a label that is drawn again may be the right one
        return noise.rate * (1 - 1 / num_classes)
    return noise.rate if noise.kind == "symmetric" else None


def noise_rate(best: Trial, *, is_clean: bool) -> float:
    """The most that the share of wrong labels can be, by the labels that are not predicted."""
    if is_clean or best.accuracy is None:
        return 0.0
    return 1 - wilson(best.accuracy, best.num_rows)[0]


def trial_config(base: Config, settings: Mapping[str, Any]) -> Config:
    """The settings of all trials with those of one, which has a method of its own."""
    content = with_values(base.model_dump(), {"method": {}, **settings})
    none = {key.removeprefix(_ARGUMENTS): None for key, value in settings.items() if value is None}
    content["method"]["arguments"] = {**content["method"].get("arguments", {}), **none}
    return build_config(content)


def train_command(base: Config, settings: Mapping[str, Any]) -> str:
    """The command that trains with these settings; of rows from Python, the call.

    Examples:
        >>> train_command(build_config({"data": {"name": "my data.csv"}, "train": {"epochs": 9}}),
        ...               {"method.arguments.T": 4.5})
        "imae train 'my data.csv' --T 4.5 --epochs 9"
    """
    config = trial_config(base, settings)
    default = _flat(build_config({"data": {"name": config.data.name}}).model_dump(mode="json"))
    changed = {
        key: value
        for key, value in _flat(config.model_dump(mode="json")).items()
        if key != "out" and (value is not None or key.startswith(_ARGUMENTS))
        if value != default.get(key) or key not in default
    }
    if changed.pop("data.from_python", False):
        return f"imae.train.train({with_values({}, changed)}, data=...)"
    words = ["imae", "train", shlex.quote(config.data.name)]
    for key, value in changed.items():
        text = _as_text(key, value)
        if key in _OPTIONS and value is not None:
            words += [_OPTIONS[key], shlex.quote(text)]
        else:
            words += ["--set", shlex.quote(f"{key}={text}")]
    return " ".join(words)


def _as_text(key: str, value: Any) -> str:
    """A setting as ``--set`` reads it."""
    if isinstance(value, list):
        has_type = not key.startswith((_ARGUMENTS, "model.arguments.", "data.options."))
        return ",".join(map(str, value)) if has_type else json.dumps(value)
    return "none" if value is None else str(value)


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


_SHORT = {
    "method.name": "loss",
    "method.arguments.T": "T",
    "method.arguments.cap": "cap",
    "method.arguments.q": "q",
    "optimizer.lr": "learning rate",
}
_BY_FACTORS = ("optimizer.lr",)  # searched by its logarithm, and drawn by it


def write_page(outcome: "Outcome", num_failed: int, *, data: str, date: str | None) -> None:
    """Writes the result and the page, each completely or not at all.

    Args:
        outcome: What was found.
        num_failed: Trials that failed.
        data: Name of the data, or its path.
        date: Day of the last trial, if it is known.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    environment = build_environment("imae.tune", "imae.report")
    page = environment.get_template("tune.html").render(
        policy=policy(environment, styles=("page.css", "tune.css"), scripts=()),
        chart=chart,
        outcome=outcome,
        data=Path(data).name or data,
        date=date,
        measured_on="clean labels" if outcome.is_clean else "held-out given labels",
        num_stopped=sum(each.accuracy is None for each in outcome.trials),
        num_failed=num_failed,
        columns=_columns(outcome),
        short=short,
        ranked=sorted(outcome.trials, key=lambda each: (-(each.accuracy or 0), each.number)),
        drawn=_scatters(outcome),
    )
    content = {
        "settings": outcome.settings,
        "command": outcome.command,
        "trial": outcome.chosen.number,
        "accuracy": outcome.chosen.accuracy,
        "measured_on": "clean labels" if outcome.is_clean else "held-out given labels",
        "best": {"trial": outcome.best.number, "accuracy": outcome.best.accuracy},
        "standard_error": outcome.standard_error,
        "shrinkage": outcome.shrinkage,
        "noise_rate": outcome.noise_rate,
        "trials": [
            {
                "trial": each.number,
                "settings": dict(each.settings),
                "status": each.status,
                "accuracy": each.accuracy,
                "fitted": each.fitted,
                "epoch": each.epoch,
            }
            for each in outcome.trials
        ],
        "failed": num_failed,
    }
    with whole_file(outcome.folder / "result.json") as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")
    with whole_file(outcome.page) as file:
        file.write(str(page).encode())


def short(value: Any) -> str:
    """A setting as short text.

    Examples:
        >>> short(0.30000000000000004), short("auto")
        ('0.3', 'auto')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def setting_words(settings: Mapping[str, Any]) -> str:
    """What was tried, in one line.

    Examples:
        >>> setting_words({"method.name": "gce", "method.arguments.q": 0.7, "optimizer.lr": 0.05})
        'loss gce, q 0.7, learning rate 0.05'
    """
    return ", ".join(f"{_SHORT.get(key, key)} {short(value)}" for key, value in settings.items())


def _columns(outcome: "Outcome") -> dict[str, str]:
    """Headings of the settings that differ between trials, by their key."""
    varied = {}
    for key, heading in _SHORT.items():
        if len({short(each.settings.get(key)) for each in outcome.trials}) > 1:
            varied[key] = heading
    return varied


def _scatters(outcome: "Outcome") -> list[dict[str, Any]]:
    """Accuracy against each setting that is a number; a lone chart for wide screens too."""
    points = {key: _points(outcome, key) for key in _SHORT}
    varied = [key for key, known in points.items() if len({x for x, _, _ in known}) > 1]
    widths = (WIDTH, WIDE) if len(varied) == 1 else (WIDTH,)
    return [
        {
            "title": f"Accuracy (%) by {_SHORT[key]}",
            "label": _SHORT[key],
            "sizes": [
                _scatter(outcome, points[key], width, is_log=key in _BY_FACTORS) for width in widths
            ],
        }
        for key in varied
    ]


def _points(outcome: "Outcome", key: str) -> list[tuple[float, float, Trial]]:
    return [
        (float(each.settings[key]), 100 * each.accuracy, each)
        for each in outcome.trials
        if each.accuracy is not None and isinstance(each.settings.get(key), float)
    ]


def _scatter(
    outcome: "Outcome",
    points: Sequence[tuple[float, float, Trial]],
    width: int,
    *,
    is_log: bool,
) -> dict[str, Any]:
    """The places of trials in a chart, away from its edges."""
    xs = [x for x, _, _ in points]
    low, high = min(xs), max(xs)
    right = width - (WIDTH - RIGHT)
    if is_log:
        room = (high / low) ** 0.05
        low, high = low / room, high * room
        x = Axis(low, high, LEFT, right, log_ticks(low, high), scale=math.log)
    else:
        room = 0.05 * (high - low)
        low, high = low - room, high + room
        x = Axis(low, high, LEFT, right, ticks_between(low, high))
    y = round_axis([height for _, height, _ in points], (0, 100))
    return {
        "width": width,
        "x": x,
        "y": y,
        "points": [
            (
                x.place(at),
                y.place(height),
                each is outcome.chosen,
                f"trial {each.number}, {setting_words(each.settings)}: {height:.1f}%",
            )
            for at, height, each in points
        ],
    }
