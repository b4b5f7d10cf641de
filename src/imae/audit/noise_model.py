"""Models of wrong labels: which class is mistaken for which, and on which rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import TopClasses
from imae.noise.rate_curve import fit_transition, symmetric_transition

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS_TO_FIT = 2_000_000
_ROWS_FOR_PAIRS = 200  # of each class, for a matrix of its own pairs
_FEW_PAIRS, _ALL_PAIRS = 0.25, 0.35  # chance of the likeliest mistake
_FLOOR = 0.01  # a class that no vote named is unlikely and not impossible
_POWER = 0.5  # of a class's share, in the chance that a mistake falls on it
_HIDDEN = 3.0  # mistakes that follow resemblance, by those that a count without it finds
_STEPS = 100


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """A mixture of right and wrong labels, fitted to rows that were not trained on.

    The given label y of a row of true class i is drawn from row i of a matrix T. With q(x), the
    shares of the likely classes of the row:

        P(wrong | x, y) = 1 - q_y T_yy / sum_i q_i T_iy

    T is fitted by maximum posterior with a Dirichlet prior worth C rows around the symmetric
    matrix. With fewer than 200 rows of a class it is the symmetric matrix: on CIFAR-100N a matrix
    of 10,000 pairs from 5,000 rows cost 7 points of average precision.

    Args:
        transition: T, shape (C, C).
        num_rows: Rows that it was fitted to.
        rate: Mean of P(wrong) over them.
        has_pairs: Whether T has its own chance for each pair of classes.
        ceiling: Share of them whose likeliest class is not the given one: the noise rate if the
            network never erred.
    """

    transition: Floats
    num_rows: int
    rate: float
    has_pairs: bool
    ceiling: float

    def wrong(self, classes: TopClasses, given: Ints) -> Floats:
        """P(wrong) of rows with these likely classes and given labels, shape (N,)."""
        num_classes = classes.num_classes
        rest = np.maximum(1 - classes.shares.sum(1, dtype=np.float64), 0) + _FLOOR
        even = rest / num_classes
        chance = even * self.transition.sum(0)[given]
        for slot in range(classes.classes.shape[1]):
            chance += classes.shares[:, slot] * self.transition[classes.classes[:, slot], given]
        right = (classes.share_of(given) + even) * np.diag(self.transition)[given]
        return np.asarray(1 - right / chance)

    def pair_weight(self) -> float:
        """How far the pairs of classes decide about a row, in [0, 1].

        It grows with the chance of the likeliest mistake: 0 up to 0.25, 1 from 0.35 on. Below,
        as among human labels, the pairs that the matrix knows are also those that the network
        confuses, and a row is found better by its own score.
        """
        if not self.has_pairs:
            return 0.0
        mistakes = self.transition - np.diag(np.diag(self.transition))
        return part_of(float(mistakes.max()), _FEW_PAIRS, _ALL_PAIRS)

    def interval(self, *rates: float) -> tuple[float, float]:
        """What the noise rate may be: from the least estimate to the ceiling, with 95% for chance.

        Where wrong labels look like the network's own mistakes, as people's mistakes on hard rows
        do, the data do not tell one from the other, and the estimate is too low. The ceiling
        counts all of them as wrong labels.

        Args:
            rates: Other estimates than that of this model.
        """
        low, high = min(*rates, self.rate), max(*rates, self.ceiling)
        ends = np.array([low, high])
        spread = 1.96 * np.sqrt(ends * (1 - ends) / self.num_rows)
        return max(0.0, low - float(spread[0])), min(1.0, high + float(spread[1]))


def fit_noise_model(classes: TopClasses, given: Ints) -> NoiseModel:
    """The noise model of some rows; of very many, a part is taken, evenly spread.

    Args:
        classes: Likely classes of M rows, best of rows that were not trained on.
        given: Their given labels, shape (M,).
    """
    num_classes = classes.num_classes
    rows = _rows_to_fit(len(given), num_classes)
    q, labels = _positive_shares(classes, rows), given[rows]
    own = q[np.arange(len(rows)), labels]
    transition = symmetric_transition(own, num_classes)
    has_pairs = len(rows) >= _ROWS_FOR_PAIRS * num_classes
    if has_pairs:
        transition = fit_transition(q, labels)
    right = own * np.diag(transition)[labels]
    wrong = 1 - right / (q * transition.T[labels]).sum(1)
    ceiling = float((q.argmax(1) != labels).mean())
    return NoiseModel(transition, len(rows), float(wrong.mean()), has_pairs, ceiling)


def _rows_to_fit(num_rows: int, num_classes: int) -> Ints:
    """Positions of the rows that a model is fitted to: all, or so many that it stays quick."""
    most = min(max(1000, _CELLS_TO_FIT // num_classes), num_rows)
    return np.unique(np.linspace(0, num_rows - 1, most).astype(np.int64))


def _positive_shares(classes: TopClasses, rows: Ints) -> Floats:
    """Shares of all classes for some rows, shape (M, C): none is zero, and they sum to one."""
    return (classes.dense(rows) + _FLOOR / classes.num_classes) / (1 + _FLOOR)


def part_of(value: float, low: float, high: float) -> float:
    """How far a value is on the way from one to another, in [0, 1]."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def resemblance(q: Floats, given: Ints) -> float:
    """How far mistakes fall on classes that look alike: 0 if on all classes evenly, 1 if wholly.

    Formula:

        a = sum_iy (M_iy - M_i u) (S_iy - u) / sum_iy M_i (S_iy - u)^2,   u = 1 / (C - 1),

    with S_iy the part of sum_x q_i(x) q_y(x) that class y has among all y != i, and M_iy the
    mistakes of class i for y that are expected under symmetric noise, M_i those of class i. Such
    noise takes a mistake for a right label where the row looks like its label, so that a is too
    low, by a half to two thirds in results/audit: the result is 3 a, within [0, 1].

    Args:
        q: Shares of the likely classes of M rows, shape (M, C), positive, rows sum to one.
        given: Their given labels, shape (M,).

    Examples:
        >>> pairs = np.array([[0.7, 0.2, 0.05, 0.05], [0.2, 0.7, 0.05, 0.05]])
        >>> q = np.concatenate([pairs, pairs[:, ::-1]])      # 0 looks like 1, and 2 like 3
        >>> resemblance(np.repeat(q, 2, axis=0), np.array([0, 1, 1, 0, 3, 2, 2, 3]))
        1.0
    """
    num_classes = q.shape[1]
    rows = np.arange(len(given))
    transition = symmetric_transition(q[rows, given], num_classes)
    chance = q * transition.T[given]
    chance /= chance.sum(1, keepdims=True)
    chance[rows, given] = 0
    mistakes = np.stack([np.bincount(given, each, minlength=num_classes) for each in chance.T])
    even = (1 - np.eye(num_classes)) / (num_classes - 1)
    alike = q.T @ q * (even > 0)
    alike /= alike.sum(1, keepdims=True)
    of_class = mistakes.sum(1, keepdims=True)
    part = ((mistakes - of_class * even) * (alike - even)).sum()
    whole = (of_class * (alike - even) ** 2).sum()
    return float(np.clip(_HIDDEN * part / max(whole, 1e-12), 0, 1))


def wrong_by_resemblance(
    classes: TopClasses, given: Ints, transition: Floats
) -> tuple[Ints, Floats]:
    """P(wrong) if mistakes fall on what a row looks like.

    Formula:

        P(y | i, x) = 1 - r_i                                                     for y = i,
                      r_i K_iy (1 - s + s q_y(x)^0.5 / sum_j K_ij q_j(x)^0.5)     otherwise,

    with K_iy the chance of y among the mistakes of class i, s the `resemblance`, and r_i the part
    of class i that is wrong, fitted by expectation maximisation with a prior worth C rows. At
    s = 0 it is the `NoiseModel`, which is too low for the labels of people: they err on the rows
    on which a network does.

    Args:
        classes: Likely classes of N rows that were not trained on, as often wrong as they say.
        given: Their given labels, shape (N,).
        transition: The matrix of the `NoiseModel`, shape (C, C); if it is symmetric, all classes
            have one r.

    Returns:
        Positions of the rows that it is fitted to, shape (M,), and their P(wrong), shape (M,).
    """
    fitted = _rows_to_fit(len(given), classes.num_classes)
    q, given = _positive_shares(classes, fitted), given[fitted]
    num_rows, num_classes = q.shape
    rows = np.arange(num_rows)
    mistakes = transition * (1 - np.eye(num_classes))
    kinds = mistakes / mistakes.sum(1, keepdims=True)
    looks = q**_POWER
    share = resemblance(q, given)
    towards = looks[rows, given, None] / (looks @ kinds.T)
    joint = q * kinds.T[given] * (1 - share + share * towards)
    own = q[rows, given]
    is_even = bool(np.ptp(kinds[~np.eye(num_classes, dtype=bool)]) < 1e-9)
    rates = mistakes.sum(1)
    for _ in range(_STEPS):
        errors = joint * rates
        right = own * (1 - rates[given])
        total = right + errors.sum(1)
        right = right / total
        mean = (num_rows - right.sum() + 0.5) / (num_rows + 1)
        before = rates
        if is_even:
            rates = np.full(num_classes, mean)
        else:
            wrong = (errors / total[:, None]).sum(0) + num_classes * mean
            kept = np.bincount(given, right, minlength=num_classes) + num_classes * (1 - mean)
            rates = wrong / (wrong + kept)
        if np.abs(rates - before).max() < 1e-5:
            break
    return fitted, np.asarray(1 - right)
