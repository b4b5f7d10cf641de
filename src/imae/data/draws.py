"""Random numbers that depend on what they are for, never on when or where they are drawn."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


def numpy_generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """A generator of its own for each seed, purpose and place (epoch, step).

    Args:
        seed: Seed of the run, not negative.
        purpose: What the numbers are for, in words: ``"shuffle"``.
        place: Further numbers that tell streams apart.

    Examples:
        >>> numpy_generator(1, "shuffle", 0).permutation(5).tolist()
        [1, 2, 4, 0, 3]
    """
    return np.random.Generator(np.random.PCG64(_entropy(seed, purpose, place)))


def torch_generator(seed: int, purpose: str, *place: int) -> torch.Generator:
    """The same for torch: a generator of its own for each seed, purpose and place."""
    return torch.Generator().manual_seed(_entropy(seed, purpose, place) % 2**63)


def row_draws(
    rows: NDArray[np.int64], bounds: Sequence[int], *, generator: torch.Generator
) -> NDArray[np.int64]:
    """Whole numbers for every row that follow from one draw of the generator and the row alone.

    The draw keys a hash (the finaliser of SplitMix64) of the row, so the numbers of a row are the
    same in any batch, worker or process whose generator stood in the same state.

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
    key = torch.randint(2**62, (1,), generator=generator).numpy().astype(np.uint64)
    state = _scramble(_scramble(rows.astype(np.uint64)) + key)
    steps = np.arange(1, len(bounds) + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    high = _scramble(state + steps) >> np.uint64(32)
    limit = np.asarray(bounds, dtype=np.uint64)[:, None]
    return ((high * limit) >> np.uint64(32)).astype(np.int64)


def _entropy(seed: int, purpose: str, place: tuple[int, ...]) -> int:
    # Not a SeedSequence of the numbers: to it (1, 0) and (1, 0, 0) are one and the same.
    written = "/".join([purpose, *map(str, (seed, *place))])
    return int.from_bytes(hashlib.sha256(written.encode()).digest(), "big")


def _scramble(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
