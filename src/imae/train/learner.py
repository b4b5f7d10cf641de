"""Networks and method in one module, so that every strategy sees all that is trained."""

import copy
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from imae._draws import derive_seed
from imae.data import Split
from imae.errors import ArgumentError
from imae.methods.method import Method, Rows
from imae.models import build, input_options, load_weights
from imae.models.network import Network
from imae.train.config import Config
from imae.train.display import Display
from imae.train.run import add_output, as_network

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
        for network in networks:
            add_output(network, method)
        outputs: Callable[[nn.Module, Tensor], _Outputs]
        if not method.needs_features:
            outputs = _only_logits
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


def _only_logits(network: nn.Module, inputs: Tensor) -> _Outputs:
    return None, network(inputs)


def build_network(config: Config, train: Split, *, seed: int) -> Network:
    """The network of a complete configuration, with start weights from a seed."""
    name = config.model.name
    assert name is not None
    options = {**input_options(name, train.inputs.shape), **config.model.arguments}
    return build(name, num_classes=train.num_classes, seed=seed, **options)


def build_networks(
    config: Config, train: Split, number: int, display: Display, *, first: int = 0
) -> tuple[Network, ...]:
    """Networks of a complete configuration, each with its own start weights.

    Args:
        config: The settings.
        train: Rows to train on.
        number: How many networks.
        display: Shows which start weights were loaded.
        first: Number of networks that the run has built before.
    """
    networks = []
    for index in range(first, first + number):
        # Not seed + index: the second network of one run would be the first of another.
        seed = derive_seed(config.seed, "network", index) if index else config.seed
        network = build_network(config, train, seed=seed)
        if config.model.init is not None:
            display.say(str(load_weights(network, config.model.init)))
        if config.machine.channels_last:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        networks.append(network)
    return tuple(networks)


def given_network(model: nn.Module, config: Config, train: Split, method: Method) -> Network:
    """A copy of a network from Python.

    Raises:
        ArgumentError: If it does not give one logit for each class, or one network is not enough.
    """
    if method.num_networks > 1:
        raise ArgumentError(
            f"{config.method.name} trains {method.num_networks} networks with start weights of "
            "their own; name a function that builds one: model.name=package.module:function"
        )
    num_classes = train.num_classes
    network = as_network(model, num_classes)
    row = first_row(train)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        shape = tuple(copy.deepcopy(network).eval()(row).shape)
    if shape != (1, num_classes):
        raise ArgumentError(
            f"model: gives outputs of shape {shape} for one row; the data has {num_classes} classes"
        )
    return network


def check_single_rows(network: Network, train: Split) -> None:
    """Refuses a network whose batch normalisation fails on the one row that a batch will have.

    Raises:
        ArgumentError: If it does.
    """
    row = first_row(train)
    try:
        with torch.random.fork_rng(devices=[]):  # dropout draws
            copy.deepcopy(network).train()(row)
    except ValueError as error:
        raise ArgumentError(
            "train.batch_size: some batch has a single row in a process, and this network cannot "
            f"train on one ({error}); set train.drop_last=true or another size"
        ) from None


def first_row(train: Split) -> Tensor:
    """The first row without augmentation, shape (1, ...), to try a network on."""
    return train.inputs.batch(np.zeros(1, np.int64), generator=None)
