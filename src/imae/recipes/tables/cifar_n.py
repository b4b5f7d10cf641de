"""CIFAR-10N and CIFAR-100N: labels that people gave."""

from imae.methods.catalog import METHODS
from imae.recipes.protocols import CIFAR10, CIFAR100, SHORT_RATES, budgeted, method, short, title
from imae.recipes.recipe import Cell, Recipe, merged

# Data set, heading, part of the labels that is wrong.
_LABELS = {
    "worst": ("cifar10n", "CIFAR-10N worst", 0.402),
    "aggregate": ("cifar10n", "CIFAR-10N aggregate", 0.09),
    "random1": ("cifar10n", "CIFAR-10N random 1", 0.172),
    "random2": ("cifar10n", "CIFAR-10N random 2", 0.181),
    "random3": ("cifar10n", "CIFAR-10N random 3", 0.176),
    "fine": ("cifar100n", "CIFAR-100N", 0.402),
}
_SHORT_ROWS = 5000


def cells(budget: str) -> tuple[Cell, ...]:
    """Each set of labels and method."""
    return budgeted(
        budget,
        [_cell(labels, loss) for labels in _LABELS for loss in METHODS.names()],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _cell(labels: str, loss: str) -> Cell:
    data, heading, rate = _LABELS[labels]
    is_fine = data == "cifar100n"
    options = {} if is_fine else {"variant": labels}
    return Cell(
        name=f"{labels}-{loss}",
        columns={"Labels": heading, "Method": title(loss)},
        settings=merged(
            CIFAR100 if is_fine else CIFAR10,
            {
                "data": {"name": data, "options": options},
                "model": {"name": "resnet44" if is_fine else "resnet20"},
            },
            method(loss, rate=rate, num_classes=100 if is_fine else 10),
        ),
    )


CIFAR_N = Recipe(
    name="cifar_n",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid"),
    notes=(
        "Not in the paper: real human mistakes instead of drawn ones. Co-teaching, Trimmed and "
        "Forward with a known rate are given how many labels are wrong, and L2RW sees ten true "
        "labels of each class."
    ),
)
