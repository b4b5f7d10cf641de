"""The curves by name, and the numbers that describe a curve."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae._registry import Catalog, Entry, defaults_of, exports
from imae.curves.classic import (
    AGCE,
    CCE,
    GCE,
    MAE,
    SL,
    Focal,
    ForwardSymmetric,
    SharpGCE,
    TruncatedGCE,
)
from imae.curves.curve import Curve
from imae.curves.reweighted import DM, ICCE, IMAE
from imae.errors import ArgumentError, check_integer, check_interval

_Floats = NDArray[np.float64]

_IMAE_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"
_GCE_PAPER = "Zhang and Sabuncu, Generalized cross entropy loss, NeurIPS 2018"


def _entry(curve: type[Curve], title: str, summary: str, reference: str = "") -> Entry[Curve]:
    return Entry(curve.name, curve, summary, reference, defaults_of(curve), title)


CURVES: Catalog[Curve] = Catalog(
    "loss",
    (
        _entry(CCE, "CCE", "cross entropy: emphasises what it gets wrong"),
        _entry(
            MAE, "MAE", "mean absolute error: emphasises uncertain rows", "Ghosh et al., AAAI 2017"
        ),
        _entry(IMAE, "IMAE", "MAE with an adjustable variance, as printed", _IMAE_PAPER),
        _entry(GCE, "GCE", "between CCE and MAE", _GCE_PAPER),
        _entry(
            TruncatedGCE, "Truncated GCE", "GCE that ignores rows under a probability", _GCE_PAPER
        ),
        _entry(
            SL,
            "SL",
            "cross entropy plus its reverse",
            "Wang et al., Symmetric cross entropy, ICCV 2019",
        ),
        _entry(
            Focal,
            "Focal",
            "cross entropy that plays down easy rows",
            "Lin et al., Focal loss for dense object detection, ICCV 2017",
        ),
        _entry(
            AGCE,
            "AGCE",
            "asymmetric generalised cross entropy",
            "Zhou et al., Asymmetric loss functions, ICML 2021",
        ),
        _entry(
            DM,
            "DM",
            "IMAE with a movable peak",
            "Wang et al., Derivative manipulation, 2019",
        ),
        _entry(SharpGCE, "Sharp GCE", "GCE with an adjustable variance; a bounded IMAE"),
        _entry(ICCE, "ICCE", "CCE with an adjustable variance", _IMAE_PAPER),
        _entry(
            ForwardSymmetric,
            "Forward, known rate",
            "cross entropy corrected for even noise of a known rate",
            "Patrini et al., Making deep neural networks robust to label noise, CVPR 2017",
        ),
    ),
)

# ``imae.curves`` shows the class of every entry: ``imae.curves.GCE``.
__getattr__, __dir__ = exports(
    "imae.curves", {entry.build.__name__: entry.build for entry in CURVES}
)


def parse_curve(text: str) -> Curve:
    """The curve that a text such as ``imae``, ``imae:T=16`` or ``sl:alpha=6,beta=0.1`` names.

    Args:
        text: A name of ``imae.curves.CURVES``, then after a colon its parameters.

    Raises:
        ArgumentError: If the name or a parameter is unknown, a parameter is given twice, or a value
            is not a number.

    Examples:
        >>> parse_curve("imae:T=16")
        IMAE(T=16.0)
    """
    if not isinstance(text, str):
        raise ArgumentError(f"a curve is named by a text such as imae:T=8, got {text!r}")
    name, _, rest = text.partition(":")
    defaults = CURVES.find(name).defaults
    arguments: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key in arguments:
            raise ArgumentError(f"{text!r}: {key} is given twice")
        kind = type(defaults.get(key, 0.0))
        try:
            arguments[key] = kind(value)
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise ArgumentError(f"{text!r}: {key} must be {wanted}, got {value!r}") from None
        if not equals:
            raise ArgumentError(f"{text!r}: write parameters as name=value, got {part!r}")
    return CURVES.build(name, **arguments)


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
    weights = curve.weight(torch.tensor([p, other], dtype=torch.float64)).detach()
    return float(weights[0] / weights[1])


# A margin at which every bounded loss has reached its end; an unbounded one is still rising.
_FAR = 1e8
_STEPS_PER_CLASS = 60
_MIN_STEPS = 600


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
    1 / (60 C), and at least of 1 / 600, by dynamic programming over the classes, whose time grows
    with the square of C and whose memory does not; these include the
    uniform prediction and the certain ones. A smallest sum at another prediction, as IMAE has for
    large T, is too large by up to 1e-5 of it.

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
    number = num_classes * max(_STEPS_PER_CLASS, math.ceil(_MIN_STEPS / num_classes))
    p = torch.linspace(0, 1, number + 1, dtype=torch.float64)
    losses = curve.value(torch.logit(p).clamp(-_FAR, _FAR)).detach().numpy()
    low = _extreme_sums(losses, num_classes, np.minimum)
    high = _extreme_sums(losses, num_classes, np.maximum)
    smallest, largest = round(float(low[-1]), 9), round(float(high[-1]), 9)
    return smallest, largest if largest < _FAR / 100 else math.inf


def _extreme_sums(losses: _Floats, number: int, extreme: np.ufunc) -> _Floats:
    """The extreme sum of the losses of some classes, for every total of their shares."""
    sums, power = losses, losses  # of one class, and of 1, 2, 4, ... classes
    left = number - 1
    while left:
        if left % 2:
            sums = _combined(sums, power, extreme)
        left //= 2
        if left:
            power = _combined(power, power, extreme)
    return sums


def _combined(first: _Floats, second: _Floats, extreme: np.ufunc) -> _Floats:
    """The extreme sum of both, over all ways to divide a total among them, for every total."""
    best: _Floats = first + second[0]
    for share in range(1, len(second)):
        extreme(best[share:], first[:-share] + second[share], out=best[share:])
    return best


def _weights_on_grid(curve: Curve) -> tuple[Tensor, Tensor]:
    # Panels shrink towards both ends, where powers of p and 1 - p are not smooth.
    nodes, parts = np.polynomial.legendre.leggauss(_NUM_NODES)
    edges = (1 - np.cos(np.linspace(0, np.pi, _NUM_GRID_PANELS + 1))) / 2
    width = np.diff(edges)[:, None]
    p = torch.from_numpy((edges[:-1, None] + width * (1 + nodes) / 2).ravel())
    return curve.weight(p).detach(), torch.from_numpy((width * parts / 2).ravel())
