"""What a weight curve does to examples whose probabilities are spread evenly over [0, 1]."""

import math

import numpy as np
import torch
from torch import Tensor

from imae._checks import check_interval
from imae.curves.curve import Curve

_NUM_PANELS = 64
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


def _weights_on_grid(curve: Curve) -> tuple[Tensor, Tensor]:
    # Panels shrink towards both ends, where powers of p and 1 - p are not smooth.
    nodes, parts = np.polynomial.legendre.leggauss(_NUM_NODES)
    edges = (1 - np.cos(np.linspace(0, np.pi, _NUM_PANELS + 1))) / 2
    width = np.diff(edges)[:, None]
    p = torch.from_numpy((edges[:-1, None] + width * (1 + nodes) / 2).ravel())
    return curve.weight(p), torch.from_numpy((width * parts / 2).ravel())
