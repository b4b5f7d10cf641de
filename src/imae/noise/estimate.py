"""Estimates of unknown noise from the probabilities of a model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae._checks import check_integer, check_interval
from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.noisy_labels import ArrayOrTensor, as_array, as_labels


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


def estimate_transition(probabilities: ArrayOrTensor, labels: ArrayOrTensor) -> NDArray[np.float64]:
    """The transition matrix, counted on the rows that a model is sure about.

        count[j, i]      = rows labelled j that are confidently of class i
        joint[j, i]      = count[j, i] / sum_i count[j, i] * rows labelled j
        transition[i, j] = joint[j, i] / sum_j joint[j, i]

    The model must not have memorised these labels: take probabilities of held-out
    rows (cross-validation) or of a model that resists wrong labels. A class that is nowhere
    the likely one keeps its labels.

    Args:
        probabilities: Of the classes, shape (N, C), rows sum to one.
        labels: Given labels, shape (N,), integers in [0, C).

    Returns:
        Entry (i, j) estimates P(given = j | true = i), shape (C, C), rows sum to one.

    Raises:
        ArgumentError: If the arrays do not fit together.

    Examples:
        >>> probabilities = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]]
        >>> estimate_transition(probabilities, [0, 0, 1, 1])
        array([[0.66666667, 0.33333333],
               [0.        , 1.        ]])

    Reference:
        Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels",
        JAIR 2021, Sec. 3.1.
    """
    rows, given = _check_rows(probabilities, labels)
    num_classes = rows.shape[1]
    likely, is_confident = confident_classes(rows, given)
    cells = given[is_confident] * num_classes + likely[is_confident]
    count = np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)
    labelled = np.bincount(given, minlength=num_classes)
    joint = _rows_to_one(count.astype(np.float64)) * labelled[:, None]
    return _rows_to_one(joint.T)


def estimate_transition_from_anchors(
    probabilities: ArrayOrTensor, *, quantile: float = 0.97
) -> NDArray[np.float64]:
    """The transition matrix, read off one row for each class.

        transition[i] = probabilities of the row at ``quantile`` by class i

    Of rows with equal probabilities of class i, the first is taken.
    The model must have learned the *given* labels and be calibrated: its probabilities for a row
    that surely is of class i then are the chances of each given label. A quantile of 1 takes the
    surest row; a little less excludes rows that were memorised.

    Args:
        probabilities: Of the given labels, shape (N, C), rows sum to one.
        quantile: In [0, 1].

    Returns:
        Entry (i, j) estimates P(given = j | true = i), shape (C, C), rows sum to one.

    Raises:
        ArgumentError: If the probabilities or the quantile are out of range.

    Examples:
        >>> probabilities = [[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]]
        >>> estimate_transition_from_anchors(probabilities, quantile=1.0)
        array([[0.8, 0.2],
               [0.3, 0.7]])

    Reference:
        Patrini et al., "Making Deep Neural Networks Robust to Label Noise: A Loss Correction
        Approach", CVPR 2017, Eq. (12) and (13).
    """
    check_interval("quantile", quantile, low=0.0, high=1.0)
    rows = as_probabilities(probabilities)
    place = int(quantile * (len(rows) - 1))
    # The first row of that value: argpartition's choice among equals differs between machines.
    anchors = (rows == np.partition(rows, place, axis=0)[place]).argmax(axis=0)
    return _rows_to_one(rows[anchors].astype(np.float64))


@dataclass(frozen=True)
class RateEstimate:
    """A noise rate with an interval for the chance of which rows are at hand.

    Args:
        rate: Estimated part of the labels that are wrong, in [0, 1].
        low: Lower end of the interval.
        high: Upper end of the interval.
        level: Part of such intervals that hold the rate if the model is right, in (0, 1).
    """

    rate: float
    low: float
    high: float
    level: float


def estimate_noise_rate(
    probabilities: ArrayOrTensor,
    labels: ArrayOrTensor,
    *,
    seed: int,
    level: float = 0.95,
    resamples: int = 1000,
) -> RateEstimate:
    """The part of the labels that are wrong, with a bootstrap percentile interval.

    In each class the part of the confident rows whose likely class is another is taken for the
    part of wrong labels, as in `estimate_transition`. Rows are resampled with the thresholds
    held fixed. The interval covers chance alone: a model that is wrong moves all of it.

    Args:
        probabilities: Of the classes, shape (N, C), rows sum to one, not learned by heart.
        labels: Given labels, shape (N,), integers in [0, C).
        seed: Seed of the bootstrap.
        level: In (0, 1).
        resamples: Number of bootstrap samples.

    Raises:
        ArgumentError: If the arrays do not fit together, or a value is out of range.

    Examples:
        >>> probabilities = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]] * 50
        >>> estimate = estimate_noise_rate(probabilities, [0, 0, 1, 1] * 50, seed=1)
        >>> estimate.rate, estimate.low < 0.25 < estimate.high
        (0.25, True)

    Reference:
        Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels",
        JAIR 2021, Sec. 3.1; Efron, "Bootstrap Methods: Another Look at the Jackknife",
        Annals of Statistics 1979.
    """
    check_interval("level", level, low=0.0, high=1.0, open_low=True, open_high=True)
    check_integer("resamples", resamples, low=1)
    rows, given = _check_rows(probabilities, labels)
    likely, is_confident = confident_classes(rows, given)
    # The rate sees of a row only its label and one of three outcomes: confidently right,
    # confidently wrong, not confident. To resample rows is to resample these counts.
    outcome = np.where(is_confident, np.where(likely == given, 0, 1), 2)
    counts = np.bincount(given * 3 + outcome, minlength=rows.shape[1] * 3)
    samples = seeded(seed).multinomial(len(given), counts / len(given), size=resamples)
    low, high = np.quantile(_wrong_part(samples), [(1 - level) / 2, (1 + level) / 2])
    rate = _wrong_part(counts[None])[0]
    return RateEstimate(rate=float(rate), low=float(low), high=float(high), level=level)


def _rows_to_one(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with rows that sum to one; a row of zeros becomes that of the identity."""
    sums = matrix.sum(axis=1, keepdims=True)
    filled = np.where(sums > 0, matrix, np.eye(len(matrix)))
    return np.asarray(filled / np.where(sums > 0, sums, 1.0), dtype=np.float64)


def _wrong_part(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The rate for each table of counts, shape (R, C * 3), as shape (R,)."""
    table = counts.reshape(len(counts), -1, 3)
    labelled = table.sum(axis=2)
    confident = table[:, :, :2].sum(axis=2)
    wrong = labelled * table[:, :, 1] / np.maximum(confident, 1)
    return np.asarray(wrong.sum(axis=1) / labelled.sum(axis=1), dtype=np.float64)


def _check_rows(
    probabilities: ArrayOrTensor, labels: ArrayOrTensor
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    rows = as_probabilities(probabilities)
    given = as_labels(labels, num_classes=rows.shape[1])
    if len(given) != len(rows):
        raise ArgumentError(
            f"labels must be as many as the {len(rows)} rows of probabilities, got {len(given)}"
        )
    return rows, given
