"""The recipes that can be asked for by name."""

from imae._registry import Catalog, Entry
from imae.recipes.abnormal_examples import ABNORMAL_EXAMPLES
from imae.recipes.cifar10 import CIFAR10_RECIPE
from imae.recipes.cifar100_asymmetric import CIFAR100_ASYMMETRIC
from imae.recipes.cifar100_symmetric import CIFAR100_SYMMETRIC
from imae.recipes.cifar_n import CIFAR_N
from imae.recipes.clothing1m import CLOTHING1M
from imae.recipes.cnn8 import CNN8
from imae.recipes.optimisers import OPTIMISERS
from imae.recipes.recipe import Recipe
from imae.recipes.stability import STABILITY
from imae.recipes.t_ablation import T_ABLATION
from imae.recipes.weights import WEIGHTS

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
                T_ABLATION,
                OPTIMISERS,
                ABNORMAL_EXAMPLES,
            )
        ),
        _entry(CIFAR_N, "labels: Wei et al., Learning with noisy labels revisited, ICLR 2022"),
        _entry(CNN8, "protocol: Ma et al., Normalized loss functions, ICML 2020"),
        _entry(STABILITY),
    ),
)
