"""The settings of runs as plain text: what they share and where they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from imae.report.read import plain_text

# Where and how fast a run was done; its numbers do not depend on it.
_MACHINE = ("out", "log", "data.root", "data.workers", "machine.")
_PRECISION = "machine.precision"  # but on this they do


def is_machine_setting(key: str) -> bool:
    """Whether a setting, by its dotted name, is about the machine and not about the numbers.

    Examples:
        >>> is_machine_setting("machine.threads"), is_machine_setting("machine.precision")
        (True, False)
    """
    return key.startswith(_MACHINE) and key != _PRECISION


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of a nested configuration as text, by dotted name.

    Examples:
        >>> flatten({"train": {"epochs": 4, "nesterov": True}, "seed": 1})
        {'train.epochs': '4', 'train.nesterov': 'true', 'seed': '1'}
    """
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = plain_text(value)
    return flat


def shared(trees: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The values that all the configurations have in common, by dotted name."""
    first, *others = map(flatten, trees)
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }


def differing(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of every setting that differs, apart from the seed and the machine.

    A setting that some of the configurations do not have, as those of another version, is compared
    between the others.

    Examples:
        >>> differing([{"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 2}, {"lr": 0.1}])
        {'lr': ['0.1', '0.2']}
    """
    values: dict[str, dict[str, None]] = {}
    for tree in trees:
        for name, value in flatten(tree).items():
            values.setdefault(name, {})[value] = None
    return {
        name: list(found)
        for name, found in values.items()
        if len(found) > 1 and name != "seed" and not is_machine_setting(name)
    }
