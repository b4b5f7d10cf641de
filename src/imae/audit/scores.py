"""Scores of suspicion from the dynamics of a run: in each, a higher number is more suspect."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError, check_interval
from imae.records import EpochDynamics

Floats = NDArray[np.float64]
Epochs = Iterable[EpochDynamics]


def mean_disbelief(epochs: Epochs) -> Floats:
    """One minus the probability of the given label, averaged over epochs, shape (N,).

    Formula:

        mean_e (1 - sigmoid(m_e)),   m_e the margin (log-odds of the given label) in epoch e

    Reference:
        Swayamdipta et al., "Dataset Cartography", EMNLP 2020 (confidence).

    Examples:
        >>> epoch = EpochDynamics(np.array([0.0, 9.0]), np.array([1, 1]), np.ones(2))
        >>> mean_disbelief([epoch, epoch]).round(2)
        array([0.5, 0. ])
    """
    return _mean(epochs, lambda epoch: _disbelief(epoch.margin))


def mean_negative_margin(epochs: Epochs, *, clip: float = 4.0) -> Floats:
    """The margin of the given label, clipped to [-clip, clip], averaged and negated, shape (N,).

    Without a limit a few epochs with huge logits would outvote all others; ``clip=math.inf``
    gives that score, the area under the margin.

    Reference:
        Pleiss et al., "Identifying Mislabeled Data using the Area Under the Margin Ranking",
        NeurIPS 2020, with the log-odds in place of the difference of two logits.
    """
    return _mean(epochs, lambda epoch: -np.clip(epoch.margin, -clip, clip).astype(np.float64))


def share_contradicted(epochs: Epochs, given: NDArray[np.int64]) -> Floats:
    """Share of the epochs in which the predicted class was not the given one, shape (N,).

    Args:
        epochs: Dynamics of every epoch.
        given: Given labels, shape (N,).
    """
    return _mean(epochs, lambda epoch: (epoch.predicted != given).astype(np.float64))


def final_disbelief(epochs: Epochs) -> Floats:
    """One minus the probability of the given label in the last epoch that saw the row.

    A loss that memorises has believed every label by then: prefer a mean for such a loss.
    """
    last: Floats | None = None
    for epoch in epochs:
        now = _disbelief(epoch.margin)
        last = now if last is None else np.where(np.isnan(now), last, now)
    if last is None:
        raise _no_epochs()
    return last


def late_disbelief(epochs: Epochs, num_epochs: int) -> Floats:
    """`mean_disbelief` over the last half of the epochs, shape (N,).

    A robust loss can learn some wrong labels early, those of similar classes first, and give
    them up when it has seen enough other rows. This score looks at those rows again.

    Args:
        epochs: Dynamics of every epoch.
        num_epochs: How many they are.
    """
    late = (epoch for number, epoch in enumerate(epochs) if 2 * number >= num_epochs - 1)
    return mean_disbelief(late)


def combined_ranks(first: Floats, second: Floats, *, weight: float = 0.5) -> Floats:
    """Two scores of any scale joined by their ranks, shape (N,), in [0, 1].

    Args:
        first: A score, shape (N,).
        second: Another one, shape (N,).
        weight: Weight of the second, in [0, 1].

    Examples:
        >>> combined_ranks(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
        array([0.  , 0.75, 0.75])
    """
    check_interval("weight", weight, low=0, high=1)
    return (1 - weight) * _ranks(first) + weight * _ranks(second)


def _ranks(values: Floats) -> Floats:
    """Mean rank of each value among all, scaled to [0, 1]."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = ends - (counts + 1) / 2
    return means[place] / max(1, len(values) - 1)


def _disbelief(margin: NDArray[np.float32]) -> Floats:
    wide = margin.astype(np.float64)
    return 1 / (1 + np.exp(np.clip(wide, -700, 700)))


def _mean(epochs: Epochs, score: Callable[[EpochDynamics], Floats]) -> Floats:
    """Mean of a score over the epochs in which a row was seen; memory O(N)."""
    total: Floats | None = None
    for epoch in epochs:
        seen = epoch.predicted >= 0
        now = np.where(seen, score(epoch), 0.0)
        if total is None:
            total, count = np.zeros(len(now)), np.zeros(len(now))
        if len(now) != len(total):
            raise DataError(f"an epoch has {len(now)} rows, the one before {len(total)}")
        total += now
        count += seen
    if total is None:
        raise _no_epochs()
    if (count == 0).any():
        row = int((count == 0).argmax())
        raise DataError(f"row {row} (counted from 0) was not seen in any epoch; train longer")
    return np.asarray(total / count)


def _no_epochs() -> DataError:
    return DataError("the run has no dynamics; train at least one epoch")
