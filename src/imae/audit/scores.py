"""Scores of suspicion, from the dynamics of a run or its neighbours: higher is more suspect."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError, check_integer, check_interval
from imae.records import EpochDynamics

if TYPE_CHECKING:
    import torch

_ROWS_AT_ONCE = 1024
_LARGEST_WIDTH = 256
_GROUP = 64
_NONE = -2.0  # less than any cosine

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
    return _mean(epochs, lambda epoch: disbelief(epoch.margin))


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
        now = disbelief(epoch.margin)
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
        num_epochs: Number of epochs.
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


def disbelief(margin: NDArray[np.float32]) -> Floats:
    """One minus the probability of the given label, from its margin."""
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


def compressed(features: NDArray[np.floating], *, width: int = _LARGEST_WIDTH) -> "torch.Tensor":
    """Standardised features as vectors of length one, shape (N, at most ``width``).

    Wider features are projected on their ``width`` principal components, which makes the search
    for neighbours several times as fast.

    Args:
        features: Shape (N, F), finite.
        width: Most columns to keep.

    Raises:
        DataError: If there are no rows, or a number is not finite.
    """
    import torch

    if features.ndim != 2 or len(features) == 0:
        raise DataError(f"features must be of shape (N, F), got {features.shape}")
    values = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    if not bool(values.isfinite().all()):
        row = int((~values.isfinite().all(1)).int().argmax())
        raise DataError(f"features of row {row} (counted from 0) are not finite")
    values = (values - values.mean(0)) / values.std(0, unbiased=False).clamp(min=1e-6)
    if values.shape[1] > width:
        _, vectors = torch.linalg.eigh((values.T @ values).double())
        values = values @ vectors[:, -width:].float()
    return torch.nn.functional.normalize(values)


def nearest(
    unit: "torch.Tensor", k: int, *, progress: Callable[[int, int], None] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k rows most similar to each row, itself left out, and their cosine similarities.

    Every pair is compared, block by block: memory O(N k), time O(N^2 F).

    Args:
        unit: Vectors of length one, shape (N, F).
        k: Neighbours of each row; all others if there are fewer.
        progress: Called with the number of rows done and the number of all rows.

    Returns:
        Positions and similarities, both of shape (N, k), nearest first.
    """
    import torch

    check_integer("k", k, low=1)
    k = min(k, len(unit) - 1)
    # Padded to whole groups of columns; the last ones belong to no row.
    padding = -len(unit) % _GROUP
    padded = torch.cat([unit, unit.new_zeros(padding, unit.shape[1])]).T.contiguous()
    indices, similarities = [], []
    for start in range(0, len(unit), _ROWS_AT_ONCE):
        block = unit[start : start + _ROWS_AT_ONCE]
        similarity = block @ padded
        rows = torch.arange(len(block))
        similarity[rows, rows + start] = _NONE
        similarity[:, len(unit) :] = _NONE
        best, columns = _largest(similarity, k)
        indices.append(columns.to(torch.int32))
        similarities.append(best)
        if progress is not None:
            progress(start + len(block), len(unit))
    return torch.cat(indices).numpy(), torch.cat(similarities).numpy()


def _largest(values: "torch.Tensor", k: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """The k largest of each row and their columns, in order.

    Each of them is in one of the k groups of columns with the largest maxima, so only those are
    sorted: for 50,000 columns this is many times as fast as sorting all.
    """
    groups = values.unflatten(1, (-1, _GROUP))
    chosen = groups.amax(2).topk(min(k, groups.shape[1]), dim=1).indices
    index = chosen[:, :, None].expand(-1, -1, _GROUP)
    best = groups.gather(1, index).flatten(1).topk(k, dim=1)
    columns = chosen.gather(1, best.indices // _GROUP) * _GROUP + best.indices % _GROUP
    return best.values, columns


def neighbour_disbelief(
    given: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    similarities: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Share of the neighbours with another label, shape (N,); higher is more suspect.

    A neighbour counts with the fourth power of its similarity, so that near ones decide. This score
    needs no training.

    Args:
        given: Given labels, shape (N,).
        neighbours: Shape (N, k), as from `nearest`.
        similarities: Shape (N, k).
    """
    weights = np.maximum(similarities, 1e-3).astype(np.float64) ** 4
    differs = given[neighbours] != given[:, None]
    return np.asarray((weights * differs).sum(1) / weights.sum(1))


def duplicates(
    given: NDArray[np.int64],
    *,
    hashes: NDArray[np.uint64] | None = None,
    near: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None,
    above: float = 0.98,
) -> NDArray[np.int64]:
    """Groups of rows that are the same, or nearly the same, and carry different labels.

    Args:
        given: Given labels, shape (N,).
        hashes: Hash of the content of each row, shape (N,).
        near: Neighbours and similarities, as from `nearest`.
        above: Two rows with at least this similarity count as nearly the same.

    Returns:
        Number of each row's group, shape (N,); -1 for a row in none.

    Examples:
        >>> duplicates(np.array([0, 0, 1]), hashes=np.array([7, 8, 7], np.uint64)).tolist()
        [0, -1, 0]
    """
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    if hashes is not None:
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        left.append(np.arange(len(given)))
        right.append(first[place])
    if near is not None:
        rows, columns = np.nonzero(near[1] >= above)
        left.append(rows)
        right.append(near[0][rows, columns].astype(np.int64))
    return _groups(np.concatenate(left), np.concatenate(right), given)


def _groups(
    left: NDArray[np.integer], right: NDArray[np.integer], given: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Connected rows, numbered in order of their first row, where the labels differ."""
    head = np.arange(len(given))
    for _ in range(len(given)):  # each pass halves the longest chain at least
        low = np.minimum(head[left], head[right])
        new = head.copy()
        np.minimum.at(new, left, low)
        np.minimum.at(new, right, low)
        new = new[new]
        if (new == head).all():
            break
        head = new
    lowest, highest = given.copy(), given.copy()
    np.minimum.at(lowest, head, given)
    np.maximum.at(highest, head, given)
    differs = (lowest != highest)[head]
    found = np.full(len(given), -1, np.int64)
    found[differs] = np.unique(head[differs], return_inverse=True)[1]
    return found
