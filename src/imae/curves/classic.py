"""Published losses whose value is a formula in the label's probability."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from imae.curves.curve import (
    REACH,
    SATURATED,
    Curve,
    Scale,
    Window,
    check_constant,
    integrate_from_zero,
)
from imae.errors import check_integer, check_interval


@final
@dataclass(frozen=True)
class CCE(Curve):
    """Categorical cross entropy: the loss of ``torch.nn.functional.cross_entropy``.

    Formula:

        phi(m)  = -log p
        phi'(m) = -(1 - p)
        w(p)    = 2 (1 - p)

    It emphasises the examples it gets most wrong, and so fits wrong labels in the end.

    Examples:
        >>> CCE().value(torch.tensor([0.0]))            # p = 1/2
        tensor([0.6931])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, Eq. (1), Eq. (8).
    """

    name: ClassVar[str] = "cce"

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return -logsigmoid(m)  # softplus(-m) turns into a straight line past 20

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -torch.sigmoid(-m)


@final
@dataclass(frozen=True)
class MAE(Curve):
    """Mean absolute error between the softmax and the one-hot label.

    Formula:

        phi(m)  = 2 (1 - p)
        phi'(m) = -2 p (1 - p)
        w(p)    = 4 p (1 - p)

    It emphasises uncertain examples, p near 1/2: hence it tolerates wrong labels. Its
    weight varies so little that it underfits. Half of it is the loss known as DFT for language
    models, and twice ``GCE`` at ``q = 1``.

    Examples:
        >>> MAE().weight(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0., 1., 0.])

    Reference:
        Ghosh et al., "Robust loss functions under label noise for deep neural networks",
        AAAI 2017; Wang et al., "IMAE for Noise-Robust Learning", 2023, Eq. (2), Eq. (9).
    """

    name: ClassVar[str] = "mae"

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return 2 * torch.sigmoid(-m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -2 * torch.sigmoid(m) * torch.sigmoid(-m)


@final
@dataclass(frozen=True)
class SL(Curve):
    """Symmetric learning: cross entropy plus reverse cross entropy, with log 0 := A.

    Formula:

        phi(m)  = -alpha log p - beta A (1 - p)
        phi'(m) = -(1 - p) (alpha - beta A p)
        w(p)    = 2 (1 - p) (alpha - beta A p)

    The reverse term is ``-A/2`` times ``MAE``. The paper's settings: alpha = 0.1, beta = 1
    on CIFAR-10 and alpha = 6, beta = 0.1 on CIFAR-100.

    Args:
        alpha: Factor of cross entropy, not negative.
        beta: Factor of reverse cross entropy, not negative.
        A: The value used for log 0, negative.

    Examples:
        >>> SL(alpha=0.0, beta=0.5, A=-4.0).weight(torch.tensor([0.5]))     # MAE
        tensor([1.])

    Reference:
        Wang et al., "Symmetric cross entropy for robust learning with noisy labels", ICCV 2019.
    """

    alpha: float = 0.1
    beta: float = 1.0
    A: float = -4.0
    name: ClassVar[str] = "sl"

    def __post_init__(self) -> None:
        check_interval("alpha", self.alpha, low=0)
        check_interval("beta", self.beta, low=0)
        check_interval("A", self.A, high=0, open_high=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return -self.alpha * logsigmoid(m) - self.beta * self.A * torch.sigmoid(-m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -torch.sigmoid(-m) * (self.alpha - self.beta * self.A * torch.sigmoid(m))


@final
@dataclass(frozen=True)
class Focal(Curve):
    """Focal loss: cross entropy that plays down examples it already gets right.

    Formula:

        phi(m)  = -(1 - p)^gamma log p
        phi'(m) = (1 - p)^gamma (gamma p log p - (1 - p))
        w(p)    = 2 (1 - p)^gamma (1 - p - gamma p log(p))

    Meant for class imbalance; under label noise it emphasises wrong rows even more than
    ``CCE``, which it is at ``gamma = 0``.

    Args:
        gamma: Focusing power, not negative.

    Examples:
        >>> Focal(gamma=0.0).weight(torch.tensor([0.25]))
        tensor([1.5000])

    Reference:
        Lin et al., "Focal loss for dense object detection", ICCV 2017.
    """

    gamma: float = 2.0
    name: ClassVar[str] = "focal"

    def __post_init__(self) -> None:
        check_interval("gamma", self.gamma, low=0)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return -torch.exp(self.gamma * logsigmoid(-m)) * logsigmoid(m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        # p log p is 0 at p = 0; as a product of floats it would be 0 * inf for a margin of -inf.
        p_log_p = torch.sigmoid(m) * logsigmoid(m.clamp(min=-SATURATED))
        return torch.exp(self.gamma * logsigmoid(-m)) * (self.gamma * p_log_p - torch.sigmoid(-m))


@final
@dataclass(frozen=True)
class ForwardSymmetric(Curve):
    """Forward correction for labels flipped evenly to the other classes.

    With ``e = r / (C - 1)``, the probability that a flipped label lands on one given class:

        phi(m)  = -log((1 - r) p + e (1 - p))
        phi'(m) = -(1 - r - e) p (1 - p) / ((1 - r) p + e (1 - p))
        w(p)    = 2 (1 - r - e) p (1 - p) / ((1 - r) p + e (1 - p))

    It is cross entropy at ``r = 0``. For any other transition matrix see
    ``imae.losses.forward_correction``.

    Args:
        rate: Part r of the labels that is wrong, in [0, (C - 1) / C).
        num_classes: Number of classes C, at least 2.

    Examples:
        >>> ForwardSymmetric(rate=0.0, num_classes=10).weight(torch.tensor([0.25]))
        tensor([1.5000])

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017.
    """

    rate: float = 0.4
    num_classes: int = 10
    name: ClassVar[str] = "forward_symmetric"

    def __post_init__(self) -> None:
        check_integer("num_classes", self.num_classes, low=2)
        limit = (self.num_classes - 1) / self.num_classes
        check_constant("rate", self.rate)
        check_interval("rate", self.rate, low=0, high=limit, open_high=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        if self.rate == 0:
            return -logsigmoid(m)
        kept = math.log(1 - self.rate) + logsigmoid(m)
        flipped = math.log(self._spread()) + logsigmoid(-m)
        return -torch.logaddexp(kept, flipped)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        if self.rate == 0:
            return -torch.sigmoid(-m)
        # p / ((1 - r) p + e (1 - p)) is a sigmoid itself, which neither overflows nor divides.
        kept, spread = 1 - self.rate, self._spread()
        return (spread / kept - 1) * torch.sigmoid(-m) * torch.sigmoid(m + math.log(kept / spread))

    def _spread(self) -> float:
        return self.rate / (self.num_classes - 1)


def reverse_cross_entropy(*, A: float = -4.0, factor: float = 1.0) -> Curve:  # noqa: N803
    """The curve of cross entropy with label and prediction exchanged, a multiple of MAE.

    Formula:

        phi(m) = -factor A (1 - p)

    Args:
        A: The value used for log 0, negative.
        factor: Factor of the loss, not negative.

    Examples:
        >>> reverse_cross_entropy(A=-4.0).weight(torch.tensor([0.5]))
        tensor([2.])

    Reference:
        Wang et al., "Symmetric cross entropy for robust learning with noisy labels", ICCV 2019.
    """
    check_interval("A", A, high=0, open_high=True)
    return Scale(MAE(), -A / 2 * factor)


@final
@dataclass(frozen=True)
class GCE(Curve):
    """Generalised cross entropy: half of MAE at q = 1, CCE as q tends to 0.

    Formula:

        phi(m)  = (1 - p^q) / q
        phi'(m) = -p^q (1 - p)
        w(p)    = 2 p^q (1 - p)

    Args:
        q: Position between CCE and MAE, in (0, 1].

    Examples:
        >>> GCE(q=1.0).weight(torch.tensor([0.5]))
        tensor([0.5000])

    Reference:
        Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks
        with noisy labels", NeurIPS 2018.
    """

    q: float = 0.7
    name: ClassVar[str] = "gce"

    def __post_init__(self) -> None:
        check_interval("q", self.q, low=0, high=1, open_low=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return -torch.expm1(self.q * logsigmoid(m)) / self.q

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -torch.exp(self.q * logsigmoid(m)) * torch.sigmoid(-m)


@final
@dataclass(frozen=True)
class TruncatedGCE(Curve):
    """Generalised cross entropy that ignores examples whose label has probability k or less.

    Formula:

        phi(m)  = (1 - max(p, k)^q) / q
        phi'(m) = -p^q (1 - p) if p >= k else 0
        w(p)    = 2 p^q (1 - p) if p >= k else 0

    An example under the threshold sends no gradient, so a network must first be trained without
    one; the pruning schedule of the paper is a training method, not a loss.

    Args:
        q: Position between CCE and MAE, in (0, 1].
        k: Probability under which an example is ignored, in (0, 1).

    Examples:
        >>> TruncatedGCE(q=1.0, k=0.5).weight(torch.tensor([0.4, 0.6]))
        tensor([0.0000, 0.4800])

    Reference:
        Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks
        with noisy labels", NeurIPS 2018, Eq. (8).
    """

    q: float = 0.7
    k: float = 0.5
    name: ClassVar[str] = "truncated_gce"

    def __post_init__(self) -> None:
        check_interval("q", self.q, low=0, high=1, open_low=True)
        check_constant("k", self.k)
        check_interval("k", self.k, low=0, high=1, open_low=True, open_high=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return self._window().value(m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return self._window().slope(m)

    def _window(self) -> Window:
        return Window(GCE(self.q), low=math.log(self.k / (1 - self.k)))


@final
@dataclass(frozen=True)
class AGCE(Curve):
    """Asymmetric generalised cross entropy.

    Formula:

        phi(m)  = ((a + 1)^q - (a + p)^q) / q
        phi'(m) = -(a + p)^(q - 1) p (1 - p)
        w(p)    = 2 (a + p)^(q - 1) p (1 - p)

    Args:
        a: Shift, in (0, 100]: the larger, the closer to a multiple of MAE.
        q: Power, in (0, 10].

    Examples:
        >>> AGCE(a=1.0, q=1.0).weight(torch.tensor([0.5]))      # MAE / 2
        tensor([0.5000])

    Reference:
        Zhou et al., "Asymmetric loss functions for learning with noisy labels", ICML 2021.
    """

    a: float = 0.6
    q: float = 0.6
    name: ClassVar[str] = "agce"

    def __post_init__(self) -> None:
        # With more, (a + 1)^q leaves the range of float32.
        check_interval("a", self.a, low=0, high=100, open_low=True)
        check_interval("q", self.q, low=0, high=10, open_low=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        # In 1 - p where that is the smaller one, else in p: a difference from 1 would cancel.
        at_one: float = (self.a + 1) ** self.q
        by_rest = torch.log1p(-torch.sigmoid(-m.clamp(min=0)) / (self.a + 1))
        by_p = torch.log((self.a + torch.sigmoid(m)) / (self.a + 1))
        return -at_one * torch.expm1(self.q * torch.where(m > 0, by_rest, by_p)) / self.q

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        p = torch.sigmoid(m)
        return -torch.pow(self.a + p, self.q - 1) * p * torch.sigmoid(-m)


@final
@dataclass(frozen=True)
class SharpGCE(Curve):
    """GCE with a variance of the weight that T sets; a bounded IMAE at q = 1.

    Formula, with E(x) = expm1(x) / x and E(0) = 1:

        phi(m)  = integral from 0 to -log p of E(T v (1 - exp(-y))) v dy, v = exp(-q y)
        phi'(m) = -expm1(T p^q (1 - p)) / T
        w(p)    = 2 (exp(T p^q (1 - p)) - 1) / T

    As T tends to 0 it is ``GCE`` with the same q, and so half of ``MAE`` at q = 1. The weight
    vanishes at p = 0 and p = 1, so the value is bounded, not negative and 0 at p = 1; unlike IMAE
    it does not learn from rows that are far from their label.

    Args:
        T: How much the weight varies, in [0, 80]; 0 for ``GCE``.
        q: Position between CCE and MAE, in (0, 1].

    Examples:
        >>> SharpGCE(T=0.0, q=1.0).weight(torch.tensor([0.5]))      # MAE / 2
        tensor([0.5000])
        >>> SharpGCE(T=8.0, q=1.0).weight(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0.0000, 1.5973, 0.0000])

    Reference:
        Ours: Wang et al., "IMAE for Noise-Robust Learning", 2023, section 7, applied to GCE.
    """

    T: float = 4.0
    q: float = 1.0
    name: ClassVar[str] = "sharp_gce"

    def __post_init__(self) -> None:
        check_interval("T", self.T, low=0, high=80)
        check_interval("q", self.q, low=0, high=1, open_low=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""

        # In -log p, from p = 1 on: the value keeps its digits where it is small.
        def integrand(y: Tensor) -> Tensor:
            power = torch.exp(-self.q * y)
            return _mean_exponential(self.T * power * -torch.expm1(-y)) * power

        reach = max(REACH, REACH / 2 / self.q)
        return integrate_from_zero(integrand, -logsigmoid(m), reach=reach)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        base = torch.exp(self.q * logsigmoid(m)) * torch.sigmoid(-m)
        return -_mean_exponential(self.T * base) * base


_SMALL_EXPONENT = 1e-3


def _mean_exponential(x: Tensor) -> Tensor:
    """``expm1(x) / x``, the mean of exp over [0, x]; 1 at 0."""
    is_small = x.abs() < _SMALL_EXPONENT
    # The series has the derivative at 0, and near it, where that of the quotient cancels.
    series = 1 + x / 2 * (1 + x / 3 * (1 + x / 4))
    return torch.where(is_small, series, torch.expm1(x) / x.masked_fill(is_small, 1))
