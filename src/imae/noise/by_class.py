"""The result of every kind of noise, and noise that depends only on the class."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from imae._draws import choose_rows, draw_by_class, seeded
from imae.errors import ArgumentError, check_integer, check_interval, check_not_masked

if TYPE_CHECKING:
    import torch

ArrayOrTensor: TypeAlias = Union[ArrayLike, "torch.Tensor"]


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels with known errors, and how they were made.

    Args:
        labels: The labels after the noise, shape (N,), integers in [0, C).
        is_flipped: Whether the label of a row differs from the clean one, shape (N,).
        transition: Entry (i, j) is the probability that a row of class i is given label j,
            shape (C, C), rows sum to one.
        kind: Name of the noise.
        rate: The requested rate; `realised_rate` is the actual one.
        seed: Random seed.

    Examples:
        >>> from imae.noise import symmetric
        >>> noisy = symmetric([0, 1, 2, 0, 1, 2], rate=0.5, num_classes=3, seed=0, exact=True)
        >>> int(noisy.is_flipped.sum())
        3
    """

    labels: NDArray[np.int64]
    is_flipped: NDArray[np.bool_]
    transition: NDArray[np.float64]
    kind: str
    rate: float
    seed: int

    @property
    def realised_rate(self) -> float:
        """Fraction of the rows whose label changed, in [0, 1]."""
        return float(self.is_flipped.mean())


def as_labels(labels: ArrayOrTensor, *, num_classes: int) -> NDArray[np.int64]:
    """A copy of the labels as int64, so that the caller's array is never changed.

    Args:
        labels: Integers in [0, C), shape (N,): a list, an array or a tensor on any device.
        num_classes: Number of classes C, at least 2.

    Raises:
        ArgumentError: If there are no labels, or one is not an integer in [0, C).

    Examples:
        >>> as_labels([2, 0, 1], num_classes=3)
        array([2, 0, 1])
    """
    check_integer("num_classes", num_classes, low=2)
    array = as_array("labels", labels)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(f"labels must have shape (N,) with N at least 1, got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"labels must be integers, got {array.dtype}")
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise ArgumentError(f"labels must be in [0, {num_classes}), got {array[row]} at row {row}")
    return array.astype(np.int64)


def as_array(name: str, values: ArrayOrTensor) -> NDArray[Any]:
    """The values as an array, from a list, an array or a tensor on any device.

    Raises:
        ArgumentError: If they have no common shape, or are sparse.
        DataError: If one is masked.

    Examples:
        >>> as_array("values", [1, 2])
        array([1, 2])
    """
    if "torch" in sys.modules:  # else it cannot be a tensor, and numpy is enough
        import torch

        if isinstance(values, torch.Tensor):
            values = values.detach().cpu()
            if values.dtype is torch.bfloat16:
                values = values.float()  # numpy has no such type
    if hasattr(values, "toarray"):
        raise ArgumentError(f"{name} must not be sparse; give its toarray()")
    check_not_masked(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be an array of numbers: {error}") from error


def from_transition(labels: ArrayOrTensor, *, transition: ArrayOrTensor, seed: int) -> NoisyLabels:
    """Labels drawn from any transition matrix.

        P(given = j | clean = i) = transition[i, j]

    The result's ``rate`` is the share of these rows that the matrix changes on average.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        transition: Probabilities, shape (C, C), rows sum to one.
        seed: Random seed.

    Raises:
        ArgumentError: If a label is out of range, or the matrix is not square, has a negative
            entry or a row that does not sum to one.

    Examples:
        >>> noisy = from_transition([0, 0, 1, 1], transition=[[1, 0], [1, 0]], seed=1)
        >>> noisy.labels
        array([0, 0, 0, 0])
    """
    matrix = check_transition("transition", transition)
    clean = as_labels(labels, num_classes=len(matrix))
    given = draw_by_class(clean, matrix, seeded(seed))
    return NoisyLabels(
        labels=given,
        is_flipped=given != clean,
        transition=matrix,
        kind="transition",
        rate=max(0.0, float(1 - matrix[clean, clean].mean())),  # rows may sum to 1 + 1e-6
        seed=int(seed),
    )


def redraw(
    clean: NDArray[np.int64],
    destinations: NDArray[np.float64],
    generator: np.random.Generator,
    *,
    kind: str,
    rate: float,
    seed: int,
    exact: bool,
) -> NoisyLabels:
    """Changes some labels according to a matrix.

        transition = (1 - rate) * identity + rate * destinations

    Args:
        clean: Clean labels, shape (N,).
        destinations: Row i has the probabilities of the new class of a row that is changed and has
            class i, shape (C, C), rows sum to one. A class whose row is that of the identity is
            never changed.
        generator: Source of the draws.
        kind: Name for the result.
        rate: Probability in [0, 1) that a row is changed.
        seed: Seed for the result's record; the draws come from ``generator``.
        exact: Change exactly ``round(rate * rows)`` rows.

    Raises:
        ArgumentError: If the rate is not in [0, 1).

    Examples:
        >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> clean = np.array([0, 0, 1, 1])
        >>> noisy = redraw(clean, swap, seeded(1), kind="swap", rate=0.5, seed=1, exact=True)
        >>> noisy.transition
        array([[0.5, 0.5],
               [0.5, 0.5]])
    """
    check_interval("rate", rate, low=0.0, high=1.0, open_high=True)
    identity = np.eye(len(destinations))
    may_change = (np.diagonal(destinations) < 1.0)[clean]
    hit = choose_rows(may_change, generator, rate=rate, exact=exact)
    given = np.where(hit, draw_by_class(clean, destinations, generator), clean)
    return NoisyLabels(
        labels=given,
        is_flipped=given != clean,
        transition=(1 - rate) * identity + rate * destinations,
        kind=kind,
        rate=float(rate),
        seed=int(seed),
    )


def check_transition(name: str, matrix: ArrayOrTensor) -> NDArray[np.float64]:
    """The matrix in float64.

    Raises:
        ArgumentError: If it is not square with two classes or more, has an entry that is
            negative or not finite, or a row that does not sum to one within 1e-6.

    Examples:
        >>> check_transition("transition", [[1, 0], [0, 1]])
        array([[1., 0.],
               [0., 1.]])
    """
    array = as_array(name, matrix)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        raise ArgumentError(f"{name} must have shape (C, C) with C at least 2, got {array.shape}")
    if array.dtype.kind not in "iuf":
        raise ArgumentError(f"{name} must hold numbers, got {array.dtype}")
    floats = array.astype(np.float64)
    bad = ~(np.isfinite(floats) & (floats >= 0)).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise ArgumentError(f"{name} must be finite and not negative, row {row} is {floats[row]}")
    sums = floats.sum(axis=1)
    off = np.abs(sums - 1) > 1e-6
    if off.any():
        row = int(off.argmax())
        raise ArgumentError(f"{name} must have rows that sum to 1, row {row} sums to {sums[row]}")
    return floats


def symmetric(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool = False
) -> NoisyLabels:
    """Noise that moves labels to one of the other classes, all equally likely.

        P(given = j | clean = i) = 1 - rate          if i == j
                                   rate / (C - 1)    otherwise

    This is the definition of the paper: ``rate`` is the part of the labels that are wrong.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label is replaced.
        num_classes: Number of classes C, at least 2.
        seed: Random seed.
        exact: Replace ``round(rate * N)`` labels, no more and no fewer.

    Raises:
        ArgumentError: If the rate, a label or the number of classes is out of range.

    Examples:
        >>> noisy = symmetric([0, 1, 2, 3] * 250, rate=0.4, num_classes=4, seed=1, exact=True)
        >>> noisy.realised_rate
        0.4

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, "Synthetic label noise generation".
    """
    clean = as_labels(labels, num_classes=num_classes)
    others = (1 - np.eye(num_classes)) / (num_classes - 1)
    return redraw(clean, others, seeded(seed), kind="symmetric", rate=rate, seed=seed, exact=exact)


def uniform(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool = False
) -> NoisyLabels:
    """Noise that draws labels again from all classes, including the clean one.

        P(given = j | clean = i) = 1 - rate + rate / C    if i == j
                                   rate / C               otherwise

    Fewer labels are wrong than with `symmetric`: a part ``rate * (C - 1) / C`` on average.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label is drawn again.
        num_classes: Number of classes C, at least 2.
        seed: Random seed.
        exact: Draw exactly ``round(rate * N)`` labels again.

    Raises:
        ArgumentError: If the rate, a label or the number of classes is out of range.

    Examples:
        >>> noisy = uniform([0, 1] * 500, rate=0.4, num_classes=2, seed=1)
        >>> noisy.transition
        array([[0.8, 0.2],
               [0.2, 0.8]])

    Reference:
        Zhang et al., "Understanding deep learning requires rethinking generalization",
        ICLR 2017, "Partially corrupted labels".
    """
    clean = as_labels(labels, num_classes=num_classes)
    everywhere = np.full((num_classes, num_classes), 1 / num_classes)
    return redraw(
        clean, everywhere, seeded(seed), kind="uniform", rate=rate, seed=seed, exact=exact
    )
