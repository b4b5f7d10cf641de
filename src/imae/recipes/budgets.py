"""The paper's cells made smaller: what a laptop finishes, and what a test finishes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from imae._checks import check_choice
from imae.noise.spec import parse
from imae.recipes.recipe import Cell, Settings, Variant, merged

BUDGETS: Mapping[str, str] = {
    "tiny": "a few cells on 300 digits for 2 epochs: shows that the recipe runs, and nothing else",
    "short": "a sample of the rows, few epochs: what two processor cores finish",
    "paper": "the settings of the paper",
}

_TINY: Settings = {
    "noise_map": None,
    "data": {"name": "digits", "rows": 300, "augment": False, "hold_out": 0.1},
    "model": {"name": "mlp"},
    "train": {
        "epochs": 2,
        "steps": None,
        "batch_size": 32,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
    "schedule": {"name": "constant"},
}
_REPLACED = ("data", "model", "schedule")
_TINY_CELLS = 4
_TINY_MAP = "1:7,7:1"


def budgeted(
    budget: str,
    cells: Sequence[Cell],
    *,
    short: Settings,
    rates: Sequence[float] = (),
) -> tuple[Cell, ...]:
    """The cells of a recipe, written at the paper's budget, at another.

    Args:
        budget: A name of ``BUDGETS``.
        cells: The cells at the paper's budget.
        short: What is laid over each for ``short``.
        rates: Learning rates that ``short`` tries for each cell, the same for all; none to keep
            what the cell has.

    Raises:
        ArgumentError: If there is no such budget.
    """
    check_choice("budget", budget, tuple(BUDGETS))
    if budget == "paper":
        return tuple(cells)
    if budget == "short":
        variants = tuple(Variant(f"lr={rate:g}", {"optimizer": {"lr": rate}}) for rate in rates)
        return tuple(
            replace(
                cell,
                settings=merged(cell.settings, short),
                variants=variants or cell.variants,
            )
            for cell in cells
        )
    return tuple(_tiny(cell) for cell in _few(cells))


def _few(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of several methods, each from another place of the table."""
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.settings["method"]["name"], []).append(cell)
    groups = list(by_method.values()) if len(by_method) > 1 else [[cell] for cell in cells]
    number = min(_TINY_CELLS, len(groups))
    spread = [groups[i * (len(groups) - 1) // max(1, number - 1)] for i in range(number)]
    return [group[(i + 1) % len(group)] for i, group in enumerate(spread)]


def _tiny(cell: Cell) -> Cell:
    noise = cell.settings.get("noise")
    changed: dict[str, Any] = {"noise": noise}
    if noise is not None and parse(noise).kind not in ("symmetric", "uniform"):
        # Kinds that belong to a data set become the same rate between two digits.
        changed = {"noise": f"pairs:{parse(noise).rate}", "noise_map": _TINY_MAP}
    # Data, network and schedule are replaced whole: their options belong to what they replace.
    kept = {key: value for key, value in cell.settings.items() if key not in _REPLACED}
    return replace(cell, settings=merged(kept, _TINY, changed))
