"""The paper's numbers, from one data file."""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any


def published(recipe: str, cell: str) -> Mapping[str, float]:
    """What the paper prints for a cell, by measure; empty where it prints nothing.

    ``from X`` is a number that the paper takes over from the publication of X.

    Examples:
        >>> published("cifar10", "resnet20-40-imae")["final"]
        84.0
    """
    numbers: Mapping[str, float] = _content().get(recipe, {}).get("cells", {}).get(cell, {})
    return numbers


def published_table(recipe: str) -> str | None:
    """The caption of the paper's table, in short, or None if the recipe is not the paper's.

    Examples:
        >>> published_table("optimisers")[:40]
        'The results of algorithms using differen'
    """
    caption: str | None = _content().get(recipe, {}).get("table")
    return caption


def published_cells(recipe: str) -> tuple[str, ...]:
    """Names of the cells that the paper has numbers for."""
    return tuple(_content().get(recipe, {}).get("cells", {}))


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    text = (resources.files("imae.recipes") / "paper.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content
