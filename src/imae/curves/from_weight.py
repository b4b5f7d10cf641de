"""A loss from any weight curve, by numerical integration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from imae.curves.curve import Curve

# A sigmoid is constant to the last digit of float64 beyond 40; a weight that falls with a small
# power of p takes a little longer.
_REACH = 80.0
_NUM_PANELS = 10
_nodes, _weights = np.polynomial.legendre.leggauss(16)
_PANEL_NODES: list[float] = ((1 + _nodes) / 2).tolist()
_PANEL_WEIGHTS: list[float] = (_weights / 2).tolist()


def integrate_from_zero(f: Callable[[Tensor], Tensor], m: Tensor) -> Tensor:
    """The integral of ``f`` from 0 to ``m``, element by element.

    Gauss-Legendre with 16 nodes on each of ten panels that halve towards 0, where a function of
    ``sigmoid(t)`` varies. ``f`` counts as constant beyond ``|t| = 80``. Smooth functions come
    out to a relative error of about 1e-12 in float64; a jump of ``f`` costs accuracy near it.

    Args:
        f: Maps a tensor of any shape to one of the same shape.
        m: Upper ends, any shape.

    Returns:
        Integrals, same shape and dtype as ``m``.

    Examples:
        >>> m = torch.tensor([-1.0, 2.0])
        >>> integrate_from_zero(torch.exp, m)           # exp(m) - 1
        tensor([-0.6321,  6.3891])
    """
    end = m.clamp(-_REACH, _REACH)
    nodes = m.new_tensor(_PANEL_NODES)
    weights = m.new_tensor(_PANEL_WEIGHTS)
    total = torch.zeros_like(m)
    low, high = 0.0, 2.0 ** (1 - _NUM_PANELS)
    for _ in range(_NUM_PANELS):
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
