"""What makes IMAE stable: the printed formula and what may be missing in print."""

from imae.recipes.budgets import budgeted
from imae.recipes.protocols import CIFAR10, SHORT_RATES, short
from imae.recipes.published import published
from imae.recipes.recipe import Cell, Recipe, Settings, merged

_SHORT_ROWS = 5000
_PRINTED = published("cifar10", "resnet20-40-imae")

_VARIANTS: dict[str, tuple[str, Settings]] = {
    "printed": ("as printed", {}),
    "normalised": ("mean weight of the batch 1", {"normalize": "batch"}),
    "saturated": ("weight 0 from margin 16 on", {"window_high": 16.0}),
    "bounded": ("logits of norm 5 at most", {"bound": 5.0}),
    "normalised-saturated": (
        "mean weight 1, weight 0 from margin 16 on",
        {"normalize": "batch", "window_high": 16.0},
    ),
    "normalised-bounded": (
        "mean weight 1, logits of norm 5 at most",
        {"normalize": "batch", "bound": 5.0},
    ),
}


def cells(budget: str) -> tuple[Cell, ...]:
    """Each way to make it stable."""
    return budgeted(
        budget,
        [
            Cell(
                name=name,
                columns={"IMAE, T = 8": heading},
                settings=merged(
                    CIFAR10,
                    {"model": {"name": "resnet20"}, "noise": "symmetric:0.4"},
                    {"method": {"name": "imae", "arguments": {"T": 8.0, **arguments}}},
                ),
            )
            for name, (heading, arguments) in _VARIANTS.items()
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


STABILITY = Recipe(
    name="stability",
    title="CIFAR-10 at 40% noise, ResNet-20: what stabilises IMAE",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid"),
    notes=(
        "Not in the paper, whose IMAE has "
        f"{', '.join(f'{name} {value}' for name, value in _PRINTED.items())}."
    ),
)
