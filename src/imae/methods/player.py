"""A small network that a method trains by itself, apart from the run's optimiser."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

_DECAY = 0.9
_DELTA = 1e-10


class Player(nn.Module):
    """A fully connected network with an RMSProp of its own, one side of an adversarial game.

    Weights and the optimiser's running squares are buffers: they are saved with the method that
    holds them, and the run's optimiser, which plays no game, leaves them alone.

    Args:
        sizes: Units of each layer, the input first.
        activation: Between layers; the last one is linear.
        generator: Source of the start weights (Glorot's uniform ones; biases are 0).

    Examples:
        >>> player = Player((2, 3, 1), torch.relu, torch.Generator().manual_seed(1))
        >>> inputs = torch.ones(4, 2)
        >>> for _ in range(300):
        ...     player.improve(lambda values: (player(inputs, values) - 5).square().mean(), 0.05)
        >>> player(inputs).round(decimals=1)[0]
        tensor([5.])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Callable[[Tensor], Tensor],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self._activation = activation
        self._num_values = 2 * (len(sizes) - 1)
        for layer, (before, after) in enumerate(itertools.pairwise(sizes)):
            limit = math.sqrt(6 / (before + after))
            weight = (2 * torch.rand(before, after, generator=generator) - 1) * limit
            self._register(2 * layer, weight)
            self._register(2 * layer + 1, torch.zeros(after))

    def forward(self, inputs: Tensor, values: Sequence[Tensor] | None = None) -> Tensor:
        """Outputs, shape (B, last size), for inputs (B, first size).

        Args:
            inputs: What the first layer sees.
            values: Weights and biases to use, in order; None for the network's own.
        """
        values = self._values("value") if values is None else values
        for layer in range(0, self._num_values, 2):
            if layer > 0:
                inputs = self._activation(inputs)
            inputs = torch.addmm(values[layer + 1], inputs, values[layer])
        return inputs

    def improve(self, loss: Callable[[Sequence[Tensor]], Tensor], rate: float) -> None:
        """One step of RMSProp.

        Args:
            loss: What to make smaller, given the weights and biases.
            rate: Learning rate.
        """
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in self._values("value")]
            gradients = torch.autograd.grad(loss(leaves), leaves)
        with torch.no_grad():
            squares = self._values("square")
            for value, square, gradient in zip(leaves, squares, gradients, strict=True):
                square.lerp_(gradient.square(), 1 - _DECAY)
                value.sub_(rate * gradient / (square + _DELTA).sqrt())

    def _register(self, index: int, start: Tensor) -> None:
        self.register_buffer(f"value_{index}", start)
        # From 1 and not 0, as in the optimiser of the publication: the first steps are small.
        self.register_buffer(f"square_{index}", torch.ones_like(start))

    def _values(self, kind: str) -> list[Tensor]:
        return [self.get_buffer(f"{kind}_{index}") for index in range(self._num_values)]
