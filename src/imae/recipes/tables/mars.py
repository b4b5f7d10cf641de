"""MARS: retrieval of people in video, identities that were not trained on."""

from imae.recipes.protocols import budgeted, method, title
from imae.recipes.recipe import Cell, Recipe, Settings, merged
from imae.recipes.tables.unseen_classes import write_retrieval

_LOSSES = ("cce", "mae", "gce", "imae", "imae_stable")
_RATE = 0.4  # not known; above 0, so that IMAE has the T of noisy labels

_SETTINGS: Settings = {
    "seed": 123,
    "data": {"name": "mars", "hold_out": 0.0},
    "model": {"name": "bn_inception"},
    "train": {
        "steps": 50_000,
        "batch_size": 180,
        "evaluate_every": 10_000,
        "checkpoint_every": 1000,
        "measure_train": False,
    },
    "optimizer": {"name": "momentum", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
    "schedule": {"name": "steps", "every": 10_000, "divide_by": 2.0},
    "machine": {"channels_last": True},
}

# Two processor cores cannot train GoogLeNet on frames: a small network on frozen features can.
_SHORT: Settings = {
    "data": {"rows": 20_000, "features": "efficientnet_lite0", "hold_out": 0.1},
    "model": {"name": "mlp"},
    "train": {
        "steps": None,
        "epochs": 40,
        "batch_size": 64,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
    "schedule": {"name": "cosine", "every": None},
}
# The data stays: a test makes a small tree of its layout.
_TINY: Settings = {
    "train": {"steps": 2, "batch_size": 4, "evaluate_every": 2, "checkpoint_every": 2},
    "machine": {"channels_last": False},
}


def cells(budget: str) -> tuple[Cell, ...]:
    """Each loss."""
    tables = [
        Cell(loss, {"Loss": title(loss)}, merged(_SETTINGS, method(loss, rate=_RATE)))
        for loss in _LOSSES
    ]
    if budget == "tiny":
        return tuple(Cell(cell.name, cell.columns, merged(cell.settings, _TINY)) for cell in tables)
    return budgeted(budget, tables, short=_SHORT)


MARS = Recipe(
    name="mars",
    cells=cells,
    measures=("held_out",),
    notes=(
        "The people of the test part are not those trained on, so there is no accuracy on them: "
        "`retrieval.md` has mAP and CMC beside the paper's. Training draws single frames; a test "
        "tracklet is the average of the features of all its frames. The paper does not say from "
        "which weights it starts: `--set model.init=FILE` starts from published ones, and then "
        "pixels are blue, green, red from 0 to 255, as those expect. Nor does it print T: it is 8."
    ),
    budget_notes={
        "short": (
            "Not GoogLeNet V2, but a small network on frozen features of EfficientNet-Lite0: the "
            "paper's numbers are of another network."
        ),
        "tiny": "Two steps, on MARS itself or on a tree of its layout.",
    },
    finish=write_retrieval,
)
