"""Curves: losses that see the softmax only through the label's probability, and their sums."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from imae.errors import ArgumentError, check_interval

# Beyond this margin the probability is exactly 0 or 1 in float64, and every weight is at its limit.
SATURATED = 1e4


class Curve(ABC):
    """A loss as a scalar function of the margin.

    The margin of the given label ``y`` is ``m = z_y - logsumexp_{j != y} z_j``, and
    ``p = sigmoid(m)`` is its probability. A curve gives the loss and its derivative there:

        phi(m)  = value(m)
        phi'(m) = slope(m), never positive
        w(p)    = 2 |phi'(m)|, the L1 norm of the gradient on the logits

    Leaves are frozen dataclasses of a few lines; ``imae.curve_loss`` applies them to logits.

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 3.
    """

    name: ClassVar[str]

    @abstractmethod
    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``, element by element."""

    @abstractmethod
    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``, element by element."""

    def slope_and_value(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """Slope and value at margins that need no gradient, both new tensors.

        For a training step, which needs both: a curve overrides it where they share work. The
        slope is as exact as ``slope``; the value may be off by 1e-6 of itself, or of 1.
        """
        return self.slope(m), self.value(m)

    def numpy_weight_and_sum(self, odds: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """The same for odds against the label, exp(-m): weights, and the sum of the values."""
        slope, value = self.slope_and_value(torch.from_numpy(-np.log(odds)))
        return -2 * slope.numpy(), float(value.sum())

    def tensors(self) -> Iterator[Tensor]:
        """The parameters of the curve that are tensors, those of its parts included."""
        for field in fields(self):  # type: ignore[arg-type]  # leaves are dataclasses
            value = getattr(self, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Tensor):
                    yield part
                elif isinstance(part, Curve):
                    yield from part.tensors()

    def with_tensors(self, tensors: Iterator[Tensor]) -> Self:
        """The same curve with other tensors, in the order of ``tensors``, taken unchecked.

        Examples:
            >>> from imae.curves import IMAE
            >>> Scale(IMAE(torch.tensor(8.0)), 0.5).with_tensors(iter([torch.tensor(4.0)]))
            Scale(curve=IMAE(T=tensor(4.)), factor=0.5)
        """

        def renewed(part: object) -> object:
            if isinstance(part, Curve):
                return part.with_tensors(tensors)
            return next(tensors) if isinstance(part, Tensor) else part

        other = copy.copy(self)
        for field in fields(self):  # type: ignore[arg-type]  # leaves are dataclasses
            value = getattr(self, field.name)
            new = tuple(map(renewed, value)) if isinstance(value, tuple) else renewed(value)
            object.__setattr__(other, field.name, new)
        return other

    def weight(self, p: Tensor) -> Tensor:
        """Weight of an example whose label has probability ``p``, element by element.

        Args:
            p: Probabilities in [0, 1], any shape, any float dtype.

        Returns:
            ``2 |phi'(m)|`` at ``m = logit(p)``, same shape and dtype.

        Examples:
            >>> from imae.curves import CCE
            >>> CCE().weight(torch.tensor([0.0, 0.25, 1.0]))
            tensor([2.0000, 1.5000, 0.0000])
        """
        return 2 * self.slope(torch.logit(p).clamp(-SATURATED, SATURATED)).abs()

    def weight_at(self, p: float) -> float:
        """The weight at one probability, as a number."""
        return self.weight(torch.tensor(p, dtype=torch.float64)).item()


@final
@dataclass(frozen=True)
class Sum(Curve):
    """The sum of two or more curves.

    Formula:

        phi(m)  = sum of the parts' phi(m)
        phi'(m) = sum of the parts' phi'(m)
        w(p)    = sum of the parts' w(p)

    Args:
        parts: The curves to add.

    Examples:
        >>> from imae.curves import CCE, MAE
        >>> Sum((CCE(), MAE())).weight(torch.tensor([0.5]))
        tensor([2.])
    """

    parts: tuple[Curve, ...]
    name: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise ArgumentError(f"parts must hold two curves or more, got {len(self.parts)}")

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return torch.stack([part.value(m) for part in self.parts]).sum(0)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return torch.stack([part.slope(m) for part in self.parts]).sum(0)


@final
@dataclass(frozen=True)
class Scale(Curve):
    """A curve times a constant.

    It changes the steps of the optimiser, but not the ratio between two examples.

    Formula:

        phi(m)  = factor times the curve's phi(m)
        phi'(m) = factor times the curve's phi'(m)
        w(p)    = factor times the curve's w(p)

    Args:
        curve: The curve to scale.
        factor: The constant, not negative.

    Examples:
        >>> from imae.curves import MAE
        >>> Scale(MAE(), 0.5).weight(torch.tensor([0.5]))
        tensor([0.5000])
    """

    curve: Curve
    factor: float
    name: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        check_interval("factor", self.factor, low=0)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return self.factor * self.curve.value(m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        return self.factor * self.curve.slope(m)


@final
@dataclass(frozen=True)
class Window(Curve):
    """A curve that counts only examples whose margin is in a window.

    Formula:

        phi(m)  = the curve's phi at min(max(m, low), high)
        phi'(m) = the curve's phi'(m) if low <= m <= high else 0
        w(p)    = the curve's w(p) if low <= logit(p) <= high else 0

    What it does at both ends. A finite ``high`` stops examples that are right by that margin
    from pushing their logits further: with a weight that does not vanish at p = 1, such as
    IMAE's, logits otherwise grow without bound. A finite ``low`` stops examples that are wrong
    by that margin, likely wrong labels, but also the rows of a class not yet learned: starting
    at random with C classes, margins are near ``-log(C - 1)``, so keep ``low`` well under that.

    Args:
        curve: The curve inside the window.
        low: Smallest margin that still counts.
        high: Largest margin that still counts.

    Examples:
        >>> from imae.curves import IMAE
        >>> Window(IMAE(T=8.0), high=4.0).weight(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1.0000, 7.3891, 0.0000])
    """

    curve: Curve
    low: float = -math.inf
    high: float = math.inf
    name: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        check_constant("low", self.low)
        check_constant("high", self.high)
        if not self.low < self.high:
            raise ArgumentError(f"low must be under high, got low={self.low}, high={self.high}")

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return self.curve.value(m.clamp(self.low, self.high))

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        inside = (m >= self.low) & (m <= self.high)
        # A NaN margin is outside every window, and must not turn into a silent zero.
        return torch.where(inside | m.isnan(), self.curve.slope(m), torch.zeros_like(m))


def check_constant(name: str, value: object) -> None:
    """Raises if a parameter that cannot be differentiated requires a gradient.

    Raises:
        ArgumentError: If it is a tensor that requires a gradient.
    """
    if isinstance(value, Tensor) and value.requires_grad:
        raise ArgumentError(f"{name} cannot be trained: give a number")


# A sigmoid is constant to the last digit of float64 beyond 40, and so is its square root beyond 80.
REACH = 80.0
_NUM_PANELS = 10
_nodes, _weights = np.polynomial.legendre.leggauss(16)
_PANEL_NODES: list[float] = ((1 + _nodes) / 2).tolist()
_PANEL_WEIGHTS: list[float] = (_weights / 2).tolist()


def integrate_from_zero(
    f: Callable[[Tensor], Tensor], m: Tensor, *, reach: float | Tensor = REACH
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
    if isinstance(reach, Tensor):  # of a trained parameter; what is beyond it has no derivative
        reach = float(reach.detach())
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
    # Not f(end): what is left there of a function that ends at 0 would add up without bound.
    beyond = f(m)
    # A function that ends at 0 adds nothing, not 0 * inf, for an infinite margin.
    tail = torch.where(beyond == 0, torch.zeros_like(m), beyond * (m - end))
    return total * end + tail
