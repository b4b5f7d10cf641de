"""Probabilities of a model that caps its confidence, brought back to the whole scale."""

import math

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import blocks
from imae.errors import ArgumentError, check_interval

_NEAR = 0.99  # of the longest row: rows from there on are at the cap
_SHARE = 0.1  # of the rows that are at the cap, if there is one
_DISTINCT = 20  # of them that differ: a tree or a table repeats a few rows exactly
_SURE = 0.99  # probability that the cap is brought to
_TINY = 1e-12

Floats = NDArray[np.floating]


def find_cap(probabilities: Floats) -> float | None:
    """The largest probability that the model can give, if many rows have reached it.

    ``imae.cap_logits`` shortens the centred logits of a row to one length, whatever their
    direction. So a model with a cap shows as many different rows of the same length, the longest;
    other models have a long thin tail.

    Args:
        probabilities: Shape (N, C), rows summing to one.

    Returns:
        The cap, or None if there is no sign of one.

    Examples:
        >>> from imae._draws import seeded
        >>> logits = seeded(1).normal(size=(100, 3))
        >>> logits *= 0.9 / np.linalg.norm(logits - logits.mean(1, keepdims=True), axis=1)[:, None]
        >>> p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        >>> round(find_cap(p), 2), find_cap(np.eye(3)[[0, 1, 2]])
        (0.6, None)
    """
    if probabilities.max() >= _SURE:
        return None
    num_rows, num_classes = probabilities.shape
    lengths = np.concatenate(
        [
            np.linalg.norm(_centred(probabilities[rows]), axis=1)
            for rows in blocks(num_rows, num_classes)
        ]
    )
    is_near = lengths >= _NEAR * lengths.max()
    # Centred logits of one length, in different directions: that is what a cap leaves.
    num_distinct = len(np.unique(probabilities[is_near, 0]))
    if is_near.mean() < _SHARE or num_distinct < _DISTINCT:
        return None
    margin = float(lengths.max()) * math.sqrt(num_classes / (num_classes - 1))
    cap: float = 1 / (1 + (num_classes - 1) * math.exp(-margin))
    return cap


def stretched(probabilities: Floats, cap: float | None) -> Floats:
    """The probabilities as they would be if the model could be sure, so that the cap becomes 0.99.

    Formula, with z' the logits of a row less their mean and b(p) the length of centred logits that
    give one class the probability p (``imae.cap_logits``):

        softmax(z' b(0.99) / b(cap))

    A model that gives no class more than 0.75 seems to hold every label possible, and most wrong
    ones would be missed. Rows at the cap have lost how sure they were; below it a row was less
    sure, and stays so. Against labels that were changed on purpose, 0.99 came nearer to the true
    noise rate than 0.95, 0.999 and the logits before the cap.

    Args:
        probabilities: Shape (N, C), rows summing to one.
        cap: Largest probability that the model can give; None to find it, 1 if there is none.

    Raises:
        ArgumentError: If the cap is not in (1 / C, 1], or a probability is clearly above it.

    Examples:
        >>> stretched(np.array([[0.75, 0.25], [0.5, 0.5]]), 0.75).round(2).tolist()
        [[0.99, 0.01], [0.5, 0.5]]
    """
    num_rows, num_classes = probabilities.shape
    if cap is None:
        cap = find_cap(probabilities)
    else:
        check_interval("cap", cap, low=1 / num_classes, high=1, open_low=True)
        if probabilities.max() > cap + 0.01:
            raise ArgumentError(f"cap: is {cap:g}, but a probability is {probabilities.max():.3f}")
    factor = 1.0 if cap is None else stretch(cap, num_classes)
    if factor == 1.0:
        return probabilities
    whole = np.empty_like(probabilities)
    for rows in blocks(num_rows, num_classes):
        logits = factor * _centred(probabilities[rows])
        odds = np.exp(logits - logits.max(1, keepdims=True))
        whole[rows] = odds / odds.sum(1, keepdims=True)
    return whole


def stretch(cap: float, num_classes: int) -> float:
    """The factor of capped logits that brings their largest probability from ``cap`` to 0.99.

    Examples:
        >>> round(stretch(0.75, 2), 2), stretch(0.995, 2)
        (4.18, 1.0)
    """
    if cap >= _SURE:
        return 1.0
    return _length(_SURE, num_classes) / _length(cap, num_classes)


def _centred(probabilities: Floats) -> Floats:
    logits = np.log(np.maximum(probabilities, _TINY))
    return np.asarray(logits - logits.mean(1, keepdims=True))


def _length(p: float, num_classes: int) -> float:
    """Up to a factor that the classes decide."""
    return math.log(p) - math.log1p(-p) + math.log(num_classes - 1)
