"""Optimisers by name."""

from collections.abc import Iterable

import torch
from torch import nn

from imae.train.config import OptimizerConfig


def build_optimizer(
    config: OptimizerConfig, network: nn.Module, method: nn.Module
) -> torch.optim.Optimizer:
    """The optimiser of the network's parameters and of those that the method has.

    The method's are not pulled towards zero: for a transition matrix zero is no resting place.

    Args:
        config: Which optimiser, and its numbers.
        network: Network, or several of them in one module.
        method: What is optimised.
    """
    groups = [{"params": list(network.parameters()), "weight_decay": config.weight_decay}]
    if own := list(method.parameters()):
        groups.append({"params": own, "weight_decay": 0.0})
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, eps=config.delta)
    momentum = 0.0 if config.name == "sgd" else config.momentum
    return torch.optim.SGD(
        groups,
        lr=config.lr,
        momentum=momentum,
        nesterov=config.name == "nesterov" and momentum > 0,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group."""
    groups: Iterable[dict[str, object]] = optimizer.param_groups
    for group in groups:
        group["lr"] = lr
