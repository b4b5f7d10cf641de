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
    pass: the weight that each row had. The margins of the given labels stay on ``margin``.

    Args:
        networks: One network, or more if the method asks for them; the first is evaluated.
        method: What is optimised.
        compiled: Whether the networks are compiled.
        sharded: Whether their weights will be divided, so that they can only be called whole.
    """

    def __init__(
        self,
        networks: tuple[Network, ...],
        method: Method,
        *,
        compiled: bool = False,
        sharded: bool = False,
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.method = method
        outputs: Callable[[nn.Module, Tensor], _Outputs]
        if not method.needs_features:
            outputs = _logits_alone
        else:
            outputs = outputs_of_call if sharded else _features_and_logits
        self._outputs = torch.compile(outputs) if compiled else outputs
        self.logits: Tensor | None = None
        self.margin: Tensor | None = None

    @property
    def network(self) -> Network:
        """The network that is evaluated."""
        network = self.networks[0]
        assert isinstance(network, Network)
        return network

    def forward(
        self, inputs: Tensor, target: Tensor, row: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Loss of every row, shape (B,).

        Args:
            inputs: Shape (B, ...).
            target: Given labels, shape (B,).
            row: Positions in the training split, shape (B,).
            weight: How much each row counts, shape (B,), if the data say.
        """
        features, logits = self._outputs(self.networks[0], inputs)
        others = tuple(self._outputs(network, inputs)[1] for network in self.networks[1:])
        if logits.requires_grad:
            logits.retain_grad()
        self.logits = logits
        rows = Rows(logits, target, row, inputs, features, others, weight)
        losses: Tensor = self.method(rows)
        with torch.no_grad():  # where the method has not needed it
            self.margin = rows.margin.detach()
        return losses


def outputs_of_call(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, E) and logits (B, C) of a network that is only called as a module.

    The features are what its last layer was given.
    """
    assert isinstance(network, Network)
    given: list[Tensor] = []
    seen = network.classifier.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    try:
        logits: Tensor = network(inputs)
    finally:
        seen.remove()
    return given[0], logits


def _features_and_logits(network: nn.Module, inputs: Tensor) -> _Outputs:
    assert isinstance(network, Network)
    return network.features_and_logits(inputs)


def _logits_alone(network: nn.Module, inputs: Tensor) -> _Outputs:
    return None, network(inputs)
