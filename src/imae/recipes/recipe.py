"""What a recipe is: cells, each of which is trained, and what is made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from imae.recipes.outcome import Outcome

Settings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Variant:
    """One of several settings that a cell tries.

    Args:
        label: Short text for folders and tables, such as ``lr=0.1``; empty for the only one.
        settings: What is laid over the settings of the cell.
    """

    label: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One entry of a table, trained under every seed.

    Args:
        name: Text for ``--only`` and for the folders.
        columns: What the table says of it, by heading.
        settings: Nested settings of a run, without its seed and folder.
        variants: Settings to choose from on the held-out given labels.
    """

    name: str
    columns: Mapping[str, str]
    settings: Settings
    variants: tuple[Variant, ...] = (Variant(),)


@dataclass(frozen=True)
class Recipe:
    """A table or figure that can be made again.

    Args:
        name: Key on the command line.
        title: One line for listings.
        cells: The cells of a budget.
        measures: What the table shows of each, by the names of ``imae.recipes.outcome``.
        notes: What a reader of the table must know.
        budget_notes: What holds for one budget alone, by its name.
        must_set: Settings without which the paper's budget is not the paper's.
        finish: Makes further files in the folder from the outcomes; gives their paths.
    """

    name: str
    title: str
    cells: Callable[[str], tuple[Cell, ...]]
    measures: tuple[str, ...] = ("best", "final")
    notes: str = ""
    budget_notes: Mapping[str, str] = field(default_factory=dict)
    must_set: tuple[str, ...] = ()
    finish: Callable[[Path, Sequence["Outcome"]], list[Path]] | None = None


def merged(*layers: Settings) -> dict[str, Any]:
    """Nested settings laid over one another; the last one counts.

    Examples:
        >>> merged({"train": {"epochs": 1, "clip": 5}}, {"train": {"epochs": 2}})
        {'train': {'epochs': 2, 'clip': 5}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            is_section = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if is_section else value
    return result
