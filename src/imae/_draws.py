"""Random draws that are the same on every machine and depend only on what they are for."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from imae.errors import check_integer

if TYPE_CHECKING:  # label files and run folders are read without torch
    import torch


DEFAULT_SEED = 123
"""Seed of everything that was not given one."""


def seeded(seed: int) -> np.random.Generator:
    """A new generator for this seed.

    Raises:
        ArgumentError: If the seed is not a non-negative integer.

    Examples:
        >>> seeded(1).random() == seeded(1).random()
        True
    """
    check_integer("seed", seed, low=0)
    return np.random.Generator(np.random.PCG64(seed))


def draw_normal(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float64]:
    """Normal numbers of mean 0 and variance 1.

    Args:
        shape: Shape of the result.
        generator: Source of two draws for each number.

    Examples:
        >>> draw_normal((2, 3), seeded(1)).shape
        (2, 3)

    Reference:
        Box and Muller, "A Note on the Generation of Random Normal Deviates", Annals of
        Mathematical Statistics 1958.
    """
    radius = np.sqrt(-2 * np.log1p(-generator.random(shape)))
    return np.asarray(radius * np.cos(2 * np.pi * generator.random(shape)), dtype=np.float64)


def choose_rows(
    may_change: NDArray[np.bool_], generator: np.random.Generator, *, rate: float, exact: bool
) -> NDArray[np.bool_]:
    """Which rows change: each with probability ``rate``, or exactly that part of them.

    One seed gives nested sets: rows chosen at a lower rate are chosen at every higher one.

    Args:
        may_change: Rows to choose from, shape (N,).
        generator: Source of one draw for each row.
        rate: Probability in [0, 1).
        exact: Choose exactly ``round(rate * rows)`` of the rows that may change.

    Returns:
        Mask of the chosen rows, shape (N,).

    Examples:
        >>> rows = choose_rows(np.ones(10, dtype=bool), seeded(1), rate=0.3, exact=True)
        >>> int(rows.sum())
        3
    """
    keys = generator.random(len(may_change))
    if not exact:
        return may_change & (keys < rate)
    keys[~may_change] = np.inf
    chosen = np.zeros(len(may_change), dtype=np.bool_)
    chosen[np.argsort(keys, kind="stable")[: round(rate * int(may_change.sum()))]] = True
    return chosen


def draw_by_class(
    labels: NDArray[np.int64], matrix: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """One class for each row, drawn from the matrix row of its label.

    Args:
        labels: Integers in [0, C), shape (N,).
        matrix: Probabilities, shape (C, C), rows sum to one.
        generator: Source of one draw for each row.

    Returns:
        Classes, shape (N,); never one of probability zero.

    Examples:
        >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> draw_by_class(np.array([0, 1, 1]), swap, seeded(1))
        array([1, 0, 0])
    """
    uniform = generator.random(len(labels))
    drawn = np.empty_like(labels)
    for label in np.unique(labels):
        rows = labels == label
        drawn[rows] = np.searchsorted(_edges(matrix[label]), uniform[rows], side="right")
    return drawn


def draw_by_row(
    probabilities: NDArray[np.float64], uniform: NDArray[np.float64]
) -> NDArray[np.int64]:
    """One class for each row, drawn from that row's own probabilities.

    Args:
        probabilities: Shape (N, C), rows sum to one.
        uniform: One draw from [0, 1) for each row, shape (N,).

    Returns:
        Classes, shape (N,); never one of probability zero.

    Examples:
        >>> draw_by_row(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([0.4, 0.6]))
        array([0, 1])
    """
    return np.asarray((_edges(probabilities) <= uniform[:, None]).sum(axis=1), dtype=np.int64)


def _edges(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    # Divided by the last sum, so that it is exactly one and no draw from [0, 1) is beyond it.
    sums = np.cumsum(probabilities, axis=-1)
    return np.asarray(sums / sums[..., -1:], dtype=np.float64)


def numpy_generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """A separate generator for each seed, purpose and place (epoch, step).

    Args:
        seed: Seed of the run, not negative.
        purpose: What the numbers are for, in words: ``"shuffle"``.
        place: Further numbers that distinguish streams.

    Examples:
        >>> numpy_generator(1, "shuffle", 0).permutation(5).tolist()
        [1, 2, 4, 0, 3]
    """
    return np.random.Generator(np.random.PCG64(_entropy(seed, purpose, place)))


def torch_generator(seed: int, purpose: str, *place: int) -> "torch.Generator":
    """The same for torch: a separate generator for each seed, purpose and place."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, purpose, *place))


def derive_seed(seed: int, purpose: str, *place: int) -> int:
    """A seed for one purpose, different from the seeds of other runs.

    ``seed + 1`` would be the seed of another run: the second draw of one run would be the first
    of the other.

    Examples:
        >>> derive_seed(1, "network", 1) in range(2**63)
        True
        >>> derive_seed(1, "network", 1) == derive_seed(2, "network", 0)
        False
    """
    return _entropy(seed, purpose, place) % 2**63


def row_draws(
    rows: NDArray[np.int64], bounds: Sequence[int], *, generator: "torch.Generator"
) -> NDArray[np.int64]:
    """Whole numbers for every row that depend only on one draw of the generator and the row.

    The draw keys a hash (the finaliser of SplitMix64) of the row, so the numbers of a row are the
    same in any batch, worker or process whose generator was in the same state.

    Args:
        rows: Positions, shape (B,).
        bounds: For each number of a row its exclusive upper bound, at most 2**32.
        generator: Gives the key; moves on by one draw.

    Returns:
        Shape (len(bounds), B), integers in [0, bound).

    Examples:
        >>> generator = torch_generator(1, "augment", 0)
        >>> row_draws(np.arange(4), [9, 2], generator=generator).shape
        (2, 4)

    Reference:
        Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    import torch

    key = torch.randint(2**62, (1,), generator=generator).numpy().astype(np.uint64)
    state = _scramble(_scramble(rows.astype(np.uint64)) + key)
    steps = np.arange(1, len(bounds) + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    high = _scramble(state + steps) >> np.uint64(32)
    limit = np.asarray(bounds, dtype=np.uint64)[:, None]
    return ((high * limit) >> np.uint64(32)).astype(np.int64)


def _entropy(seed: int, purpose: str, place: tuple[int, ...]) -> int:
    # Not a SeedSequence of the numbers: it treats (1, 0) and (1, 0, 0) as the same.
    written = "/".join([purpose, *map(str, (seed, *place))])
    return int.from_bytes(hashlib.sha256(written.encode()).digest(), "big")


def _scramble(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
