"""CIFAR-100 with two classes of every coarse class traded for each other."""

from imae.recipes.budgets import budgeted
from imae.recipes.noise_grid import noise_grid
from imae.recipes.protocols import CIFAR100, SHORT_RATES, short
from imae.recipes.recipe import Cell, Recipe

_RATES = (20, 30, 40)
_LOSSES = (
    "cce",
    "mae",
    "gce",
    "imae",
    "imae_stable",
    "sl",
    "label_smoothing",
    "bootstrap_hard",
    "forward",
    "d2l",
)
_SHORT_ROWS = 5000


def cells(budget: str) -> tuple[Cell, ...]:
    """Each noise rate and method."""
    return budgeted(
        budget,
        noise_grid(
            CIFAR100,
            kind="cifar100_asymmetric",
            rates=_RATES,
            losses=_LOSSES,
            num_classes=100,
        ),
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


CIFAR100_ASYMMETRIC = Recipe(
    name="cifar100_asymmetric",
    title="CIFAR-100, ResNet-44, 20, 30, 40% asymmetric noise: all methods of the table",
    cells=cells,
    notes=(
        "`from SL` is a number that the paper takes over from that publication. The paper does not "
        "say whether its numbers are best or final: they stand beside the final ones, though those "
        "of the symmetric table are best ones. Nor does it print T: it is 8."
    ),
)
