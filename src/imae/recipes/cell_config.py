"""The configuration of one run of a cell, and whether a stored run had it."""

from collections.abc import Mapping
from typing import Any

from imae.recipes.recipe import Cell, Settings, Variant, merged
from imae.report.settings import flatten
from imae.train import Config, build_config

# Where and how fast a run was done; its numbers do not hang on it.
_OF_THE_PLACE = ("out", "log", "data.root", "data.workers", "machine.")
_PRECISION = "machine.precision"  # but on this they do
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


def is_of_the_place(key: str) -> bool:
    """Whether a setting, by its dotted name, is about the machine and not about the numbers.

    Examples:
        >>> is_of_the_place("machine.threads"), is_of_the_place("machine.precision")
        (True, False)
    """
    return key.startswith(_OF_THE_PLACE) and key != _PRECISION


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
        if wanted.get(key) != found.get(key) and not is_filled_in and not is_of_the_place(key):
            return f"{key}={found.get(key)}, not {wanted.get(key)}"
    return None


def _leaves(config: Config) -> dict[str, str]:
    flat = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if value != "{}"}  # a section without keys
