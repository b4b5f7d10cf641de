"""Numbers that describe a curve: integrals of its weight, and the bounds of its loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from imae._checks import check_integer, check_interval
from imae.curves.curve import Curve

# A sigmoid is constant to the last digit of float64 beyond 40, and so is its square root beyond 80.
REACH = 80.0
_NUM_PANELS = 10
_nodes, _weights = np.polynomial.legendre.leggauss(16)
_PANEL_NODES: list[float] = ((1 + _nodes) / 2).tolist()
_PANEL_WEIGHTS: list[float] = (_weights / 2).tolist()


def integrate_from_zero(
    f: Callable[[Tensor], Tensor], m: Tensor, *, reach: float = REACH
) -> Tensor:
    """The integral of ``f`` from 0 to ``m``, element by element.

    Gauss-Legendre with 16 nodes on each of ten panels that halve towards 0, where a function of
    ``sigmoid(t)`` varies; more panels for a longer reach. Smooth functions have a relative error
    of about 1e-12 in float64; a jump of ``f`` costs accuracy near it.

    Args:
        f: Maps a tensor of any shape to one of the same shape.
        m: Upper ends, any shape.
        reach: ``f`` is taken as constant beyond ``|t| = reach``.

    Returns:
        Integrals, same shape and dtype as ``m``.

    Examples:
        >>> m = torch.tensor([-1.0, 2.0])
        >>> integrate_from_zero(torch.exp, m)           # exp(m) - 1
        tensor([-0.6321,  6.3891])
    """
    end = m.clamp(-reach, reach)
    nodes = m.new_tensor(_PANEL_NODES)
    weights = m.new_tensor(_PANEL_WEIGHTS)
    total = torch.zeros_like(m)
    num_panels = _NUM_PANELS + max(0, math.ceil(math.log2(reach / REACH)))
    low, high = 0.0, 2.0 ** (1 - num_panels)
    for _ in range(num_panels):
        t = end.unsqueeze(-1) * (low + (high - low) * nodes)
        total = total + (high - low) * (f(t) * weights).sum(-1)
        low, high = high, 2 * high
    at_end = f(end)
    # A function that ends at 0 adds nothing, not 0 * inf, for an infinite margin.
    tail = torch.where(at_end == 0, torch.zeros_like(m), at_end * (m - end))
    return total * end + tail


@final
@dataclass(frozen=True)
class FromWeight(Curve):
    """The loss whose weight is a given function of the label's probability.

    Formula:

        phi(m)  = -1/2 times the integral of w(sigmoid(t)) from 0 to m
        phi'(m) = -w(p) / 2
        w(p)    = the given function

    The value is anchored at p = 1/2 and found by quadrature, so the function should be smooth.
    The function sees probabilities rounded to the float type of the logits: one that needs the
    small difference ``1 - p`` near p = 1 is better written as a curve of its own.

    Args:
        w: Maps probabilities, any shape, to weights of the same shape, none of them negative;
            made of differentiable torch operations.

    Examples:
        >>> flat_top = FromWeight(lambda p: torch.exp(-((p - 0.5) ** 2)))
        >>> flat_top.weight(torch.tensor([0.5]))
        tensor([1.])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 3: a loss is its weights.
    """

    w: Callable[[Tensor], Tensor]
    name: ClassVar[str] = "from_weight"

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return integrate_from_zero(self.slope, m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -0.5 * self.w(torch.sigmoid(m))


_NUM_GRID_PANELS = 64
_NUM_NODES = 32
# Under this T the closed form subtracts two numbers that agree in most digits.
_SMALL_T = 1e-2


def mean_weight(curve: Curve) -> float:
    """The mean of w(p) for p spread evenly over [0, 1].

    Examples:
        >>> from imae.curves import MAE
        >>> round(mean_weight(MAE()), 6)                # 2/3
        0.666667
    """
    weights, parts = _weights_on_grid(curve)
    return float(weights @ parts)


def weight_variance(curve: Curve) -> float:
    """The variance of w(p) for p spread evenly over [0, 1].

    By quadrature, for any curve; ``imae_weight_variance`` is the closed form for IMAE.

    Examples:
        >>> from imae.curves import CCE
        >>> round(weight_variance(CCE()), 6)            # 1/3
        0.333333

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, Eq. (12), Eq. (13).
    """
    weights, parts = _weights_on_grid(curve)
    return float((weights - weights @ parts) ** 2 @ parts)


def imae_weight_variance(T: float) -> float:
    """The variance of IMAE's weight in closed form.

    Formula:

        sqrt(pi / (2 T)) exp(T / 2) erf(sqrt(T / 2)) - pi / T exp(T / 2) erf(sqrt(T) / 2)^2

    and T^2 / 180 + T^3 / 630 + 19 T^4 / 75600 near 0, where the two terms cancel.

    Args:
        T: The parameter of ``imae.curves.IMAE``, in [0, 100].

    Examples:
        >>> [round(imae_weight_variance(T), 3) for T in (16, 8, 4)]
        [354.113, 4.546, 0.299]

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, appendix A.
    """
    check_interval("T", T, low=0, high=100)
    if T < _SMALL_T:
        return T**2 / 180 + T**3 / 630 + 19 * T**4 / 75600
    second_moment = math.sqrt(math.pi / (2 * T)) * math.exp(T / 2) * math.erf(math.sqrt(T / 2))
    squared_mean = math.pi / T * math.exp(T / 2) * math.erf(math.sqrt(T) / 2) ** 2
    return second_moment - squared_mean


def impact_ratio(curve: Curve, p: float, other: float) -> float:
    """How many times more an example at ``p`` counts than one at ``other``.

    Args:
        curve: The loss.
        p: Probability of the first example's label, in [0, 1].
        other: Probability of the second example's label, in [0, 1].

    Returns:
        ``w(p) / w(other)``; infinite if only the second weighs nothing, NaN if neither weighs.

    Examples:
        >>> from imae.curves import IMAE
        >>> round(impact_ratio(IMAE(T=8.0), 0.5, 1.0), 3)
        7.389

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 4.1.
    """
    check_interval("p", p, low=0, high=1)
    check_interval("other", other, low=0, high=1)
    weights = curve.weight(torch.tensor([p, other], dtype=torch.float64))
    return float(weights[0] / weights[1])


# A margin at which every bounded loss has reached its end; an unbounded one is still rising.
_FAR = 1e8
_STEPS_PER_CLASS = 60


def loss_supremum(curve: Curve) -> float:
    """The largest value that the loss can come near, as p tends to 0; infinite if it has no bound.

    Examples:
        >>> from imae.curves import CCE, GCE, MAE
        >>> [round(loss_supremum(curve), 3) for curve in (CCE(), MAE(), GCE(q=0.5))]
        [inf, 2.0, 2.0]
    """
    near, far = curve.value(torch.tensor([-_FAR, -10 * _FAR], dtype=torch.float64)).tolist()
    return near if math.isclose(near, far, rel_tol=1e-9) else math.inf


def label_sum_range(curve: Curve, num_classes: int) -> tuple[float, float]:
    """Smallest and largest sum of the loss over all labels, over all predictions.

    Formula:

        min and max of sum_k phi(logit p_k) over p with p_k >= 0, sum_k p_k = 1

    A loss is symmetric if the two are equal, which makes it robust to even noise if it is also
    bounded (Ghosh et al., AAAI 2017). The search is exact over predictions that are multiples of
    1 / (60 C), by dynamic programming over the classes; these include the uniform prediction and
    the certain ones. A smallest sum at another prediction, as IMAE has for large T, is found up to
    the square of that step.

    Args:
        curve: The loss.
        num_classes: Number of classes C, at least 2.

    Raises:
        ArgumentError: If there are fewer than two classes.

    Examples:
        >>> from imae.curves import CCE, MAE
        >>> label_sum_range(MAE(), 10), label_sum_range(CCE(), 10)[1]
        ((18.0, 18.0), inf)
    """
    check_integer("num_classes", num_classes, low=2)
    number = _STEPS_PER_CLASS * num_classes
    p = torch.linspace(0, 1, number + 1, dtype=torch.float64)
    losses = curve.value(torch.logit(p).clamp(-_FAR, _FAR)).numpy()
    # The loss of the next class for every total (rows) and every share of the classes before it.
    place = np.arange(number + 1)[:, None] - np.arange(number + 1)
    following = losses[place.clip(0)]
    low = high = losses
    for _ in range(num_classes - 1):
        low = np.where(place >= 0, low + following, np.inf).min(axis=1)
        high = np.where(place >= 0, high + following, -np.inf).max(axis=1)
    smallest, largest = round(float(low[-1]), 9), round(float(high[-1]), 9)
    return smallest, largest if largest < _FAR / 100 else math.inf


def _weights_on_grid(curve: Curve) -> tuple[Tensor, Tensor]:
    # Panels shrink towards both ends, where powers of p and 1 - p are not smooth.
    nodes, parts = np.polynomial.legendre.leggauss(_NUM_NODES)
    edges = (1 - np.cos(np.linspace(0, np.pi, _NUM_GRID_PANELS + 1))) / 2
    width = np.diff(edges)[:, None]
    p = torch.from_numpy((edges[:-1, None] + width * (1 + nodes) / 2).ravel())
    return curve.weight(p), torch.from_numpy((width * parts / 2).ravel())
