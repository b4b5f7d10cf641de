"""What makes IMAE stable: the printed formula, and what it may leave out."""

from imae.recipes.protocols import CIFAR10, SHORT_RATES, budgeted, short
from imae.recipes.recipe import Cell, Recipe, Settings, merged

_SHORT_ROWS = 5000

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
    "saturated-bounded": (
        "weight 0 from margin 16 on, logits of norm 5 at most",
        {"window_high": 16.0, "bound": 5.0},
    ),
    "normalised-saturated-bounded": (
        "all three",
        {"normalize": "batch", "window_high": 16.0, "bound": 5.0},
    ),
    # Other places of the edge and of the bound.
    "normalised-saturated-8": (
        "mean weight 1, weight 0 from margin 8 on",
        {"normalize": "batch", "window_high": 8.0},
    ),
    "normalised-saturated-4": (
        "mean weight 1, weight 0 from margin 4 on",
        {"normalize": "batch", "window_high": 4.0},
    ),
    "normalised-bounded-16": (
        "mean weight 1, logits of norm 16 at most",
        {"normalize": "batch", "bound": 16.0},
    ),
    "normalised-bounded-8": (
        "mean weight 1, logits of norm 8 at most",
        {"normalize": "batch", "bound": 8.0},
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
        "Not in the paper; what it prints for IMAE stands in the recipe cifar10. The length of the "
        "schedule is tried with `--budget paper --set train.steps=N --set schedule.at=M,M`."
    ),
)
