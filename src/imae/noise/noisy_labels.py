"""What every kind of noise takes and returns."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from imae.errors import ArgumentError, check_integer

if TYPE_CHECKING:
    import torch

ArrayOrTensor: TypeAlias = Union[ArrayLike, "torch.Tensor"]


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels with known errors, and how they came about.

    Args:
        labels: The labels after the noise, shape (N,), integers in [0, C).
        is_flipped: Whether the label of a row differs from the clean one, shape (N,).
        transition: Entry (i, j) is the probability that a row of class i is given label j,
            shape (C, C), rows sum to one.
        kind: Name of the noise.
        rate: The rate that was asked for; `realised_rate` is what came out.
        seed: Seed of every draw.

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
        """Part of the rows whose label changed, in [0, 1]."""
        return float(self.is_flipped.mean())


def as_labels(labels: ArrayOrTensor, *, num_classes: int) -> NDArray[np.int64]:
    """A copy of the labels as int64, so that nobody's array is ever changed in place.

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
        ArgumentError: If they have no common shape.

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
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} must be an array of numbers: {error}") from error


def as_probabilities(probabilities: ArrayOrTensor) -> NDArray[np.floating]:
    """The probabilities as an array of their own float type.

    Raises:
        ArgumentError: If they are not of shape (N, C) with two classes or more, or a row has an
            entry below zero or does not sum to one within 1e-2 (what half precision keeps).

    Examples:
        >>> as_probabilities([[0.5, 0.5]])
        array([[0.5, 0.5]])
    """
    array = as_array("probabilities", probabilities)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise ArgumentError(
            f"probabilities must have shape (N, C) with C at least 2, got {array.shape}"
        )
    if array.dtype.kind != "f":
        raise ArgumentError(f"probabilities must be floats, got {array.dtype}")
    floats: NDArray[np.floating] = array.astype(np.result_type(array.dtype, np.float32), copy=False)
    bad = ~((floats >= 0).all(axis=1) & (np.abs(floats.sum(axis=1) - 1) <= 1e-2))
    if bad.any():
        row = int(bad.argmax())
        raise ArgumentError(
            f"probabilities must not be negative and must sum to 1, row {row} has minimum "
            f"{floats[row].min():g} and sum {floats[row].sum():g}"
        )
    return floats
