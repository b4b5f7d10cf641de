"""The interface of every loss that depends on the softmax through the label's probability only."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

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
