"""The recipes that can be asked for by name; a table is imported when it is asked for."""

from dataclasses import replace
from typing import Any

from imae._registry import Catalog, Entry, Imported
from imae.recipes.recipe import Recipe

_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"


def _entry(name: str, place: str, title: str, reference: str = "") -> Entry[Recipe]:
    def build() -> Recipe:
        found: Any = Imported(f"imae.recipes.tables.{place}").find()
        recipe: Recipe = replace(found, title=title)
        return recipe

    return Entry(name, build, title, reference)


RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    (
        _entry(
            "weights",
            "weights:WEIGHTS",
            "weight curves and variances, IMAE for T = 16 to 0, the loss by integral (no training)",
            _PAPER,
        ),
        _entry(
            "cifar10",
            "cifar10:CIFAR10_RECIPE",
            "CIFAR-10, ResNet-20 and ResNet-56, noise 0, 40 and 80%: best, final, subsets, hybrid",
            _PAPER,
        ),
        _entry(
            "cifar100_symmetric",
            "cifar100:CIFAR100_SYMMETRIC",
            "CIFAR-100, ResNet-44, clean and 20, 40, 60% symmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "cifar100_asymmetric",
            "cifar100:CIFAR100_ASYMMETRIC",
            "CIFAR-100, ResNet-44, 20, 30, 40% asymmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "clothing1m",
            "clothing1m:CLOTHING1M",
            "Clothing1M, ResNet-50 from ImageNet weights: all methods of the table",
            _PAPER,
        ),
        _entry(
            "mars",
            "mars:MARS",
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
            "cifar10:OPTIMISERS",
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
            "cifar_n:CIFAR_N",
            "CIFAR-10N and CIFAR-100N: human labels, every method",
            "labels: Wei et al., Learning with noisy labels revisited, ICLR 2022",
        ),
        _entry(
            "cnn8",
            "cifar10:CNN8",
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
            "unseen_classes:UNSEEN_CLASSES",
            "CIFAR-100: train on 50 classes at 40% noise, retrieve among the 50 others",
        ),
    ),
)
