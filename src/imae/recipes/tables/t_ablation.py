"""IMAE under other values of T, on clean and on noisy labels, and T chosen on held-out labels."""

from collections.abc import Sequence
from pathlib import Path

from imae.recipes.outcome import Outcome
from imae.recipes.protocols import CIFAR10, SHORT_RATES, budgeted, method, short, title
from imae.recipes.recipe import Cell, Recipe, merged
from imae.records.files import whole_file

_RATES = (40, 0)
_T = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0)
_METHOD = "imae_stable"
_SHORT_ROWS = 5000
_CHOSEN_ON = {"held_out": "held-out given labels", "intact": "training rows, true labels"}


def cells(budget: str) -> tuple[Cell, ...]:
    """Each noise rate and T, of the printed and of the stable form, with CCE and MAE beside."""
    return budgeted(
        budget,
        [
            cell
            for rate in _RATES
            for cell in (
                *(_cell(rate, loss, None) for loss in ("cce", "mae")),
                *(_cell(rate, name, T) for name in ("imae", _METHOD) for T in _T),
            )
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _cell(rate: int, loss: str, T: float | None) -> Cell:
    settings = merged(
        CIFAR10,
        {
            "model": {"name": "resnet20"},
            "noise": f"symmetric:{rate / 100}",
        },
        method(loss, rate=rate / 100),
    )
    name = f"{rate}-{loss}"
    columns = {"Noise": f"{rate}%", "Loss": title(loss), "T": ""}
    if T is not None:
        settings = merged(settings, {"method": {"arguments": {"T": T}}})
        name, columns["T"] = f"{name}-{T:g}", f"{T:g}"
    return Cell(name, columns, settings)


def finish(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes which T each way of choosing it takes, and which one the test rows would."""
    lines = [
        "| Noise | Loss | T chosen by accuracy on | T | its final test accuracy "
        "| best final test accuracy of any T | at T |",
        "|---|---|---|---|---|---|---|",
    ]
    for rate in _RATES:
        for loss in ("imae", _METHOD):
            group = [each for each in outcomes if each.cell.name.startswith(f"{rate}-{loss}-")]
            for measure, words in _CHOSEN_ON.items():
                lines += _choice(f"| {rate}% | {title(loss)} | {words}", group, measure)
    path = folder / "chosen_T.md"
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return [path]


def _choice(begin: str, group: Sequence[Outcome], measure: str) -> list[str]:
    known = [
        outcome
        for outcome in group
        if outcome.measure(measure) is not None and outcome.measure("final") is not None
    ]
    if len(known) < 2:
        return []
    chosen = max(known, key=lambda each: _mean(each, measure))
    best = max(known, key=lambda each: _mean(each, "final"))
    return [
        f"{begin} | {chosen.cell.columns['T']} | {100 * _mean(chosen, 'final'):.1f} "
        f"| {100 * _mean(best, 'final'):.1f} | {best.cell.columns['T']} |"
    ]


def _mean(outcome: Outcome, measure: str) -> float:
    summary = outcome.measure(measure)
    assert summary is not None
    return summary.mean


T_ABLATION = Recipe(
    name="t_ablation",
    title="CIFAR-10, ResNet-20, clean and 40%: each T, and T chosen on validation data",
    cells=cells,
    measures=("best", "final", "train", "intact", "noisy", "clean", "held_out"),
    notes=(
        "The paper shows these as curves without printed numbers. It chooses T by the accuracy on "
        "the training rows under their true labels, which nobody has who needs to; at the short "
        "budget, or with `--set data.hold_out=0.1`, a tenth of the rows is held out and T is "
        "chosen on their given labels too."
    ),
    finish=finish,
)
