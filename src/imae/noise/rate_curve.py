"""The rate of wrong labels at one temperature: unbiased weights, and a score for the temperature.

The model of ``imae.noise.estimate``: q(x) = softmax(t log p(x)) are the probabilities of the true
class, and a row of class i is given label j with probability T_ij.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae.errors import ArgumentError
from imae.noise.by_class import ArrayOrTensor, as_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that share a transition matrix.

    Args:
        rows: Their positions among all rows, shape (N,).
        log_p: Logarithms of their probabilities, shape (N, C); minus infinity is fine.
        given: Their labels, shape (N,).
    """

    rows: Ints
    log_p: Floats
    given: Ints


def strata(log_p: Floats, given: Ints, count: int | None) -> list[Part]:
    """The rows in parts of equal size, from the least to the most certain ones.

    Args:
        log_p: Logarithms of the probabilities, shape (N, C).
        given: Labels, shape (N,).
        count: Number of parts, or None for one for every 6000 rows and 500 rows of a class, at
            least one and at most four.
    """
    num_rows, num_classes = log_p.shape
    parts = count or min(4, max(1, num_rows // max(6000, 500 * num_classes)))
    top = np.partition(log_p, -2, axis=1)
    with np.errstate(invalid="ignore"):
        order = np.argsort(top[:, -1] - top[:, -2], kind="stable")
    return [Part(rows, log_p[rows], given[rows]) for rows in np.array_split(order, parts)]


def tempered(log_p: Floats, t: float) -> Floats:
    """softmax(t log p)."""
    scaled = t * log_p
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _symmetric_rate(own: Floats, num_classes: int) -> float:
    """EM for r in P = (1 - r) q_y + r (1 - q_y) / (C - 1), with half a row right and half wrong."""
    rate = 0.2
    for _ in range(200):
        wrong = rate * (1 - own) / (num_classes - 1)
        right = (1 - rate) * own
        new = float(((wrong / (wrong + right)).sum() + 0.5) / (len(own) + 1))
        if abs(new - rate) < 1e-7:
            break
        rate = new
    return rate


def _symmetric(rate: float, num_classes: int) -> Floats:
    return np.where(np.eye(num_classes) > 0, 1 - rate, rate / (num_classes - 1))


def symmetric_transition(own: Floats, num_classes: int) -> Floats:
    """The symmetric T of the likeliest rate, from q of each row's given label, shape (N,)."""
    return _symmetric(_symmetric_rate(own, num_classes), num_classes)


def fit_transition(q: Floats, given: Ints, *, steps: int = 30) -> Floats:
    """EM for T with a Dirichlet prior worth C rows around the symmetric matrix."""
    num_classes = q.shape[1]
    prior = symmetric_transition(q[np.arange(len(q)), given], num_classes)
    order = np.argsort(given, kind="stable")
    q, given = q[order], given[order]
    present, starts = np.unique(given, return_index=True)
    matrix = prior
    for _ in range(steps):
        posterior = q * matrix.T[given]
        posterior /= posterior.sum(axis=1, keepdims=True)
        counts = num_classes * prior
        counts[:, present] += np.add.reduceat(posterior, starts, axis=0).T
        matrix = counts / counts.sum(axis=1, keepdims=True)
    return matrix


def _height(parts: list[Part], t: float) -> float:
    """L(t): the log-likelihood of the given labels at the matrices fitted for t."""
    total = 0.0
    for part in parts:
        q = tempered(part.log_p, t)
        matrix = fit_transition(q, part.given)
        total += float(np.log((q * matrix.T[part.given]).sum(axis=1)).sum())
    return total


_COARSE = 2.0 ** np.arange(-3.0, 3.01, 0.5)
_LIMIT = float(np.log(16.0))  # of |log t|
# Largest bias of the rate that is ignored, and the same relative to the rate's standard deviation.
_NO_BIAS = 1e-6
_LARGEST_BIAS = 0.05


def likely_temperatures(parts: list[Part], drop: float) -> tuple[float, list[float]]:
    """The t of a coarse grid with the highest likelihood L(t), and all with 2 (L_max - L) <= drop.

    Among equals the nearest to one is used. It is biased upwards if there are few rows, since with
    more noise more entries of T are free; so it is only the start of the search for the root.
    """
    heights = np.array([_height(parts, float(t)) for t in _COARSE])
    equal = _COARSE[heights >= heights.max() - 1e-6]
    fair = _COARSE[2 * (heights.max() - heights) <= drop]
    return float(equal[np.argmin(np.abs(np.log(equal)))]), [float(t) for t in fair]


def _root(parts: list[Part], start: float) -> "RateCurve":
    """Newton's steps from `start` to S(t) = 0."""
    curve = best = RateCurve(parts, start)
    for _ in range(12):
        if curve.misfit < 1e-3 or curve.information <= 0:
            return curve
        step = min(max(curve.score / curve.information, -0.35), 0.35)
        log_t = min(max(np.log(curve.temperature) + step, -_LIMIT), _LIMIT)
        curve = RateCurve(parts, float(np.exp(log_t)))
        best = min(best, curve, key=lambda each: each.misfit)
    return best


def curves_around(parts: list[Part], start: float, z: float) -> list["RateCurve"]:
    """The rate at the root of S(t), and on both sides of it until S(t) rejects t."""
    root = _root(parts, start)
    curves = [root]
    if root.information <= 0:
        return curves
    for side in (-1.0, 1.0):
        log_t, curve = np.log(root.temperature), root
        while curve.misfit <= z**2 and abs(log_t) < _LIMIT:
            known = curve.information > 0
            stride = min(0.4 * z / np.sqrt(curve.information), 0.3) if known else 0.3
            log_t = min(max(log_t + side * stride, -_LIMIT), _LIMIT)
            curve = RateCurve(parts, float(np.exp(log_t)))
            curves.append(curve)
    return curves


def best_temperature(parts: list[Part]) -> float:
    """The root of the score nearest to the likeliest temperature."""
    return _root(parts, likely_temperatures(parts, 0.0)[0]).temperature


class RateCurve:
    """The unbiased rate at one t, and its variance as a function of the assumed rate."""

    def __init__(self, parts: list[Part], t: float) -> None:
        self.temperature = t
        num_rows = sum(len(part.rows) for part in parts)
        right = 0.0  # sum of the weights of the rows
        kept = []  # q @ diag(T): the chance of each row to keep its label
        # Moments of the weights under no noise (T = I), the fit T, and all wrong (T = J).
        moments = np.zeros((3, 3))
        squares = np.zeros(3)
        bias = 0.0
        self.score = self.information = score_variance = 0.0
        for part in parts:
            q = tempered(part.log_p, t)
            weights, parts_of_score, mean_score, information = _weights(
                q, _log_derivative(q, part.log_p, t), part.given
            )
            right += float(weights[np.arange(len(q)), part.given].sum())
            # sum_ij T_ij of this is what the mean of the weights misses: at most so much at any T.
            missed = q.T @ weights - np.diag(q.sum(axis=0))
            bias += float(max(missed.max(axis=1).sum(), -missed.min(axis=1).sum()))
            fitted = fit_transition(q, part.given)
            off = fitted * (1 - np.eye(len(fitted)))
            all_wrong = off / off.sum(axis=1, keepdims=True)
            chances = [q, q @ fitted, q @ all_wrong]
            means = np.stack([(chance * weights).sum(axis=1) for chance in chances])
            squares += [float((chance * weights**2).sum()) for chance in chances]
            moments += means @ means.T
            kept.append(q @ np.diag(fitted))
            self.score += float(parts_of_score[np.arange(len(q)), part.given].sum() - mean_score)
            self.information += information
            first = (chances[1] * parts_of_score).sum(axis=1)
            score_variance += float((chances[1] * parts_of_score**2).sum() - (first**2).sum())
        # S^2 / Var S: about chi-squared with one degree of freedom at the right t.
        known = self.information > 1e-8 and score_variance > 0
        self.information = self.information if known else 0.0
        self.misfit = self.score**2 / score_variance if known else 0.0
        keeps = np.concatenate(kept)
        self.rate = 1 - right / num_rows
        self._fitted_rate = float(1 - keeps.mean())
        self._between = float(keeps.var()) / num_rows
        self._squares = squares / num_rows**2
        self._moments = moments / num_rows**2
        self.spread = float(np.sqrt(self.variance(np.array([self._fitted_rate]))[0]))
        # If rows are too similar to tell classes apart, the labels say nothing about the rate.
        self.is_known = bias / num_rows <= max(_NO_BIAS, _LARGEST_BIAS * self.spread)

    def variance(self, rates: Floats) -> Floats:
        """V(r0) on the straight path from T = I over the fitted T to all labels wrong.

        V = [ mean_n Var(w | x_n) + Var_n(sum_i q_i(x_n) T_ii) ] / N; the second term stands for
        the sampling of the rows where classes differ in noise.
        """
        rise = np.minimum(rates / self._fitted_rate, 1)
        beyond = np.maximum((rates - self._fitted_rate) / (1 - self._fitted_rate), 0)
        shares = np.stack([1 - rise, rise - beyond, beyond])
        within = self._squares @ shares - np.einsum("ar,ab,br->r", shares, self._moments, shares)
        return np.asarray(np.maximum(within, 0) + self._between * (rise - beyond) ** 2)

    def distance(self, rates: Floats) -> Floats:
        """(r - r0)^2 / V(r0); infinite where V is zero and r0 is not r, 0 if nothing is known."""
        if not self.is_known:
            return np.zeros_like(rates)
        gap = np.where(np.abs(self.rate - rates) < 1e-9, 0.0, self.rate - rates) ** 2
        variance = self.variance(rates)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(gap == 0, 0.0, gap / variance)


def _log_derivative(q: Floats, log_p: Floats, t: float) -> Floats:
    """Dq / d log t = t q (log p - sum_i q_i log p_i)."""
    finite = np.where(q > 0, log_p, 0.0)
    return np.asarray(t * q * (finite - (q * finite).sum(axis=1, keepdims=True)))


def _weights(q: Floats, slope: Floats, given: Ints) -> tuple[Floats, Floats, float, float]:
    """Weights w of the rate and v of the score of t, each of shape (N, C).

    With P = q T0 at the symmetric T0, and A_j = sum_n q_n q_n' / P_nj, the least squares estimate
    of column j of T under the constraint that rows of T sum to one is

        T_j = inv(A_j) (sum_{n: y_n = j} q_n / P_nj - nu)

    of which sum_j pi_j T_jj is the mean over n, at j = y_n, of

        w_nj = N u_j' q_n / P_nj + sum(K h),   u_j = inv(A_j) (pi_j e_j - K h),
        h = sum_j pi_j inv(A_j) e_j,           K = inv(sum_j inv(A_j)).

    So mean_n q_ni w_nj = pi_i [i = j]. The score of t is that of D = dP / d log t at T0, less its
    projection on the scores of T, so that sum_n q_ni v_nj = c_i for all j and its mean is sum(c)
    whatever T is:

        v_nj = (D_nj - q_n' B_j) / P_nj,   B_j = inv(A_j) (sum_n q_n D_nj / P_nj - c).

    Returns:
        w, v, sum(c), and the information of t, sum_nj D_nj v_nj.
    """
    num_rows, num_classes = q.shape
    rate = _symmetric_rate(q[np.arange(num_rows), given], num_classes)
    transition = _symmetric(rate, num_classes)
    chance, change = q @ transition, slope @ transition
    share = np.diag(q.mean(axis=0))
    inverses = np.empty((num_classes,) * 3)
    for j in range(num_classes):
        information = (q / chance[:, j : j + 1]).T @ q
        # For a class that is nowhere possible, whose row of T is of no account. Where a row of
        # account is hardly determined, the weights and so the variance become huge; where it is
        # not determined at all, the weights miss what they have to meet, which is looked at.
        ridge = 1e-10 * np.trace(information) / num_classes
        inverses[j] = np.linalg.inv(information + ridge * np.eye(num_classes))
    total = inverses.sum(axis=0)
    shared = np.linalg.solve(total, np.einsum("jab,jb->a", inverses, share))
    loads = np.einsum("jab,jb->ja", inverses, share - shared)
    rate_weights = num_rows * (q @ loads.T) / chance + shared.sum()
    sums = (change / chance).T @ q  # row j: sum_n q_n D_nj / P_nj
    constant = np.linalg.solve(total, np.einsum("jab,jb->a", inverses, sums))
    loads = np.einsum("jab,jb->ja", inverses, sums - constant)
    score_weights = (change - q @ loads.T) / chance
    return rate_weights, score_weights, constant.sum(), float((change * score_weights).sum())


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
