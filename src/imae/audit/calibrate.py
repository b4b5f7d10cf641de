"""Calibration: scores and probabilities corrected, and what follows: flags and suggestions."""

import math

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import TopClasses, blocks, likely_classes
from imae.audit.noise_model import fit_noise_model, ramp, rows_to_fit, surest_rows
from imae.errors import ArgumentError, check_interval
from imae.noise.rate_curve import tempered

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Probabilities = NDArray[np.floating]

_FULL_WEIGHT = 0.25  # of the neighbours, against the row's own score
_USELESS, _USEFUL = 0.85, 0.95  # agreement of neighbours with labels, relative to the network's
_LEVELS = 20_000
_ROOM = 1e-3  # of a score
_SUREST_ROW = 0.75  # probability of being wrong, if perhaps no label is
_LEAST_WRONG = 0.05  # probability of being wrong below which a row is not worth a look
_LARGEST_POWER = 16.0
_HALVINGS = 10
_NEAR = 0.99  # of the longest row: rows from there on are at the cap
_SHARE = 0.1  # of the rows that are at the cap, if there is one
_DISTINCT = 20  # of them that differ: a tree or a table repeats a few rows exactly
_SURE = 0.99  # probability that the cap is brought to
_TINY = 1e-12


def neighbour_weight(own: TopClasses, around: TopClasses, given: Ints, rows: Ints) -> float:
    """How much the neighbours count in the score of a row, in [0, 0.25].

    It grows with how often the likeliest class of the neighbours is the given label, divided by
    how often that of the row itself is: 0 below a ratio of 0.85, the full weight from 0.95 on.

    Args:
        own: Classes predicted for each row.
        around: Those predicted for its neighbours.
        given: Given labels, shape (N,).
        rows: Rows to compare, preferably not trained on.
    """
    agreed = [(each.classes[rows, 0] == given[rows]).mean() for each in (own, around)]
    return _FULL_WEIGHT * ramp(float(agreed[1] / max(agreed[0], 1e-9)), _USELESS, _USEFUL)


def surest_row(rate: float, low: float) -> float:
    """The highest probability of being wrong that a row can have, in [0.75, 1].

    Formula:

        min(1, 3/4 + low / rate)

    If perhaps no label is wrong, no row is wrong for sure: its probability stays in the middle
    between an even chance and certainty, and no row is flagged at a precision of 0.9.

    Args:
        rate: The estimated noise rate, in [0, 1].
        low: Where its range begins.

    Examples:
        >>> surest_row(0.2, 0.0), surest_row(0.2, 0.02), surest_row(0.2, 0.1)
        (0.75, 0.85, 1.0)
    """
    return min(1.0, _SUREST_ROW + low / max(rate, _TINY))


def as_unseen(score: Floats, is_unseen: NDArray[np.bool_]) -> Floats:
    """Brings the scores of rows that were trained on to the scale of those that were not.

    A network that memorises doubts the labels that it was trained on less. Both parts are drawn
    from the same rows, so a row gets the score with the same rank among the unseen rows.

    Args:
        score: Shape (N,).
        is_unseen: Whether the network was not trained on the row, shape (N,).

    Examples:
        >>> as_unseen(np.array([0.1, 0.2, 0.5, 0.9]), np.array([False, False, True, True])).round(2)
        array([0.5, 0.9, 0.5, 0.9])
    """
    if is_unseen.all():
        return score
    unseen = np.sort(score[is_unseen])
    order = np.argsort(score[~is_unseen], kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = (np.arange(len(order)) + 0.5) / len(order)
    # Beyond the last unseen row there is a little room, so that no two rows become equal.
    at = np.concatenate([[0.0], (np.arange(len(unseen)) + 0.5) / len(unseen), [1.0]])
    values = np.concatenate([[unseen[0] - _ROOM], unseen, [unseen[-1] + _ROOM]])
    mapped = score.copy()
    mapped[~is_unseen] = np.interp(ranks, at, values)
    return mapped


def at_equal_rank(values: Floats, among: Floats, scale: Floats) -> Floats:
    """For each value of one score, the value of another score with the same rank, shape (N,).

    A row in the upper tenth of some rows by one score gets the upper tenth of their other score.

    Args:
        values: Shape (N,).
        among: Values of other rows by the same score, shape (M,).
        scale: The other score of those rows, shape (M,).

    Examples:
        >>> at_equal_rank(np.array([0.1, 9.0]), np.array([0.0, 1.0]), np.array([10.0, 20.0]))
        array([15., 20.])
    """
    ordered = np.sort(among)
    sides = [np.searchsorted(ordered, values, side) for side in ("left", "right")]
    return np.asarray(np.quantile(scale, np.mean(sides, axis=0) / len(among)))


def monotone(score: Floats, values: Floats, at: Floats) -> Floats:
    """The non-decreasing function of a score that is nearest to some values, at other scores.

    Isotonic regression with linear interpolation; more than 20,000 scores are first
    averaged into that many groups of neighbouring ones.

    Args:
        score: Shape (M,).
        values: Shape (M,).
        at: Scores to evaluate at, shape (N,).

    Examples:
        >>> monotone(np.array([0.0, 1.0, 2.0]), np.array([0.1, 0.5, 0.3]), np.array([0.0, 1.5]))
        array([0.1, 0.4])
    """
    if len(score) > _LEVELS:
        groups = np.array_split(np.argsort(score, kind="stable"), _LEVELS)
        starts = np.cumsum([0, *map(len, groups[:-1])])
        order, sizes = np.concatenate(groups), np.array([len(group) for group in groups])
        score, values = (np.add.reduceat(each[order], starts) / sizes for each in (score, values))
    levels, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=values) / counts
    return np.interp(at, levels, _never_falling(means, counts.astype(np.float64)))


def _never_falling(values: Floats, weights: Floats) -> Floats:
    """The nearest non-decreasing sequence, by pooling adjacent violators."""
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for value, mass in zip(values.tolist(), weights.tolist(), strict=True):
        size = 1
        while means and means[-1] >= value:
            before, weight = means.pop(), masses.pop()
            value = (before * weight + value * mass) / (weight + mass)
            mass += weight
            size += sizes.pop()
        means.append(value)
        masses.append(mass)
        sizes.append(size)
    return np.repeat(means, sizes)


def planted_probability(score: Floats, planted: Floats, rate: float) -> Floats:
    """P(wrong | score) if wrong rows score like planted ones, non-decreasing in the score.

    Formula:

        P(wrong | s) = rate f_planted(s) / f_all(s)

    Planted labels are drawn uniformly, so they are easier to find than mistakes between similar
    classes: this probability is cautious in the middle and holds for uniform noise.

    Args:
        score: Of all rows, shape (N,); higher is more suspect.
        planted: Of rows with a planted wrong label, shape (M,).
        rate: Share of wrong labels.

    Raises:
        ArgumentError: If there is no planted row.
    """
    if len(planted) == 0:
        raise ArgumentError("planted: no row has a planted label; set data.planted=0.03")
    both = np.concatenate([score, planted])
    is_planted = np.repeat([0.0, 1.0], [len(score), len(planted)])
    part = np.minimum(monotone(both, is_planted, score), 1 - 1e-9)
    ratio = part / (1 - part) * len(score) / len(planted)
    return np.asarray(np.minimum(rate * ratio, 1.0))


def flag_count(suspicion: Floats, wrong: Floats, rate: float, precision: float | None) -> int:
    """How many rows to flag, most suspect first.

    Args:
        suspicion: Shape (N,).
        wrong: Estimated probability of being wrong, shape (N,), non-decreasing in the suspicion.
        rate: Estimated share of wrong labels: this share is flagged if no precision is given, but
            no row that is wrong with a probability below 5%; the rate of few rows may be too high.
        precision: Lowest estimated share of wrong labels among the flagged rows, in (0, 1].
    """
    if precision is None:
        return min(round(rate * len(wrong)), int((wrong >= _LEAST_WRONG).sum()))
    ordered = wrong[np.argsort(-suspicion, kind="stable")]
    reached = np.flatnonzero(np.cumsum(ordered) / np.arange(1, len(ordered) + 1) >= precision)
    return 0 if len(reached) == 0 else int(reached[-1]) + 1


def suggestions(
    classes: TopClasses, given: Ints, wrong: Floats, is_flagged: NDArray[np.bool_]
) -> tuple[Ints, Floats]:
    """The best other class of every flagged row, if any is known, with its probability.

    The label of a row that is not flagged is believed: its suggestion is the given class.
    """
    shares = np.where(classes.classes == given[:, None], -1, classes.shares)
    best = shares.argmax(1)
    rows = np.arange(len(given))
    rest = np.maximum(1 - classes.share_of(given), 1e-9)
    other = wrong * np.minimum(np.maximum(shares[rows, best], 0) / rest, 1)
    is_kept = ~is_flagged | (shares[rows, best] <= 0)
    suggested = np.where(is_kept, given, classes.classes[rows, best]).astype(np.int64)
    return suggested, np.where(is_kept, 1 - wrong, other)


def sharpened(probabilities: Probabilities, given: Ints, rows: Ints) -> Probabilities:
    """The probabilities to a power at which the noise model says what the surest rows say.

    Formula:

        softmax(t log p)

    A model that was trained on wrong labels is calibrated if it gives a plain row of class i the
    chances of row i of T. Read as the probabilities of its true class these leave no room for wrong
    labels, and an over-trained model leaves too much. The likelihood of the labels cannot tell:
    without any noise, t = 1 fits a calibrated model best. How often labels are contradicted where
    the class is plainest (``SurestRows``) can, and t is what brings the mixture there. Where it is
    there already, by two standard deviations, the probabilities stay as they are.

    Args:
        probabilities: Shape (N, C), rows summing to one.
        given: Given labels, shape (N,).
        rows: Rows to fit t to; of many a part is taken.

    Examples:
        >>> sure, unsure = [[0.8, 0.2]] * 100, [[0.6, 0.4]] * 100    # of which 20 and 35 differ
        >>> p, given = np.array(sure + unsure), np.repeat([0, 1, 0, 1], [80, 20, 65, 35])
        >>> sharpened(p, given, np.arange(200))[[0, -1]].round(2).tolist()
        [[0.99, 0.01], [0.79, 0.21]]
    """
    rows = rows[rows_to_fit(len(rows), probabilities.shape[1])]
    labels = given[rows]
    wanted = surest_rows(likely_classes(probabilities[rows]), labels)
    log_p = _logarithm(probabilities[rows])

    def excess(power: float) -> float:
        return fit_noise_model(likely_classes(tempered(log_p, power)), labels).rate - wanted.rate

    now = excess(1.0)
    if abs(now) <= 2 * wanted.spread:
        return probabilities
    near, far = 0.0, math.copysign(math.log(_LARGEST_POWER), -now)
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        near, far = (middle, far) if excess(math.exp(middle)) * now > 0 else (near, middle)
    power = math.exp((near + far) / 2)
    raised = np.empty_like(probabilities)
    for each in blocks(*probabilities.shape):
        raised[each] = tempered(_logarithm(probabilities[each]), power)
    return raised


def _logarithm(probabilities: Probabilities) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probabilities.astype(np.float64))


def find_cap(probabilities: Probabilities) -> float | None:
    """The largest probability that the model can give, if many rows have reached it.

    ``imae.cap_logits`` shortens the centred logits of a row to one length, whatever their
    direction. So with a cap, many different rows have the same length, which is the longest;
    without one, the lengths have a long thin tail.

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


def stretched(probabilities: Probabilities, cap: float | None) -> Probabilities:
    """The probabilities without the cap on the model's confidence: the cap becomes 0.99.

    Formula, with z' the logits of a row less their mean and b(p) the length of centred logits that
    give one class the probability p (``imae.cap_logits``):

        softmax(z' b(0.99) / b(cap))

    A model that gives no class more than 0.75 seems to consider every label possible, and most
    wrong ones would be missed. How certain rows at the cap were is lost; rows below it were less
    certain, and stay so. With labels that were changed on purpose, 0.99 came nearer to the true
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


def _centred(probabilities: Probabilities) -> Probabilities:
    logits = np.log(np.maximum(probabilities, _TINY))
    return np.asarray(logits - logits.mean(1, keepdims=True))


def _length(p: float, num_classes: int) -> float:
    """Length of the centred logits, up to a factor that depends only on the number of classes."""
    return math.log(p) - math.log1p(-p) + math.log(num_classes - 1)
