"""CIFAR-10 under symmetric noise: the paper's analysis of CCE, MAE and IMAE."""

from imae.methods.catalog import METHODS
from imae.recipes.budgets import budgeted
from imae.recipes.losses import method, title
from imae.recipes.protocols import CIFAR10, SHORT_RATES, short
from imae.recipes.recipe import Cell, Recipe, merged

_NETWORKS = {"resnet20": "ResNet-20", "resnet56": "ResNet-56"}
_RATES = (0, 40, 80)
_LOSSES = ("cce", "mae", "imae", "gce", "sl", "imae_stable")
_SHORT_ROWS = 5000


def cells(budget: str) -> tuple[Cell, ...]:
    """Each network, noise rate and loss; ResNet-20 at 40% with every method."""
    return budgeted(
        budget,
        [
            _cell(network, rate, loss)
            for network in _NETWORKS
            for rate in _RATES
            for loss in _losses(network, rate)
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _losses(network: str, rate: int) -> tuple[str, ...]:
    has_all = (network, rate) == ("resnet20", 40)
    return tuple(dict.fromkeys((*_LOSSES, *METHODS.names()))) if has_all else _LOSSES


def _cell(network: str, rate: int, loss: str) -> Cell:
    return Cell(
        name=f"{network}-{rate}-{loss}",
        columns={"Network": _NETWORKS[network], "Noise": f"{rate}%", "Loss": title(loss)},
        settings=merged(
            CIFAR10,
            {"model": {"name": network}, "noise": f"symmetric:{rate / 100}"},
            method(loss, rate=rate / 100),
        ),
    )


CIFAR10_RECIPE = Recipe(
    name="cifar10",
    title="CIFAR-10, ResNet-20 and ResNet-56, noise 0, 40 and 80%: best, final, subsets, hybrid",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid"),
    notes=(
        "The 40% rows of ResNet-56 are the table of the paper's introduction; the figures are its "
        "training dynamics. The paper's table has CCE, MAE and IMAE alone. Of the other "
        "methods Co-teaching, Trimmed and Forward with a known rate are told how many labels are "
        "wrong, and L2RW sees ten true labels of each class."
    ),
)
