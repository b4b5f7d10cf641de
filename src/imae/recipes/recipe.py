"""A recipe: cells to train, the configuration of each, and what is made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from imae.report.settings import flatten, is_machine_setting
from imae.train import Config, build_config

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
        cells: The cells of a budget.
        measures: What the table shows of each: names of columns of ``imae.records.measures``.
        notes: What a reader of the table must know.
        budget_notes: What holds for only one budget, by its name.
        must_set: Settings without which the paper's budget is not the paper's.
        finish: Makes further files in the folder from the outcomes; gives their paths.
        title: One line for listings, which the catalog fills in.
    """

    name: str
    cells: Callable[[str], tuple[Cell, ...]]
    measures: tuple[str, ...] = ("best", "final")
    notes: str = ""
    budget_notes: Mapping[str, str] = field(default_factory=dict)
    must_set: tuple[str, ...] = ()
    finish: Callable[[Path, Sequence["Outcome"]], list[Path]] | None = None
    title: str = ""


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


_FILLED_IN = (
    "train.batch_size",
    "train.epochs",
    "model.name",
    "data.trusted",
    "method.arguments.num_classes",
)
_OPEN = (None, "null")


def cell_config(
    cell: Cell, variant: Variant, changed: Settings, *, seed: int | None = None
) -> Config:
    """What is trained for a cell under a variant.

    Args:
        cell: The cell.
        variant: One of its variants.
        changed: Laid over the settings of both.
        seed: Seed of the run; that of the settings if None.

    Raises:
        ArgumentError: If a setting cannot be used.
    """
    content = merged(cell.settings, variant.settings, changed)
    return build_config(content if seed is None else {**content, "seed": seed})


def other_setting(config: Config, stored: Mapping[str, Any]) -> str | None:
    """The first setting in which a stored run differs from a configuration, in words, or None.

    Args:
        config: What the run should have been.
        stored: Settings that the run wrote down, with all that was open filled in.

    Raises:
        ArgumentError: If the stored settings cannot be used at all.
    """
    # Read as a configuration, so that a setting younger than the run has its default.
    found, wanted = _leaves(build_config(stored)), _leaves(config)
    for key in dict.fromkeys((*wanted, *found)):
        is_filled_in = key in _FILLED_IN and wanted.get(key) in _OPEN
        if wanted.get(key) != found.get(key) and not is_filled_in and not is_machine_setting(key):
            return f"{key}={found.get(key)}, not {wanted.get(key)}"
    return None


def _leaves(config: Config) -> dict[str, str]:
    flat = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if value != "{}"}  # a section without keys
