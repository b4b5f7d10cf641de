"""Networks and method in one module, so that every strategy sees all that is trained."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from imae.methods.method import Method, Rows
from imae.models.network import Network

_Outputs: TypeAlias = tuple[Tensor | None, Tensor]


class Learner(nn.Module):
    """What the optimiser trains; a call gives the loss of every row.

    The logits of the last call stay on ``logits``, and keep their gradient after the backward
    pass: the weight that each row had.

    Args:
        networks: One network, or more if the method asks for them; the first is evaluated.
        method: What is optimised.
        compiled: Whether the networks are compiled.
    """

    def __init__(
        self, networks: tuple[Network, ...], method: Method, *, compiled: bool = False
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.method = method
        outputs: Callable[[nn.Module, Tensor], _Outputs]
        outputs = _features_and_logits if method.needs_features else _logits_alone
        self._outputs = torch.compile(outputs) if compiled else outputs
        self.logits: Tensor | None = None

    @property
    def network(self) -> Network:
        """The network that is evaluated."""
        network = self.networks[0]
        assert isinstance(network, Network)
        return network

    def forward(self, inputs: Tensor, target: Tensor, row: Tensor) -> Tensor:
        """Loss of every row, shape (B,), for inputs (B, ...), labels (B,) and positions (B,)."""
        features, logits = self._outputs(self.networks[0], inputs)
        others = tuple(self._outputs(network, inputs)[1] for network in self.networks[1:])
        if logits.requires_grad:
            logits.retain_grad()
        self.logits = logits
        losses: Tensor = self.method(Rows(logits, target, row, inputs, features, others))
        return losses


def _features_and_logits(network: nn.Module, inputs: Tensor) -> _Outputs:
    assert isinstance(network, Network)
    return network.features_and_logits(inputs)


def _logits_alone(network: nn.Module, inputs: Tensor) -> _Outputs:
    return None, network(inputs)
