"""A moving average of the weights."""

import copy

import torch
from torch import nn


class Average:
    """A network whose weights trail behind those of another.

    Formula:

        average = decay average + (1 - decay) weights, after each step

    Buffers, such as the statistics of batch normalisation, are taken over as they are.

    Args:
        network: The network to follow; a copy of it is the start.
        decay: In (0, 1).

    Examples:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average = Average(network, decay=0.75)
        >>> with torch.no_grad():
        ...     _ = average.network.weight.fill_(0), network.weight.fill_(1)
        >>> average.update(network)
        >>> float(average.network.weight)
        0.25
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self._decay = decay

    @torch.no_grad()
    def start_from(self, network: nn.Module) -> None:
        """Forgets all steps: the network as it is now is the start."""
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.copy_(weight)
        for own, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            own.copy_(buffer)

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Follows the network by one step."""
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.lerp_(weight, 1 - self._decay)
        for own, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            own.copy_(buffer)
