"""Training settings of the paper and the literature, their smaller budgets, and method settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from imae.errors import check_choice
from imae.methods.catalog import METHODS
from imae.noise.catalog import parse
from imae.recipes.recipe import Cell, Settings, Variant, merged

# "SGD, weight decay 0.0001, momentum 0.9, batches of 128; the rate starts at 0.1 and is divided
# by 10 at 32k and 48k iterations; stop at 100k": CIFAR-10 in the paper. Seed 123 throughout.
CIFAR10: Settings = {
    "seed": 123,
    "data": {"name": "cifar10", "hold_out": 0.0},
    "train": {
        "steps": 100_000,
        "batch_size": 128,
        "evaluate_every": 1000,
        "checkpoint_every": 1000,
    },
    "optimizer": {"name": "momentum", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    "schedule": {"name": "steps", "at": (32_000, 48_000), "divide_by": 10.0},
    "machine": {"channels_last": True},
}

# The paper gives momentum, rate and weight decay, and for the rest refers to Wang et al.,
# "Symmetric cross entropy", ICCV 2019: 150 epochs, divided by 10 after 80 and 120. Batches of 128
# make 391 steps an epoch.
CIFAR100: Settings = {
    "seed": 123,
    "data": {"name": "cifar100", "hold_out": 0.0},
    "model": {"name": "resnet44"},
    "train": {
        "steps": 150 * 391,
        "batch_size": 128,
        "evaluate_every": 391,
        "checkpoint_every": 391,
    },
    "optimizer": {"name": "momentum", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
    "schedule": {"name": "steps", "at": (80 * 391, 120 * 391), "divide_by": 10.0},
    "machine": {"channels_last": True},
}

# docs/reproduce.md says how these were found.
_SHORT_EPOCHS = 20
SHORT_RATES = (0.1, 0.02)


def short(rows: int, *, batch_size: int = 64) -> Settings:
    """A sample of the rows without augmentation, so that few epochs are enough to memorise it.

    The learning rate falls along a cosine: divided by 10 as early as in the paper, it is too
    small for CCE to memorise anything in so few steps.

    Args:
        rows: Rows of the sample; a tenth of them is held out with their given labels.
        batch_size: Rows in a step.

    Examples:
        >>> short(5000)["train"]["evaluate_every"]    # four epochs
        284
    """
    steps_per_epoch = -(-(rows - rows // 10) // batch_size)
    content: dict[str, Any] = {
        "data": {"rows": rows, "augment": False, "hold_out": 0.1},
        "train": {
            "epochs": _SHORT_EPOCHS,
            "steps": None,
            "batch_size": batch_size,
            "evaluate_every": 4 * steps_per_epoch,
            "checkpoint_every": 4 * steps_per_epoch,
        },
        "schedule": {"name": "cosine", "at": (), "every": None},
    }
    return content


# A head on frozen features of all rows: on CIFAR a run takes a minute or two on one core, and CCE
# memorises the wrong labels in it. Features are computed once and shared by all runs.
FEATURES: Settings = {
    "data": {"rows": None, "features": "efficientnet_lite0", "hold_out": 0.1},
    "model": {"name": "mlp", "arguments": {"hidden": 512, "norm": "batch"}},
    "train": {
        "epochs": 12,
        "steps": None,
        "batch_size": 128,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
    "optimizer": {"name": "nesterov", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4},
    "schedule": {"name": "cosine", "at": (), "every": None},
    "machine": {"channels_last": False},
}


# Two processor cores cannot train a large network on photos or frames, but they can train a small
# one on frozen features.
SHORT_PHOTOS: Settings = {
    "data": {"rows": 20_000, "features": "efficientnet_lite0", "hold_out": 0.1},
    "model": {"name": "mlp"},
    "train": {
        "steps": None,
        "epochs": 40,
        "batch_size": 64,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
    "schedule": {"name": "cosine", "at": (), "every": None},
}


BUDGETS: Mapping[str, str] = {
    "tiny": (
        "a few cells on 300 digits for 2 epochs, unless a note says otherwise: shows that the "
        "recipe runs, and nothing else"
    ),
    "short": "a sample of the rows, few epochs: what two processor cores finish",
    "features": "a head on frozen features of all rows, 12 epochs, or 40 of small sets",
    "paper": "the settings of the paper",
}
SEEDS: Mapping[str, int] = {"tiny": 1, "short": 1, "features": 3, "paper": 1}  # by budget

_TINY: Settings = {
    "noise_map": None,
    "data": {"name": "digits", "rows": 300, "augment": False, "hold_out": 0.1},
    "model": {"name": "mlp"},
    "train": {
        "epochs": 2,
        "steps": None,
        "batch_size": 32,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
    "schedule": {"name": "constant"},
}
_REPLACED = ("data", "model", "schedule")
_TINY_CELLS = 4
_TINY_MAP = "1:7,7:1"


def budgeted(
    budget: str,
    cells: Sequence[Cell],
    *,
    short: Settings,
    rates: Sequence[float] = (),
    features: Settings = FEATURES,
) -> tuple[Cell, ...]:
    """Converts the cells of a recipe from the paper's budget to another.

    Args:
        budget: A name of ``BUDGETS``.
        cells: The cells at the paper's budget.
        short: Settings that override those of each cell for ``short``.
        rates: Learning rates that ``short`` tries for each cell, the same for all; empty to keep
            that of the cell.
        features: Settings that override those of each cell for ``features``.

    Raises:
        ArgumentError: If there is no such budget.
    """
    check_choice("budget", budget, tuple(BUDGETS))
    if budget == "paper":
        return tuple(cells)
    if budget == "features":
        return tuple(replace(cell, settings=merged(cell.settings, features)) for cell in cells)
    if budget == "short":
        variants = tuple(Variant(f"lr={rate:g}", {"optimizer": {"lr": rate}}) for rate in rates)
        return tuple(
            replace(
                cell,
                settings=merged(cell.settings, short),
                variants=variants or cell.variants,
            )
            for cell in cells
        )
    return tuple(_tiny(cell) for cell in _few(cells))


def _few(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of several methods, from different parts of the table."""
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.settings["method"]["name"], []).append(cell)
    is_varied = len(by_method) >= _TINY_CELLS
    groups = list(by_method.values()) if is_varied else [[cell] for cell in cells]
    number = min(_TINY_CELLS, len(groups))
    spread = [groups[i * (len(groups) - 1) // max(1, number - 1)] for i in range(number)]
    return [group[(i + 1) % len(group)] for i, group in enumerate(spread)]


def _tiny(cell: Cell) -> Cell:
    noise = cell.settings.get("noise")
    changed: dict[str, Any] = {"noise": noise}
    if noise is not None and parse(noise).kind not in ("symmetric", "uniform"):
        # Kinds that belong to a data set become the same rate between two digits.
        changed = {"noise": f"pairs:{parse(noise).rate}", "noise_map": _TINY_MAP}
    # Data, network and schedule are replaced whole: their options belong to what they replace.
    kept = {key: value for key, value in cell.settings.items() if key not in _REPLACED}
    return replace(cell, settings=merged(kept, _TINY, changed))


_CLEAN_T = 0.5
_NOISY_T = 8.0
# The paper prints no T for CIFAR-100. These are the T of the runs that the authors published with
# their code (the numbers in its folder names); for other rates, what they have for 20 and 40%.
_T_OF_CIFAR100: Mapping[float, float] = {0.0: 6.0, 0.6: 2.0}
# What the authors of a method set, where it is not the default here: the code of Wang et al.,
# "Symmetric cross entropy", of Liu et al., "Early-learning regularization", and of Ma et al.,
# "Normalized loss functions", whose MAE is 1 - p, half of what it is here; of Wang et al., "Joint
# asymmetric loss", and of Ye et al., "Active negative loss functions". Of DM it is a comment in
# the source of the paper, which has no beta.
_FOR_10_CLASSES: Mapping[str, Mapping[str, float]] = {
    "nce_mae": {"alpha": 1.0, "beta": 0.5},
}
_FOR_100_CLASSES: Mapping[str, Mapping[str, float]] = {
    "sl": {"alpha": 6.0, "beta": 0.1},
    "elr": {"beta": 0.9, "strength": 7.0},
    "nce_mae": {"alpha": 10.0, "beta": 0.5},
    "nce_rce": {"alpha": 10.0, "beta": 0.1},
    "dm": {"lam": 2.0},
    "jal": {"alpha": 5.0, "beta": 1.0, "a": 20.0},
    "anl": {"alpha": 10.0, "beta": 1.0, "delta": 5e-7},
}


def method(name: str, *, rate: float, num_classes: int = 10) -> Settings:
    """Settings of a method.

    IMAE has T = 8 with noise and 0.5 without, as in the paper; for 100 classes, for which the
    paper gives no T, 6 without noise, 2 at 60% and otherwise 8, as in the authors' code.

    Args:
        name: Name of the method.
        rate: Fraction of the labels that is wrong, which some methods need to know.
        num_classes: Classes of the data.

    Examples:
        >>> method("imae", rate=0)
        {'method': {'name': 'imae', 'arguments': {'T': 0.5}}}
        >>> method("co_teaching", rate=0.2)
        {'method': {'name': 'co_teaching', 'arguments': {'rate': 0.2}}}
        >>> method("sl", rate=0.4, num_classes=100)
        {'method': {'name': 'sl', 'arguments': {'alpha': 6.0, 'beta': 0.1}}}
    """
    set_by_authors = _FOR_100_CLASSES if num_classes == 100 else _FOR_10_CLASSES
    arguments: dict[str, Any] = dict(set_by_authors.get(name, {}))
    if name in ("imae", "imae_stable", "imae_authors"):
        of_few_classes = _NOISY_T if rate > 0 else _CLEAN_T
        is_large = num_classes == 100
        arguments["T"] = _T_OF_CIFAR100.get(rate, _NOISY_T) if is_large else of_few_classes
    elif name in ("co_teaching", "forward_symmetric"):
        arguments["rate"] = rate
    elif name == "trimmed":
        arguments["keep"] = 1 - rate
    return {"method": {"name": name, "arguments": arguments}}


def title(name: str) -> str:
    """The name of a method in a table."""
    return METHODS.find(name).title


def noise_grid(
    settings: Settings,
    *,
    kind: str,
    rates: Sequence[int],
    losses: Sequence[str],
    num_classes: int = 10,
    prefix: str = "",
) -> list[Cell]:
    """A cell for each noise rate and method, named ``RATE-METHOD``.

    Args:
        settings: What all cells share.
        kind: Kind of the noise.
        rates: Noise rates in percent; 0 makes IMAE take the T of clean labels.
        losses: Names of methods.
        num_classes: Classes of the data.
        prefix: Put before the rate in names, to distinguish two kinds of noise.

    Examples:
        >>> cells = noise_grid({"seed": 1}, kind="symmetric", rates=(0, 40), losses=("gce",))
        >>> [cell.name for cell in cells], cells[1].settings["noise"]
        (['0-gce', '40-gce'], 'symmetric:0.4')
    """
    return [
        Cell(
            name=f"{prefix}{rate}-{loss}",
            columns={"Noise": f"{prefix} {rate}%".strip(), "Method": title(loss)},
            settings=merged(
                settings,
                {"noise": f"{kind}:{rate / 100}"},
                method(loss, rate=rate / 100, num_classes=num_classes),
            ),
        )
        for rate in rates
        for loss in losses
    ]
