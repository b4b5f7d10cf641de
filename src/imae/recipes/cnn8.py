"""CIFAR-10 under the protocol that most robust losses are compared with."""

from imae.recipes.budgets import budgeted
from imae.recipes.noise_grid import noise_grid
from imae.recipes.protocols import short
from imae.recipes.recipe import Cell, Recipe, Settings

_RATES = (0, 20, 40, 60, 80)
_LOSSES = ("cce", "mae", "gce", "sl", "nce_mae", "nce_rce", "imae", "imae_stable")
_SHORT_ROWS = 5000
_SHORT_RATES = (0.05, 0.01)

_SETTINGS: Settings = {
    "seed": 123,
    "data": {"name": "cifar10", "hold_out": 0.0},
    "model": {"name": "cnn8"},
    "train": {"epochs": 120, "batch_size": 128, "clip": 5.0},
    "optimizer": {"name": "momentum", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4},
    "schedule": {"name": "cosine"},
    "machine": {"channels_last": True},
}


def cells(budget: str) -> tuple[Cell, ...]:
    """Each noise rate and loss."""
    return budgeted(
        budget,
        noise_grid(_SETTINGS, kind="symmetric", rates=_RATES, losses=_LOSSES),
        short=short(_SHORT_ROWS),
        rates=_SHORT_RATES,
    )


CNN8 = Recipe(
    name="cnn8",
    title="CIFAR-10, the 8-layer CNN protocol of the robust-loss literature",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid"),
    notes=(
        "Not in the paper: 120 epochs, rate 0.01, cosine, weight decay 1e-4, gradients clipped "
        "at 5."
    ),
)
