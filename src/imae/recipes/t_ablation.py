"""IMAE under other values of T, on clean and on noisy labels, and T chosen on held-out labels."""

from collections.abc import Sequence
from pathlib import Path

from imae._files import whole_file
from imae.recipes.budgets import budgeted
from imae.recipes.losses import method, title
from imae.recipes.outcome import Outcome
from imae.recipes.protocols import CIFAR10, SHORT_RATES, short
from imae.recipes.recipe import Cell, Recipe, merged

_RATES = (40, 0)
_TEMPERATURES = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0)
_METHOD = "imae_stable"
_SHORT_ROWS = 5000


def cells(budget: str) -> tuple[Cell, ...]:
    """Each noise rate and T, of the printed and of the stable form, with CCE and MAE beside."""
    return budgeted(
        budget,
        [
            cell
            for rate in _RATES
            for cell in (
                *(_cell(rate, loss, None) for loss in ("cce", "mae")),
                *(_cell(rate, name, T) for name in ("imae", _METHOD) for T in _TEMPERATURES),
            )
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _cell(rate: int, loss: str, temperature: float | None) -> Cell:
    settings = merged(
        CIFAR10,
        {
            "data": {"hold_out": 0.1},
            "model": {"name": "resnet20"},
            "noise": f"symmetric:{rate / 100}",
        },
        method(loss, rate=rate / 100),
    )
    name = f"{rate}-{loss}"
    columns = {"Noise": f"{rate}%", "Loss": title(loss), "T": ""}
    if temperature is not None:
        settings = merged(settings, {"method": {"arguments": {"T": temperature}}})
        name, columns["T"] = f"{name}-{temperature:g}", f"{temperature:g}"
    return Cell(name, columns, settings)


def finish(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes which T the held-out given labels choose, and which one the test rows would."""
    lines = [
        "| Noise | Loss | T chosen on held-out given labels | its final test accuracy "
        "| best final test accuracy of any T | at T |",
        "|---|---|---|---|---|---|",
    ]
    for rate in _RATES:
        for loss in ("imae", _METHOD):
            group = [
                outcome
                for outcome in outcomes
                if outcome.cell.name.startswith(f"{rate}-{loss}-")
                and outcome.measure("held_out") is not None
                and outcome.measure("final") is not None
            ]
            if len(group) > 1:
                chosen = max(group, key=lambda each: _mean(each, "held_out"))
                best = max(group, key=lambda each: _mean(each, "final"))
                lines.append(
                    f"| {rate}% | {title(loss)} | {chosen.cell.columns['T']} "
                    f"| {100 * _mean(chosen, 'final'):.1f} | {100 * _mean(best, 'final'):.1f} "
                    f"| {best.cell.columns['T']} |"
                )
    path = folder / "chosen_T.md"
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return [path]


def _mean(outcome: Outcome, measure: str) -> float:
    summary = outcome.measure(measure)
    assert summary is not None
    return summary.mean


T_ABLATION = Recipe(
    name="t_ablation",
    title="CIFAR-10, ResNet-20, clean and 40%: each T, and T chosen on validation data",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid", "held_out"),
    notes=(
        "The paper shows these as curves without printed numbers, and chooses T on the intact "
        "training labels; here a tenth of the given labels is held out and T is chosen on them."
    ),
    finish=finish,
)
