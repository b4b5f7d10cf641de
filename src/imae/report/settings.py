"""Settings of runs, laid out flat: what they share and what sets them apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from imae.report.read import plain_text

_PLACE_OF_THE_RUN = ("out", "seed")  # differ between the runs of one recipe by their nature


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


def differences(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted names of what differs between the configurations, apart from seed and place."""
    common = shared(trees)
    names = dict.fromkeys(name for tree in trees for name in flatten(tree))
    return [name for name in names if name not in common and name not in _PLACE_OF_THE_RUN]
