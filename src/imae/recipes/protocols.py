"""Training settings of the paper and of the literature it follows, and their short forms."""

from typing import Any

from imae.recipes.recipe import Settings

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
        rows: Rows of the sample; a tenth of them is held out under their given labels.
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
