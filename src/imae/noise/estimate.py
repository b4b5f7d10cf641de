"""Estimates of unknown noise from a model's probabilities, separated from overlap of classes.

The model: q(x) are the probabilities of the *true* class, and a row of class i is given label j
with probability T_ij:

    P(given = j | x) = sum_i q_i(x) T_ij          q(x) = softmax(t log p(x))

p are probabilities of a model on rows that it was not trained on. The temperature t corrects a
model that is overconfident (t < 1) or underconfident (t > 1). Where classes overlap, q shows it,
and a label that differs from the most likely class is not evidence of noise. T may differ between
strata of rows, from the least to the most certain ones, because people make more mistakes on hard
rows.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError, check_integer, check_interval
from imae.noise.by_class import ArrayOrTensor, as_labels
from imae.noise.rate_curve import (
    Floats,
    Part,
    RateCurve,
    as_probabilities,
    best_temperature,
    curves_around,
    fit_transition,
    likely_temperatures,
    tempered,
)
from imae.noise.rate_curve import (
    strata as divide,
)

_MOST_CLASSES = 400  # the estimate holds a matrix of their number for each of them


@dataclass(frozen=True)
class RateEstimate:
    """A noise rate, with an interval for the sampling of the rows.

    Args:
        rate: Estimated part of the labels that are wrong, in [0, 1].
        low: Lower end of the interval.
        high: Upper end of the interval.
        level: Part of such intervals that contain the rate if the model is right, in (0, 1).
        temperature: The temperature t that was used.
        ceiling: Fraction of the labels that are not the model's most likely class: the rate if the
            model never errs. Where the conditions of the interval do not hold, as with human
            labels, the rate is usually between ``low`` and ``ceiling``.
    """

    rate: float
    low: float
    high: float
    level: float
    temperature: float
    ceiling: float


def estimate_noise_rate(
    probabilities: ArrayOrTensor,
    labels: ArrayOrTensor,
    *,
    level: float = 0.95,
    calibrate: bool = True,
    strata: int | None = None,
    seed: int | None = None,  # noqa: ARG001
    resamples: int | None = None,  # noqa: ARG001
) -> RateEstimate:
    """The part of the labels that are wrong, with a score interval.

    At a given t the rate is a mean over rows, r = 1 - mean_n w(x_n, y_n), with weights that satisfy
    mean_n q_i(x_n) w(x_n, j) = pi_i [i = j] for all i and j. So it is unbiased for any noise that
    depends on the class, symmetric or not; of all such weights, those with the least variance under
    symmetric noise are used. t is tested by a score S(t) of mean zero at the right t, again
    for any such noise. The interval contains the rates r0 with

        min_t { (r(t) - r0)^2 / V_t(r0) + S(t)^2 / Var S(t) } - the same at the best r0 <= z^2

    where V_t(r0) is the variance *if r0 is the rate* (a score test). For a perfect model it is
    Wilson's interval of a proportion. Probabilities that do not tell classes apart, such as the
    same ones for all rows, determine no rate: the interval is then [0, 1].

    The interval is valid if

    1. the probabilities are of rows that were not trained on and, up to one temperature, those
       of the true class;
    2. the noise depends on the true class (and the stratum) only, not otherwise on the row;
    3. the rows are independent.

    It accounts for chance, not for a failure of these conditions. 1 fails for a model that has
    learned the wrong labels. 2 fails for human labels, since people make the same mistakes as a
    model: the rate is then too low, and ``ceiling`` is the other bound to look at. Coverage in
    simulations is in ``results/noise_rate``.

    Args:
        probabilities: Of the true class, shape (N, C), rows sum to one.
        labels: Given labels, shape (N,), integers in [0, C).
        level: In (0, 1).
        calibrate: Whether t is fitted. Otherwise it is 1, and the probabilities are not changed.
        strata: Number of strata with a matrix each. By default one for every 6000 rows and 500
            rows of a class, at least one and at most four.
        seed: Ignored, as is ``resamples``: the interval is no longer a bootstrap.
        resamples: Ignored.

    Raises:
        ArgumentError: If the arrays do not fit together, or a value is out of range.

    Examples:
        >>> probabilities = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]] * 50
        >>> estimate = estimate_noise_rate(probabilities, [0, 0, 1, 1] * 50, calibrate=False)
        >>> round(estimate.rate, 2), estimate.low < 0.2 < estimate.high, estimate.ceiling
        (0.15, True, 0.25)

    Reference:
        Rao, "Large sample tests of statistical hypotheses concerning several parameters", 1948;
        Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
        the American Statistical Association 1927.
    """
    check_interval("level", level, low=0.0, high=1.0, open_low=True, open_high=True)
    parts = _parts(probabilities, labels, strata)
    threshold = NormalDist().inv_cdf((1 + level) / 2) ** 2
    if calibrate:
        start, fair = likely_temperatures(parts, threshold)
        curves = curves_around(parts, start, float(np.sqrt(threshold)))
        # S may have further roots: where little is known, a likely t may be beyond a rejected one.
        curves += [RateCurve(parts, t) for t in fair]
    else:
        curves = [RateCurve(parts, 1.0)]
    best = curves[0]  # the root of S
    grid = _grid(curves)
    distances = [curve.distance(grid) + (curve.misfit if calibrate else 0.0) for curve in curves]
    distance = np.min(distances, axis=0)
    low, high = _where_below(grid, distance, float(distance.min() + threshold))
    is_unlikely = np.concatenate([part.log_p.argmax(axis=1) != part.given for part in parts])
    # The mean of the weights is unbiased because it may fall below zero; a rate may not.
    rate = min(max(best.rate, 0.0), 1.0)
    return RateEstimate(
        rate=rate,
        low=min(low, rate),
        high=max(high, rate),
        level=level,
        temperature=best.temperature,
        ceiling=float(is_unlikely.mean()),
    )


def estimate_transition(
    probabilities: ArrayOrTensor,
    labels: ArrayOrTensor,
    *,
    calibrate: bool = True,
    strata: int | None = None,
) -> Floats:
    """The transition matrix of maximum posterior probability, at the best temperature.

    Each row of the matrix has a Dirichlet prior worth C rows of data around the symmetric matrix,
    so pairs of classes with little data get the symmetric value. Strata are averaged by their
    share of the class. A class that no row can have keeps its labels.

    Args:
        probabilities: Of the true class, shape (N, C), rows sum to one; see `estimate_noise_rate`.
        labels: Given labels, shape (N,), integers in [0, C).
        calibrate: Whether the temperature is fitted.
        strata: Number of strata with a matrix each.

    Returns:
        Entry (i, j) estimates P(given = j | true = i), shape (C, C), rows sum to one.

    Raises:
        ArgumentError: If the arrays do not fit together.

    Examples:
        >>> probabilities = [[1.0, 0.0], [0.0, 1.0]] * 100
        >>> given = [0, 1] * 80 + [1, 1] * 20
        >>> estimate_transition(probabilities, given).round(2)
        array([[0.8, 0.2],
               [0. , 1. ]])

    Reference:
        Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm",
        Journal of the Royal Statistical Society B 1977.
    """
    parts = _parts(probabilities, labels, strata)
    t = best_temperature(parts) if calibrate else 1.0
    num_classes = parts[0].log_p.shape[1]
    joint = np.zeros((num_classes, num_classes))
    for part in parts:
        q = tempered(part.log_p, t)
        joint += q.sum(axis=0)[:, None] * fit_transition(q, part.given)
    return _with_normalised_rows(joint)


def estimate_transition_from_anchors(
    probabilities: ArrayOrTensor, *, quantile: float = 0.97
) -> NDArray[np.float64]:
    """The transition matrix, read off one row for each class.

        transition[i] = probabilities of the row at ``quantile`` by class i

    Among rows with equal probabilities of class i, the first is used.
    The model must have learned the *given* labels and be calibrated: its probabilities for a row
    that is certainly of class i are then the chances of each given label. A quantile of 1 uses the
    most certain row; a little less excludes rows that were memorised.

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
    return _with_normalised_rows(rows[anchors].astype(np.float64))


def _parts(probabilities: ArrayOrTensor, labels: ArrayOrTensor, count: int | None) -> list[Part]:
    if count is not None:
        check_integer("strata", count, low=1)
    rows, given = _check_rows(probabilities, labels)
    if rows.shape[1] > _MOST_CLASSES:
        raise ArgumentError(
            f"{rows.shape[1]} classes are too many for this estimate, which takes at most "
            f"{_MOST_CLASSES}; imae.audit.audit estimates a rate by the likely classes of each row"
        )
    if count is not None and count > len(rows):
        raise ArgumentError(f"strata must be at most the {len(rows)} rows, got {count}")
    with np.errstate(divide="ignore"):
        return divide(np.log(rows.astype(np.float64)), given, count)


def _grid(curves: list[RateCurve]) -> Floats:
    """Rates to test: all of [0, 1], and finely where the curves are."""
    width = max(curve.spread for curve in curves)
    centres = [curve.rate for curve in curves]
    fine = np.linspace(min(centres) - 6 * width, max(centres) + 6 * width, 2001)
    return np.unique(np.concatenate([np.linspace(0, 1, 1001), fine[(fine > 0) & (fine < 1)]]))


def _where_below(grid: Floats, values: Floats, height: float) -> tuple[float, float]:
    """The hull of {grid: values <= height}, with ends interpolated."""
    inside = np.flatnonzero(values <= height)
    ends = []
    for edge, out in ((inside[0], inside[0] - 1), (inside[-1], inside[-1] + 1)):
        if out < 0 or out >= len(grid) or not np.isfinite(values[out]):
            ends.append(float(grid[edge]))
        else:
            part = (height - values[edge]) / (values[out] - values[edge])
            ends.append(float(grid[edge] + part * (grid[out] - grid[edge])))
    return ends[0], ends[1]


def _with_normalised_rows(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with rows that sum to one; a row of zeros becomes that of the identity."""
    sums = matrix.sum(axis=1, keepdims=True)
    filled = np.where(sums > 0, matrix, np.eye(len(matrix)))
    return np.asarray(filled / np.where(sums > 0, sums, 1.0), dtype=np.float64)


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
