"""How sure: from scores and likely classes to probabilities of being wrong, and a noise rate."""

import warnings

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import TopClasses
from imae.audit.noise_model import NoiseModel, part_of
from imae.errors import ArgumentError, DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEIGHBOUR_WEIGHT = 0.25  # of the neighbours, against the row's own score
_USELESS, _USEFUL = 0.85, 0.95  # agreement of neighbours with labels, by that of the network
_LOST = 0.1  # predictions of a class, by its labels, below which it is not learnt
_LEVELS = 20_000
_ROOM = 1e-3  # of a score


def neighbour_weight(own: TopClasses, around: TopClasses, given: Ints, rows: Ints) -> float:
    """How much what is predicted for the neighbours counts in the score of a row, in [0, 0.25].

    It grows with how often the likeliest class of the neighbours is the given label, against how
    often that of the row itself is: nothing below 0.85 of it, all from 0.95 on.

    Args:
        own: Classes predicted for each row.
        around: Those predicted for its neighbours.
        given: Given labels, shape (N,).
        rows: Rows to compare, best such that were not trained on.
    """
    agreed = [(each.classes[rows, 0] == given[rows]).mean() for each in (own, around)]
    return NEIGHBOUR_WEIGHT * part_of(float(agreed[1] / max(agreed[0], 1e-9)), _USELESS, _USEFUL)


def noise_rate(
    model: NoiseModel,
    classes: TopClasses,
    given: Ints,
    is_unseen: NDArray[np.bool_],
    is_lost: NDArray[np.bool_],
) -> float:
    """Share of wrong labels: the mean of P(wrong) over all rows that can be judged.

    Rows that were trained on are left out where the network has memorised their labels.

    Args:
        model: The noise model, fitted to unseen rows.
        classes: Likely classes of all rows.
        given: Their given labels, shape (N,).
        is_unseen: Whether the network was not trained on the row, shape (N,).
        is_lost: Whether the label is of a class that was not learnt, shape (N,).
    """
    is_judged = is_unseen if has_memorised(classes, given, is_unseen) else np.ones_like(is_unseen)
    rows = is_judged & ~is_lost
    return float(model.wrong(classes, given)[rows].mean())


def lost_classes(classes: TopClasses, given: Ints) -> NDArray[np.bool_]:
    """Classes that the network hardly ever predicts, shape (C,), and a warning that names them."""
    number = classes.num_classes
    votes = np.bincount(classes.classes.ravel(), classes.shares.ravel(), minlength=number)
    counts = np.bincount(given, minlength=number)
    is_lost = votes < _LOST * counts
    if is_lost[counts > 0].all():
        raise DataError("the network has not learnt any class; train longer")
    if is_lost.any():
        named = ", ".join(map(str, np.flatnonzero(is_lost)[:10]))
        warnings.warn(
            f"{is_lost.sum()} of {number} classes are hardly ever predicted (numbers {named}), so "
            "the network cannot judge their labels; train longer or with another method",
            stacklevel=4,
        )
    return is_lost


def has_memorised(classes: TopClasses, given: Ints, is_unseen: NDArray[np.bool_]) -> bool:
    """Whether the network contradicts labels it was trained on less than half as often as others.

    Args:
        classes: Likely classes of all rows.
        given: Their given labels, shape (N,).
        is_unseen: Whether the network was not trained on the row, shape (N,).
    """
    differs = classes.classes[:, 0] != given
    return bool(not is_unseen.all() and 2 * differs[~is_unseen].mean() < differs[is_unseen].mean())


def as_unseen(score: Floats, is_unseen: NDArray[np.bool_]) -> Floats:
    """Scores of rows that were trained on, in the scale of those that were not.

    A network that memorises doubts the labels that it was trained on less. Both parts are drawn
    from the same rows, so a row gets the score that has its rank among the unseen rows.

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


def monotone(score: Floats, values: Floats, at: Floats) -> Floats:
    """The function of a score that never falls and is nearest to some values, at other scores.

    Isotonic regression, with straight lines between its steps; more than 20,000 scores are first
    joined to that many means of neighbouring ones.

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
    """The nearest sequence that never falls, by pooling adjacent violators."""
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
    """P(wrong | score) if wrong rows score as planted ones do, never falling in the score.

    Formula:

        P(wrong | s) = rate f_planted(s) / f_all(s)

    Planted labels are drawn evenly, so they are easier to find than mistakes between similar
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
        wrong: Estimated probability of being wrong, shape (N,), never falling in the suspicion.
        rate: Estimated share of wrong labels: so many are flagged if no precision is given.
        precision: Least estimated share of wrong labels among the flagged rows, in (0, 1].
    """
    if precision is None:
        return round(rate * len(wrong))
    ordered = wrong[np.argsort(-suspicion, kind="stable")]
    reached = np.flatnonzero(np.cumsum(ordered) / np.arange(1, len(ordered) + 1) >= precision)
    return 0 if len(reached) == 0 else int(reached[-1]) + 1


def suggestions(
    classes: TopClasses, given: Ints, wrong: Floats, is_flagged: NDArray[np.bool_]
) -> tuple[Ints, Floats]:
    """The likelier of the given class and the best other one, with its probability.

    Of a flagged row it is the best other one that is known at all: a person will look at it.
    """
    shares = np.where(classes.classes == given[:, None], -1, classes.shares)
    best = shares.argmax(1)
    rows = np.arange(len(given))
    rest = np.maximum(1 - classes.share_of(given), 1e-9)
    other = wrong * np.minimum(np.maximum(shares[rows, best], 0) / rest, 1)
    is_kept = (1 - wrong >= other) & ~(is_flagged & (shares[rows, best] > 0))
    suggested = np.where(is_kept, given, classes.classes[rows, best]).astype(np.int64)
    return suggested, np.where(is_kept, 1 - wrong, other)
