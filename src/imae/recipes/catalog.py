"""The recipes by name, each imported when it is asked for, and the numbers the paper prints."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from imae._registry import Catalog, Entry, Imported

if TYPE_CHECKING:
    from imae.recipes.recipe import Recipe

_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"


def _entry(name: str, place: str, title: str, reference: str = "") -> "Entry[Recipe]":
    def build() -> "Recipe":
        found: Any = Imported(f"imae.recipes.tables.{place}").find()
        recipe: Recipe = replace(found, title=title)
        return recipe

    return Entry(name, build, title, reference)


RECIPES: "Catalog[Recipe]" = Catalog(
    "recipe",
    (
        _entry(
            "weights",
            "weights:WEIGHTS",
            "weight curves, variances, gradients, IMAE for T = 16 to 0, the loss by integral",
            _PAPER,
        ),
        _entry(
            "cifar10",
            "cifar:CIFAR10_RECIPE",
            "CIFAR-10, ResNet-20 and ResNet-56, noise 0, 40 and 80%: best, final, subsets, hybrid",
            _PAPER,
        ),
        _entry(
            "cifar100_symmetric",
            "cifar:CIFAR100_SYMMETRIC",
            "CIFAR-100, ResNet-44, clean and 20, 40, 60% symmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "cifar100_asymmetric",
            "cifar:CIFAR100_ASYMMETRIC",
            "CIFAR-100, ResNet-44, 20, 30, 40% asymmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "clothing1m",
            "clothing:CLOTHING1M",
            "Clothing1M, ResNet-50 from ImageNet weights: all methods of the table",
            _PAPER,
        ),
        _entry(
            "clothing_photos",
            "clothing:CLOTHING_PHOTOS",
            "a folder of clothing photos at 40% symmetric noise, frozen features: every method",
        ),
        _entry(
            "mars",
            "retrieval:MARS",
            "MARS, GoogLeNet V2: retrieval of people in video, CCE, MAE, GCE and IMAE",
            _PAPER,
        ),
        _entry(
            "t_ablation",
            "imae_settings:T_ABLATION",
            "CIFAR-10, ResNet-20, clean and 40%: each T, and T chosen on validation data",
            _PAPER,
        ),
        _entry(
            "optimisers",
            "cifar:OPTIMISERS",
            "CIFAR-10 at 40% noise, ResNet-56, six optimiser settings: CCE, MAE, GCE, IMAE",
            _PAPER,
        ),
        _entry(
            "abnormal_examples",
            "abnormal_examples:ABNORMAL_EXAMPLES",
            "a picture of abnormal training examples, found by the program itself",
            _PAPER,
        ),
        _entry(
            "cifar_n",
            "cifar:CIFAR_N",
            "CIFAR-10N and CIFAR-100N: human labels, every method",
            "labels: Wei et al., Learning with noisy labels revisited, ICLR 2022",
        ),
        _entry(
            "cnn8",
            "cifar:CNN8",
            "CIFAR-10, the 8-layer CNN protocol of the robust-loss literature",
            "protocol: Ma et al., Normalized loss functions, ICML 2020",
        ),
        _entry(
            "stability",
            "imae_settings:STABILITY",
            "CIFAR-10 at 40% noise, ResNet-20: what stabilises IMAE",
        ),
        _entry(
            "study",
            "study:STUDY",
            "T, cap and scale of IMAE with capped confidence, beside other losses",
        ),
        _entry(
            "unseen_classes",
            "retrieval:UNSEEN_CLASSES",
            "CIFAR-100: train on 50 classes at 40% noise, retrieve among the 50 others",
        ),
    ),
)


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
