"""The noise model: how often labels are wrong, in all rows and in rows like one of them."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import TopClasses, blocks
from imae.noise.rate_curve import fit_transition, symmetric_transition
from imae.records.measures import wilson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS_TO_FIT = 2_000_000
_ROWS_TO_FIT = 20_000  # that noise depending on the row is fitted to, at most
FEWEST_ROWS = 1000  # for noise that depends on the row: of 300 rows any part may be overlap
_ROWS_FOR_PAIRS = 200  # of each class, for a matrix of its own pairs
_FEW_PAIRS, _ALL_PAIRS = 0.25, 0.35  # chance of the likeliest mistake
_AROUND = 0.45  # weight of the neighbours' votes, where the noise depends on the row
_ROW_FLOOR = 0.005
_STEPS = 100  # of EM
_SLOPE_SPREAD = 2.0
_FLOOR = 0.01  # a class without votes is unlikely, but not impossible
_LEAST_RATE = 1e-12  # that anything is divided by
_SUREST = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)  # parts of the rows, the surest
_FALLING = (0.5, 0.25)  # such a part and the surer half of it show how the share still falls
_LINE_Z = 1.5  # standard deviations by which a line must be lower than all parts to count
_Z = 1.96  # of a range of 95%
_MEMORISED = 0.5  # trained labels are contradicted less often than this part of the others


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
        num_rows: Rows that were not trained on, of those that it was fitted to.
        rate: Mean of P(wrong) over them.
        has_pairs: Whether T has its own chance for each pair of classes.
        ceiling: Share of them whose likeliest class is not the given one: the noise rate if the
            network never erred.
        floor: The least that the rows whose class is plainest allow for (``SurestRows``).
    """

    transition: Floats
    num_rows: int
    rate: float
    has_pairs: bool
    ceiling: float
    floor: float

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
        """Weight of the pairs of classes in the score of a row, in [0, 1].

        It grows with the chance of the likeliest mistake: 0 up to 0.25, 1 from 0.35 on. Below
        that, as with human labels, the frequent pairs of the matrix are also those that the
        network confuses, and a row's own score is the better one.
        """
        if not self.has_pairs:
            return 0.0
        mistakes = self.transition - np.diag(np.diag(self.transition))
        return ramp(float(mistakes.max()), _FEW_PAIRS, _ALL_PAIRS)

    def interval(self, rate: float) -> tuple[float, float]:
        """What the noise rate may be: from the floor to the ceiling, with 95% for chance.

        Where wrong labels look like the network's own mistakes, as people's mistakes on hard rows
        do, the data do not tell one from the other, and the estimate is too low. The ceiling
        counts all of them as wrong labels. Where labels are contradicted because classes overlap,
        the estimate is too high, and the floor counts only what is contradicted where the class is
        plain. Both ends are moved outwards by chance as Wilson's interval is.

        Args:
            rate: The estimate, over all rows.
        """
        low, _ = wilson(min(rate, self.rate), self.num_rows)
        _, high = wilson(max(rate, self.ceiling), self.num_rows)
        return min(low, self.floor), high


@dataclass(frozen=True, eq=False)
class SurestRows:
    """How often labels are contradicted where the class is plainest.

    If the chance of a wrong label does not depend on the row but on its class, no part of the rows
    of a class is contradicted less often than labels are wrong, and rows that are plainly of their
    class are contradicted exactly so often. Only the order of the probabilities counts here, so it
    does not matter whether a model is too sure of itself or not sure enough.

    Of the rows for which a class is predicted, the surest 100% to 12% are looked at, for all
    classes together. Rows of equal probability stay together. Where classes overlap so much that no
    row is plain, the share still falls there; so it is also read off a straight line at the very
    surest row, from the surer half (or quarter) of the rows to the surer half of these.

    Args:
        rate: The share of contradicted labels whose upper end, by one standard deviation or 1.5 for
            a line, is the lowest.
        spread: Its standard deviation.
        floor: The lowest lower end of all, of a range of 95%.
    """

    rate: float
    spread: float
    floor: float


def surest_rows(classes: TopClasses, given: Ints) -> SurestRows:
    """What the surest rows say of the noise rate.

    Args:
        classes: Likely classes of the rows, best such that were not trained on.
        given: Their given labels, shape (M,).

    Examples:
        >>> from imae.audit.evidence import likely_classes
        >>> sure, unsure = [[0.9, 0.1]] * 100, [[0.6, 0.4]] * 100    # of which 10 and 40 differ
        >>> given = np.repeat([0, 1, 0, 1], [90, 10, 60, 40])
        >>> surest_rows(likely_classes(np.array(sure + unsure)), given).rate
        0.1
    """
    predicted, sure = classes.classes[:, 0], classes.shares[:, 0]
    rank = np.empty(len(given))  # from above, as a part of the rows of the same prediction
    for each in np.unique(predicted):
        rows = np.flatnonzero(predicted == each)
        rank[rows] = np.searchsorted(np.sort(-sure[rows]), -sure[rows]) / len(rows)
    differs = predicted != given

    def share(part: float) -> tuple[float, int]:
        rows = np.flatnonzero(rank < part)
        return float(differs[rows].mean()), len(rows)

    ends = []  # upper end, share, its standard deviation
    lows = []
    for part in _SUREST:
        found, number = share(part)
        upper = wilson(found, number, z=1.0)[1]
        ends.append((upper, found, upper - found))
        lows.append(wilson(found, number)[0])
    for part in _FALLING:
        (outer, number), (inner, _) = share(part), share(part / 2)
        found = max(0.0, 2 * inner - outer)
        # It is 1.5 times one half less 0.5 times the other, each of n / 2 rows.
        spread = math.sqrt(5 * (outer * (1 - outer) + 1 / number) / number)
        ends.append((found + _LINE_Z * spread, found, spread))
        lows.append(max(0.0, found - _Z * spread))
    _, rate, spread = min(ends)
    return SurestRows(rate, spread, min(lows))


def fit_noise_model(classes: TopClasses, given: Ints) -> NoiseModel:
    """Fits the noise model to some rows; if there are very many, to an evenly spaced part.

    Args:
        classes: Likely classes of M rows, preferably of rows that were not trained on.
        given: Their given labels, shape (M,).
    """
    num_classes = classes.num_classes
    rows = rows_to_fit(len(given), num_classes)
    q = (classes.dense(rows) + _FLOOR / num_classes) / (1 + _FLOOR)
    labels = given[rows]
    own = q[np.arange(len(rows)), labels]
    transition = symmetric_transition(own, num_classes)
    has_pairs = len(rows) >= _ROWS_FOR_PAIRS * num_classes
    if has_pairs:
        transition = fit_transition(q, labels)
    right = own * np.diag(transition)[labels]
    wrong = 1 - right / (q * transition.T[labels]).sum(1)
    ceiling = float((q.argmax(1) != labels).mean())
    floor = surest_rows(classes.taken(rows), labels).floor
    return NoiseModel(transition, len(rows), float(wrong.mean()), has_pairs, ceiling, floor)


def rows_to_fit(number: int, num_classes: int) -> Ints:
    """Positions of a part of so many rows, evenly spread, or of all."""
    most = max(1000, _CELLS_TO_FIT // num_classes)
    return np.unique(np.linspace(0, number - 1, min(most, number)).astype(np.int64))


def ramp(value: float, low: float, high: float) -> float:
    """A weight that grows from 0 at ``low`` to 1 at ``high``."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class RowNoise:
    """A mixture of right and wrong labels in which the noise depends on the row.

    People err where a network errs: on hard rows, and in favour of classes that the row resembles.
    With q(x), the shares of its likely classes, and H(x), their entropy divided by log C:

        P(wrong | x) = sigmoid(level + slope H(x))
        P(label y | wrong, true class i) = alike q_y / (1 - q_i) + (1 - alike) / (C - 1)

    The shares are those predicted for the row and, with a weight of 0.45, for its neighbours: one
    network alone is too sure of itself. They stay as they are, without a temperature: flatter
    shares with less noise would fit the labels as well.

    Args:
        level: Log-odds of a wrong label where the class is certain.
        slope: How much they are higher for a row that could be of any class.
        alike: Share of the mistakes that follow resemblance.
    """

    level: float = -1.5
    slope: float = 0.0
    alike: float = 0.5

    def wrong(self, own: TopClasses, around: TopClasses, given: Ints) -> Floats:
        """P(wrong) of rows by their labels, predictions and neighbours' predictions, shape (N,)."""
        found = np.empty(len(given))
        for rows in blocks(len(given), own.num_classes):
            found[rows] = self._wrong(_chances(own, around, given, rows))[0]
        return found

    def _wrong(self, chances: "_Chances") -> tuple[Floats, Floats, Floats]:
        """P(wrong), the part of it by resemblance, and the chance of the given label."""
        rate = self._rate(chances.hardness)
        right = (1 - rate) * chances.right
        alike = rate * self.alike * chances.alike
        total = right + alike + rate * (1 - self.alike) * chances.even
        return 1 - right / total, alike / total, total

    def _rate(self, hardness: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-self.level - self.slope * hardness)))

    def _improved(self, chances: "_Chances") -> "RowNoise":
        """One step of EM, with one of Newton for the level and the slope."""
        wrong, alike, _ = self._wrong(chances)
        rate = self._rate(chances.hardness)
        rise = wrong - rate
        bend = rate * (1 - rate)
        moments = [float((bend * chances.hardness**power).sum()) for power in range(3)]
        # Half a row right and half wrong keep the level finite, a prior keeps the slope small.
        level_rise = float(rise.sum()) + 0.5 - float(self._rate(np.zeros(1))[0])
        slope_rise = float((rise * chances.hardness).sum()) - self.slope / _SLOPE_SPREAD**2
        matrix = np.array([[moments[0] + 0.25, moments[1]], [moments[1], moments[2]]])
        matrix[1, 1] += 1 / _SLOPE_SPREAD**2
        step = np.linalg.solve(matrix, [level_rise, slope_rise])
        share = (alike.sum() + 1) / (wrong.sum() + 2)
        level, slope = self.level + float(step[0]), self.slope + float(step[1])
        return replace(self, level=level, slope=slope, alike=float(share))


@dataclass(frozen=True, eq=False)
class _Chances:
    """H(x) of each row, and three chances of its given label, each of shape (N,).

    The chances that it is the true class, a mistake by resemblance, and a uniform mistake.
    """

    hardness: Floats
    right: Floats
    alike: Floats
    even: Floats


def _chances(own: TopClasses, around: TopClasses, given: Ints, rows: Ints) -> _Chances:
    num_classes = own.num_classes
    q = (1 - _AROUND) * own.dense(rows) + _AROUND * around.dense(rows)
    q = (q + _ROW_FLOOR / num_classes) / (1 + _ROW_FLOOR)
    at = np.arange(len(rows)), given[rows]
    odds = q / (1 - q)
    hardness = -(q * np.log(q)).sum(1) / math.log(num_classes)
    alike = q[at] * (odds.sum(1) - odds[at])
    return _Chances(hardness, q[at], alike, (1 - q[at]) / (num_classes - 1))


def fit_row_noise(own: TopClasses, around: TopClasses, given: Ints, rows: Ints) -> RowNoise:
    """Fits the noise to the predictions for some rows and for their neighbours.

    Args:
        own: Classes predicted for each row.
        around: Those predicted for its neighbours.
        given: Given labels, shape (N,).
        rows: Rows to fit it to, preferably not trained on; if there are many, a part is used.
    """
    most = max(1000, min(_ROWS_TO_FIT, _CELLS_TO_FIT // own.num_classes))
    rows = rows[:: math.ceil(len(rows) / most)]
    chances = _chances(own, around, given, rows)
    model = RowNoise()
    for _ in range(_STEPS):
        model = model._improved(chances)
    return model


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
        is_lost: Whether the label is of a class that was not learned, shape (N,).
    """
    is_judged = is_unseen if has_memorised(classes, given, is_unseen) else np.ones_like(is_unseen)
    rows = is_judged & ~is_lost
    return float(model.wrong(classes, given)[rows].mean())


def has_memorised(classes: TopClasses, given: Ints, is_unseen: NDArray[np.bool_]) -> bool:
    """Whether the network contradicts labels it was trained on less than half as often as others.

    Args:
        classes: Likely classes of all rows.
        given: Their given labels, shape (N,).
        is_unseen: Whether the network was not trained on the row, shape (N,).
    """
    return contradicted_again(classes, given, is_unseen) < _MEMORISED


def contradicted_again(classes: TopClasses, given: Ints, is_unseen: NDArray[np.bool_]) -> float:
    """How often labels that were trained on are contradicted, relative to others, at most 1.

    Args:
        classes: Likely classes of all rows.
        given: Their given labels, shape (N,).
        is_unseen: Whether the network was not trained on the row, shape (N,).
    """
    differs = classes.classes[:, 0] != given
    if is_unseen.all() or not differs[is_unseen].any():
        return 1.0
    return min(1.0, float(differs[~is_unseen].mean() / differs[is_unseen].mean()))


def trusted_part(rate: float, low: float, again: float) -> float:
    """How much to believe of a noise rate that held-out rows say, in [0.5, 1].

    Formula:

        min(1, max(1/2 + low / rate, (1 + again) / 2)), or 1 if again is at least 1/2

    A network that has memorised its rows contradicts held-out labels because they are wrong, or
    because it has learned nothing that holds for other rows. Labels that it still contradicts where
    it was trained on them are of the first kind, but the wrong labels that it has memorised are
    missing there. So the truth is between this part of the rate and the whole, and the middle is
    taken, unless the surest rows show more.

    Args:
        rate: The estimate, in [0, 1].
        low: Where its range begins.
        again: Result of ``contradicted_again``.

    Examples:
        >>> [round(trusted_part(0.2, *each), 2) for each in ((0, 0.1), (0.06, 0.1), (0, 0.6))]
        [0.55, 0.8, 1.0]
    """
    if again >= _MEMORISED:
        return 1.0
    return min(1.0, max(0.5 + low / max(rate, _LEAST_RATE), (1 + again) / 2))
