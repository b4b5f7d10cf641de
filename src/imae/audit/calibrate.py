"""Calibration: the probability of being wrong, from scores, likely classes and probabilities."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from imae.audit.evidence import TopClasses, blocks, likely_classes
from imae.errors import ArgumentError, check_interval
from imae.noise.rate_curve import fit_transition, symmetric_transition, tempered
from imae.records.measures import wilson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Probabilities = NDArray[np.floating]

_CELLS_TO_FIT = 2_000_000
_ROWS_TO_FIT = 20_000  # that noise depending on the row is fitted to, at most
FEWEST_ROWS = 1000  # for noise that depends on the row: of 300 rows any part may be overlap
_ROWS_FOR_PAIRS = 200  # of each class, for a matrix of its own pairs
_FULL_WEIGHT = 0.25  # of the neighbours, against the row's own score
_USELESS, _USEFUL = 0.85, 0.95  # agreement of neighbours with labels, relative to the network's
_FEW_PAIRS, _ALL_PAIRS = 0.25, 0.35  # chance of the likeliest mistake
_AROUND = 0.45  # weight of the neighbours' votes, where the noise depends on the row
_ROW_FLOOR = 0.005
_STEPS = 100  # of EM
_SLOPE_SPREAD = 2.0
_FLOOR = 0.01  # a class without votes is unlikely, but not impossible
_LEVELS = 20_000
_ROOM = 1e-3  # of a score
_NEAR = 0.99  # of the longest row: rows from there on are at the cap
_SHARE = 0.1  # of the rows that are at the cap, if there is one
_DISTINCT = 20  # of them that differ: a tree or a table repeats a few rows exactly
_SURE = 0.99  # probability that the cap is brought to
_TINY = 1e-12
_SUREST = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)  # parts of the rows, the surest
_FALLING = (0.5, 0.25)  # such a part and the surer half of it show how the share still falls
_LINE_Z = 1.5  # standard deviations by which a line must be lower than all parts to count
_Z = 1.96  # of a range of 95%
_MEMORISED = 0.5  # trained labels are contradicted less often than this part of the others
_SUREST_ROW = 0.75  # probability of being wrong, if perhaps no label is
_LARGEST_POWER = 16.0
_HALVINGS = 10


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
        return _ramp(float(mistakes.max()), _FEW_PAIRS, _ALL_PAIRS)

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
    rows = _rows_to_fit(len(given), num_classes)
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
    floor = surest_rows(_taken(classes, rows), labels).floor
    return NoiseModel(transition, len(rows), float(wrong.mean()), has_pairs, ceiling, floor)


def _rows_to_fit(number: int, num_classes: int) -> Ints:
    """Positions of a part of so many rows, evenly spread, or of all."""
    most = max(1000, _CELLS_TO_FIT // num_classes)
    return np.unique(np.linspace(0, number - 1, min(most, number)).astype(np.int64))


def _taken(classes: TopClasses, rows: Ints) -> TopClasses:
    return TopClasses(classes.classes[rows], classes.shares[rows], classes.num_classes)


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
    return _FULL_WEIGHT * _ramp(float(agreed[1] / max(agreed[0], 1e-9)), _USELESS, _USEFUL)


def _ramp(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


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
    return min(1.0, max(0.5 + low / max(rate, _TINY), (1 + again) / 2))


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


_LEAST_WRONG = 0.05  # probability of being wrong below which a row is not worth a look


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
    rows = rows[_rows_to_fit(len(rows), probabilities.shape[1])]
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
