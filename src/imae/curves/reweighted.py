"""Losses that are defined by their weight."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from imae.curves.curve import REACH, Curve, integrate_from_zero
from imae.errors import check_interval

# The largest weights, exp(100 / 4) and exp(80), leave room for a sum over a batch in float32.
_LARGEST_T = 100.0
_LARGEST_EXPONENT = 80.0

# 16 nodes give the value of IMAE to 1e-12 at the largest T, to 1e-15 at the T of the paper.
_nodes, _weights = np.polynomial.legendre.leggauss(16)
_WEIGHTS = _weights / 2
_ROWS = np.stack([1 / _WEIGHTS, -(((1 + _nodes) / 2) ** 2) / _WEIGHTS, _WEIGHTS]).tolist()
# Nodes of ``_exponentials``: 7 give 1e-8 of the value at T = 12, 10 give 3e-7 at T = 40.
_FEW_NODES, _LARGEST_T_OF_FEW = 7, 12.0
_MANY_NODES, _LARGEST_T_OF_MANY = 10, 40.0
# Numpy takes arrays of no dimension faster than numbers.
_ONE, _HALF = np.array(1, np.float32), np.array(0.5, np.float32)
_constants: dict[tuple[torch.device, torch.dtype], tuple[Tensor, ...]] = {}

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class IMAE(Curve):
    """Improved MAE: MAE's order of examples, with a variance of the weight that T sets.

    Formula:

        phi(m)  = -m/2 - integral from 0 to tanh(m/2) of expm1(T (1 - u^2) / 4) / (1 - u^2) du
        phi'(m) = -exp(T p (1 - p)) / 2
        w(p)    = exp(T p (1 - p))

    The paper writes the value as an integral up to p = 1. That integral diverges, because the
    weight tends to 1 there and not to 0; the value here is anchored at p = 1/2 instead,
    ``phi(0) = 0``. It is odd in m and may be negative: never select a model by it.

    For the same reason logits can grow without bound under this loss. ``Window``,
    ``normalize="batch"`` and ``imae.bound_logits`` are the remedies.

    Args:
        T: How much the weight varies, in [0, 100]; 0 weighs all alike. The paper takes 8 under
            label noise and 0.5 on clean labels. A 0-d tensor is taken as it is, unchecked, so
            that a schedule can change it without another compilation.

    Examples:
        >>> IMAE(T=8.0).weight(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1.0000, 7.3891, 1.0000])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, Eq. (10).
    """

    T: float | Tensor = 8.0
    name: ClassVar[str] = "imae"

    def __post_init__(self) -> None:
        if not isinstance(self.T, Tensor):
            check_interval("T", self.T, low=0, high=_LARGEST_T)
            given: object = self.T
            if isinstance(given, np.ndarray):  # cannot be a key
                object.__setattr__(self, "T", given.item())

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        constant, linear, weights = _node_tensors(m)
        half = m / 2
        x = torch.tanh(half)
        # (1 - u^2) / weight at the nodes u. They are inside (0, x), so it is never 0.
        rest = torch.addcmul(constant, x.square().unsqueeze(-1), linear)
        integral = (torch.expm1(rest * (self.T / 4 * weights)) / rest).sum(-1)
        return -torch.addcmul(half, x, integral)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        p = torch.sigmoid(m)
        # The exponent needs p (1 - p) to a small absolute error only: one sigmoid will do.
        return -0.5 * torch.exp(self.T * torch.addcmul(p, p, p, value=-1))

    def tensors(self) -> Iterator[Tensor]:
        """T if it is a tensor."""
        if isinstance(self.T, Tensor):
            yield self.T

    def slope_and_value(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once; the value with an error of 1e-7 in float32."""
        T = self.T
        # Numbers for each T are made on the CPU: to an accelerator they would have to be copied.
        is_plain = m.is_cpu and m.dtype == torch.float32 and not torch.compiler.is_compiling()
        if isinstance(T, Tensor) or T > _LARGEST_T_OF_MANY or not is_plain:
            return super().slope_and_value(m)
        shape = (-1, *(1 for _ in m.shape))
        exponents, factors = (torch.from_numpy(part).view(shape) for part in _exponentials(T))
        p = torch.sigmoid(m)
        powers = (torch.addcmul(p, p, p, value=-1) * exponents).exp_()
        slope = powers[-1] * -0.5
        # Not a product of matrices, which autocast would round.
        integral = powers.mul_(factors).sum(0)
        half = m / 2
        return slope, torch.addcmul(half, torch.tanh(half), integral, value=0.5).neg_()

    def numpy_weight_and_sum(self, odds: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Weights and the sum of values for odds against the label.

        The error is 3e-7 of each value, besides the rounding of p - 1/2.
        """
        T = self.T
        if isinstance(T, Tensor) or T > _LARGEST_T_OF_MANY:
            return super().numpy_weight_and_sum(odds)
        exponents, factors = _exponentials(T)
        p = odds + _ONE
        np.reciprocal(p, p)
        both = p * p
        both *= odds  # p (1 - p)
        powers = exponents.dot(both[None])  # a product of matrices takes less than one by columns
        np.exp(powers, powers)
        p -= _HALF
        total = float(np.add.reduce(np.log(odds))) / 2 - float(factors.dot(powers.dot(p)))
        return powers[-1], total

    def weight_at(self, p: float) -> float:
        """The weight at one probability, as a number."""
        return (
            super().weight_at(p) if isinstance(self.T, Tensor) else math.exp(self.T * p * (1 - p))
        )


@final
@dataclass(frozen=True)
class DM(Curve):
    """Derivative manipulation: IMAE's weight with its peak moved.

    Formula:

        phi(m)  = -1/2 times the integral of w(sigmoid(t)) from 0 to m
        phi'(m) = -exp(beta p^lam (1 - p)) / 2
        w(p)    = exp(beta p^lam (1 - p))

    The peak is at ``p = lam / (lam + 1)``: under 1/2 for ``lam < 1``. With ``lam = 1`` it is
    IMAE with ``T = beta``. The remarks on IMAE's value and on growing logits hold here too.

    Args:
        beta: How much the weight varies, in [0, 80].
        lam: Position of the peak, positive.

    Examples:
        >>> DM(beta=8.0, lam=1.0).weight(torch.tensor([0.5]))
        tensor([7.3891])

    Reference:
        Wang et al., "Derivative manipulation for general example weighting", arXiv 2019.
    """

    beta: float = 8.0
    lam: float = 0.5
    name: ClassVar[str] = "dm"

    def __post_init__(self) -> None:
        check_interval("beta", self.beta, low=0, high=_LARGEST_EXPONENT)
        check_interval("lam", self.lam, low=0, open_low=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        # A small power of p takes long to vanish.
        return integrate_from_zero(self.slope, m, reach=max(REACH, REACH / 2 / self.lam))

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -0.5 * torch.exp(self.beta * torch.exp(self.lam * logsigmoid(m)) * torch.sigmoid(-m))


@final
@dataclass(frozen=True)
class ICCE(Curve):
    """CCE's order of examples, with a variance of the weight that T sets.

    Formula:

        phi(m)  = -1/2 times the integral of w(sigmoid(t)) from 0 to m
        phi'(m) = -exp(T (1 - p)) / 2
        w(p)    = exp(T (1 - p))

    The paper closes with the remark that the variance of the weight matters for other losses
    too, CCE for example; this is that idea carried out. The value is anchored at p = 1/2.

    Args:
        T: How much the weight varies, in [0, 80]; 0 weighs all alike.

    Examples:
        >>> ICCE(T=2.0).weight(torch.tensor([0.5]))
        tensor([2.7183])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 7 (the remark only).
    """

    T: float = 2.0
    name: ClassVar[str] = "icce"

    def __post_init__(self) -> None:
        check_interval("T", self.T, low=0, high=_LARGEST_EXPONENT)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return integrate_from_zero(self.slope, m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return -0.5 * torch.exp(self.T * torch.sigmoid(-m))


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


@lru_cache(maxsize=8)
def _exponentials(T: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """IMAE's value as a sum of powers of its weight: few calls, and no division.

    The integral of the value, with v = p (1 - p), is

        (2 p - 1) * integral over 0 < t < r < 1 of (T / 2) exp(T (r^2 - t^2) / 4) exp(T v t^2)

    because ``expm1(a) / a`` is the mean of ``exp(a s)`` over s in (0, 1); t and r are square roots
    of s u^2 and s. Gauss-Legendre nodes for both.

    Returns:
        The exponents ``T t^2``, a column, the last of them T; their factors.
    """
    squares, spreads, weights = _grid(_FEW_NODES if T <= _LARGEST_T_OF_FEW else _MANY_NODES)
    spread = np.exp(spreads * T)
    spread *= weights
    factors = np.add.reduce(spread, 1)
    factors *= T
    return squares * np.array(T, np.float32), factors.astype(np.float32)


@lru_cache(maxsize=2)
def _grid(num_nodes: int) -> tuple[NDArray[np.float32], Floats, Floats]:
    """What ``_exponentials`` needs of t, and of r between t and 1, whatever T is."""
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    t, weights = (1 + nodes) / 2, weights / 2
    r = t[:, None] + (1 - t)[:, None] * t
    below = ((0, 1), (0, 0))  # the last exponent belongs to the weight, not to the value
    spreads = np.pad((r**2 - t[:, None] ** 2) / 4, below)
    spread_weights = np.pad((weights * (1 - t))[:, None] * weights, below)
    return np.append(t**2, 1)[:, None].astype(np.float32), spreads, spread_weights


def _node_tensors(m: Tensor) -> tuple[Tensor, ...]:
    # Making a tensor from a list costs as much as the rest of a small batch's value; a compiler
    # folds it into a constant by itself, and must not see a cache.
    if torch.compiler.is_compiling() or type(m) is not Tensor:
        return m.new_tensor(_ROWS).unbind()
    key = (m.device, m.dtype)
    if key not in _constants:
        with torch.inference_mode(False):  # a tensor made in that mode could not be used outside
            _constants[key] = m.new_tensor(_ROWS).unbind()
    return _constants[key]
