"""Generalised cross entropy and its relatives: powers of the label's probability."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from imae.curves.curve import REACH, Curve, Window, integrate_from_zero
from imae.errors import check_interval


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
        # In 1 - p, which is small where the label is learned: the difference would cancel there.
        at_one: float = (self.a + 1) ** self.q
        share = torch.log1p(-torch.sigmoid(-m) / (self.a + 1))
        return -at_one * torch.expm1(self.q * share) / self.q

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


def _mean_exponential(x: Tensor) -> Tensor:
    """``expm1(x) / x``, the mean of exp over [0, x]; 1 at 0."""
    is_zero = x == 0
    return (torch.expm1(x) / x.masked_fill(is_zero, 1)).masked_fill(is_zero, 1)
