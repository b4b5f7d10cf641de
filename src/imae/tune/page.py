"""The files that a search ends with: ``result.json`` and a page that needs no network."""

import json
from typing import TYPE_CHECKING, Any

from imae.records.files import whole_file
from imae.report import chart
from imae.report.chart import Axis, ticks_between
from imae.report.page import build_environment, policy

if TYPE_CHECKING:
    from imae.tune.outcome import Outcome, Trial

_SHORT = {
    "method.name": "loss",
    "method.arguments.T": "T",
    "method.arguments.cap": "cap",
    "method.arguments.q": "q",
    "optimizer.lr": "learning rate",
}


def write_page(outcome: "Outcome", num_failed: int) -> None:
    """Writes the result and the page, each whole or not at all.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    environment = build_environment("imae.tune", "imae.report")
    page = environment.get_template("tune.html").render(
        policy=policy(environment, styles=("page.css", "tune.css"), scripts=()),
        chart=chart,
        outcome=outcome,
        num_failed=num_failed,
        columns=_columns(outcome),
        short=short,
        ranked=sorted(outcome.trials, key=lambda each: (-(each.accuracy or 0), each.number)),
        drawn=[each for each in map(lambda key: _scatter(outcome, key), _SHORT) if each],
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


def _columns(outcome: "Outcome") -> dict[str, str]:
    """Headings of the settings that differ between trials, by their key."""
    varied = {}
    for key, heading in _SHORT.items():
        if len({short(each.settings.get(key)) for each in outcome.trials}) > 1:
            varied[key] = heading
    return varied


def _scatter(outcome: "Outcome", key: str) -> dict[str, Any] | None:
    """Accuracy against a setting that is a number, in places of the report's charts."""
    known: list[tuple[float, float, Trial]] = [
        (float(each.settings[key]), 100 * each.accuracy, each)
        for each in outcome.trials
        if each.accuracy is not None and isinstance(each.settings.get(key), float)
    ]
    if len({x for x, _, _ in known}) < 2:
        return None
    xs, ys = [x for x, _, _ in known], [y for _, y, _ in known]
    low, high = min(ys), max(max(ys), min(ys) + 1)
    x = Axis(min(xs), max(xs), chart.LEFT, chart.RIGHT, ticks_between(min(xs), max(xs)))
    y = Axis(low, high, chart.BOTTOM, chart.TOP, ticks_between(low, high))
    return {
        "title": f"Accuracy (%) by {_SHORT[key]}",
        "label": _SHORT[key],
        "x": x,
        "y": y,
        "points": [
            (x.place(at), y.place(height), each is outcome.chosen, f"trial {each.number}")
            for at, height, each in known
        ],
    }
