"""A loss from any weight curve that a user writes down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from imae.curves.base import Curve
from imae.curves.quadrature import integrate_from_zero


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
