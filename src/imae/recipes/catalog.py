"""The recipes that can be asked for by name."""

from imae._registry import Catalog, Entry
from imae.recipes.recipe import Recipe
from imae.recipes.tables.abnormal_examples import ABNORMAL_EXAMPLES
from imae.recipes.tables.cifar10 import CIFAR10_RECIPE, CNN8, OPTIMISERS
from imae.recipes.tables.cifar100 import CIFAR100_ASYMMETRIC, CIFAR100_SYMMETRIC
from imae.recipes.tables.cifar_n import CIFAR_N
from imae.recipes.tables.clothing1m import CLOTHING1M
from imae.recipes.tables.imae_settings import STABILITY, T_ABLATION
from imae.recipes.tables.mars import MARS
from imae.recipes.tables.unseen_classes import UNSEEN_CLASSES
from imae.recipes.tables.weights import WEIGHTS

_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"


def _entry(recipe: Recipe, reference: str = "") -> Entry[Recipe]:
    return Entry(recipe.name, lambda: recipe, recipe.title, reference)


RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    (
        *(
            _entry(recipe, _PAPER)
            for recipe in (
                WEIGHTS,
                CIFAR10_RECIPE,
                CIFAR100_SYMMETRIC,
                CIFAR100_ASYMMETRIC,
                CLOTHING1M,
                MARS,
                T_ABLATION,
                OPTIMISERS,
                ABNORMAL_EXAMPLES,
            )
        ),
        _entry(CIFAR_N, "labels: Wei et al., Learning with noisy labels revisited, ICLR 2022"),
        _entry(CNN8, "protocol: Ma et al., Normalized loss functions, ICML 2020"),
        _entry(STABILITY),
        _entry(UNSEEN_CLASSES),
    ),
)
