"""Rows that a model is sure about: what the estimates of unknown noise count."""

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError
from imae.noise.labels import ArrayOrTensor, as_array


def confident_classes(
    probabilities: NDArray[np.floating], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The likely true class of each row, and whether the model is sure of it.

    A row counts for class j if its probability of j is at least the mean of that probability
    over the rows labelled j; if it does so for several, the most probable of them is taken.

    Args:
        probabilities: Shape (N, C), rows sum to one.
        labels: Given labels, shape (N,).

    Returns:
        Classes, shape (N,), meaningless where not confident; and the mask, shape (N,).

    Examples:
        >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.5, 0.5]])
        >>> confident_classes(probabilities, np.array([0, 1, 1, 0]))
        (array([0, 0, 1, 0]), array([ True,  True,  True, False]))

    Reference:
        Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels",
        JAIR 2021, Eq. (1) and (2).
    """
    num_classes = probabilities.shape[1]
    own = probabilities[np.arange(len(labels)), labels]
    sums = np.bincount(labels, weights=own, minlength=num_classes)
    counts = np.bincount(labels, minlength=num_classes)
    # A class that is never given has no threshold, so no row counts for it.
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    # Rounding must not put the mean of equal numbers above each of them.
    passes = probabilities >= thresholds - 1e-6
    classes = np.where(passes, probabilities, -1).argmax(axis=1)
    return classes.astype(np.int64), np.asarray(passes.any(axis=1), dtype=np.bool_)


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
