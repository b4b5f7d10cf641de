"""Setting rows aside for validation."""

import numpy as np

from imae._checks import check_integer, check_interval
from imae.data.draws import numpy_generator
from imae.data.split import Split
from imae.errors import ArgumentError


def hold_out(
    split: Split, fraction: float, seed: int, *, purpose: str = "hold out"
) -> tuple[Split, Split]:
    """The split in two: what stays and what is held out, with the same share of every given label.

    Each class gives its share rounded down; the rows still missing to ``fraction`` of all come
    from the classes that lost most by the rounding. Rows keep their order and their ids.

    Args:
        split: Rows to divide.
        fraction: Share of the rows to hold out, in (0, 1).
        seed: Seed of the choice.
        purpose: What the rows are for; each purpose has a choice of its own under a seed.

    Raises:
        ArgumentError: If the fraction is outside (0, 1), or leaves either part without a row.

    Examples:
        >>> from imae.data.table import Table
        >>> labels, names = np.repeat([0, 1], 10), np.arange(20).astype(str)
        >>> split = Split(Table(np.zeros((20, 1), np.float32)), labels, names, ("x", "y"))
        >>> train, held = hold_out(split, 0.2, seed=1)
        >>> len(train), held.labels.tolist()
        (16, [0, 0, 1, 1])
    """
    check_interval("fraction", fraction, low=0.0, high=1.0, open_low=True, open_high=True)
    check_integer("seed", seed, low=0)
    wanted = round(fraction * len(split))
    if not 0 < wanted < len(split):
        raise ArgumentError(f"fraction {fraction:g} of {len(split)} rows leaves a part empty")
    exact = fraction * np.bincount(split.labels, minlength=split.num_classes)
    counts = np.floor(exact).astype(np.int64)
    most_lost = np.argsort(counts - exact, kind="stable")
    counts[most_lost[: wanted - counts.sum()]] += 1
    generator = numpy_generator(seed, purpose)
    is_held = np.zeros(len(split), dtype=bool)
    for label, count in enumerate(counts):
        is_held[generator.permutation(np.flatnonzero(split.labels == label))[:count]] = True
    return split.take(np.flatnonzero(~is_held)), split.take(np.flatnonzero(is_held))
