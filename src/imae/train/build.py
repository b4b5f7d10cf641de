"""Networks, optimisers and learning-rate schedules as the settings describe them."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from imae._draws import derive_seed
from imae.data import Split
from imae.errors import ArgumentError
from imae.methods.method import Method
from imae.models import build, input_options, load_weights
from imae.models.network import CustomNetwork, Network
from imae.train.config import Config, OptimizerConfig, ScheduleConfig
from imae.train.display import Display


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
        if ":" in (config.model.name or ""):  # a function of the user's
            check_network(network, train)
        if config.model.init is not None:
            display.say(str(load_weights(network, config.model.init)))
        networks.append(network)
    return tuple(networks)


def given_network(model: nn.Module, config: Config, train: Split, method: Method) -> Network:
    """A copy of a network from Python.

    Raises:
        ArgumentError: If it cannot be trained on these rows, or one network is not enough.
    """
    if method.num_networks > 1:
        raise ArgumentError(
            f"{config.method.name} trains {method.num_networks} networks with start weights of "
            "their own; name a function that builds one: model.name=package.module:function"
        )
    network = as_network(model, train.num_classes)
    check_network(network, train)
    return network


def check_network(network: Network, train: Split) -> None:
    """Tries a network of the user's on one row.

    Raises:
        ArgumentError: If it fails, has no parameters, or does not give one logit for each class.
    """
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ArgumentError("model: has no parameters to train")
    row = first_row(train)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs: object = copy.deepcopy(network).eval()(row)
    except Exception as error:  # of code that is not ours
        reason = " ".join(str(error).split())[:200]
        raise ArgumentError(
            f"model: fails on one row, of shape {tuple(row.shape)}: "
            f"{type(error).__name__}: {reason}"
        ) from error
    if not isinstance(outputs, Tensor):
        raise ArgumentError(
            f"model: must return logits as one tensor, returns {type(outputs).__name__}"
        )
    if tuple(outputs.shape) != (1, train.num_classes):
        raise ArgumentError(
            f"model: gives outputs of shape {tuple(outputs.shape)} for one row; the data has "
            f"{train.num_classes} classes"
        )


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


def as_network(module: nn.Module, num_classes: int) -> Network:
    """A copy of a module that gives logits, as a network."""
    module = copy.deepcopy(module)
    return module if isinstance(module, Network) else CustomNetwork(module, num_classes=num_classes)


def build_optimizer(
    config: OptimizerConfig, network: nn.Module, method: nn.Module
) -> torch.optim.Optimizer:
    """The optimiser of the network's parameters and of those that the method has.

    Those of the method have no weight decay: a transition matrix must not tend to zero.

    Args:
        config: Which optimiser, and its numbers.
        network: Network, or several of them in one module.
        method: What is optimised.
    """
    groups = [{"params": list(network.parameters()), "weight_decay": config.weight_decay}]
    if own := list(method.parameters()):
        groups.append({"params": own, "weight_decay": 0.0})
    if config.name == "adam_caffe":
        return CaffeAdam(groups, lr=config.lr, delta=config.delta)
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, eps=config.delta)
    momentum = 0.0 if config.name == "sgd" else config.momentum
    return torch.optim.SGD(
        groups,
        lr=config.lr,
        momentum=momentum,
        nesterov=config.name == "nesterov" and momentum > 0,
    )


class CaffeAdam(torch.optim.Adam):
    """Adam as in Caffe, the framework of the paper's authors: delta joins the uncorrected root.

    Formula, with v the running mean of squares after t steps and c = sqrt(1 - beta2^t):

        Caffe: step = lr / (1 - beta1^t) * mean * c / (sqrt(v) + delta)
        torch: step = lr / (1 - beta1^t) * mean / (sqrt(v) / c + delta)

    So it is torch's Adam with ``delta / c`` in place of delta. With the large deltas of the paper,
    0.1 and 1, the first steps are up to 1 / c = 32 times smaller.

    Args:
        parameters: Parameters, or groups of them.
        lr: Learning rate.
        delta: What is added to the root, positive.

    Examples:
        >>> weight = torch.zeros(1, requires_grad=True)
        >>> weight.grad = torch.ones(1)
        >>> CaffeAdam([weight], lr=1.0, delta=0.1).step()
        >>> weight
        tensor([-0.2403], requires_grad=True)

    Reference:
        Kingma and Ba, "Adam", ICLR 2015, section 2, the order of computation at its end.
    """

    def __init__(self, parameters: Any, *, lr: float, delta: float) -> None:
        super().__init__(parameters, lr=lr)
        for group in self.param_groups:
            group["delta"] = delta

    def step(self, closure: Any = None) -> Any:
        """One step."""
        for group in self.param_groups:
            done = max(
                (float(self.state[each].get("step", 0)) for each in group["params"]), default=0
            )
            group["eps"] = group["delta"] / math.sqrt(1 - group["betas"][1] ** (done + 1))
        return super().step(closure)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group."""
    groups: Iterable[dict[str, object]] = optimizer.param_groups
    for group in groups:
        group["lr"] = lr


_ONE_CYCLE_RISE = 0.3


_ONE_CYCLE_START = 1 / 25


_ONE_CYCLE_END = 1e-4 / 25


def factor(schedule: ScheduleConfig, step: int, total_steps: int) -> float:
    """The factor of the learning rate at a step.

    Args:
        schedule: Shape of the learning rate.
        step: Optimiser step, from 0.
        total_steps: Steps of the whole run.

    Examples:
        >>> paper = ScheduleConfig(name="steps", at=(32000, 48000))
        >>> [factor(paper, step, 100000) for step in (31999, 32000, 48000)]
        [1.0, 0.1, 0.01]
    """
    warm_up = min(1.0, (step + 1) / (schedule.warm_up + 1))
    if schedule.name == "constant":
        return warm_up
    if schedule.name == "steps":
        return warm_up * divided(schedule, step)
    if schedule.name == "cosine":
        progress = max(0, step - schedule.warm_up) / max(1, total_steps - schedule.warm_up)
        return warm_up * cosine(progress, 1.0, 0.0)
    return one_cycle(step / total_steps)


def divided(schedule: ScheduleConfig, step: int) -> float:
    """One over ``divide_by`` for each time that the schedule has divided until this step."""
    if schedule.every is not None:
        times = step // schedule.every
    else:
        times = sum(step >= at for at in schedule.at)
    return float(schedule.divide_by**-times)


def shortened(schedule: ScheduleConfig, part: float) -> ScheduleConfig:
    """The schedule for a stage that is a part of the run, in (0, 1]: it divides as much earlier.

    Examples:
        >>> shortened(ScheduleConfig(name="steps", at=(32000, 48000)), 0.5).at
        (16000, 24000)
    """
    at = tuple(max(1, round(part * each)) for each in schedule.at)
    every = None if schedule.every is None else max(1, round(part * schedule.every))
    return schedule.model_copy(update={"at": at, "every": every})


def one_cycle(progress: float) -> float:
    """Up from 1/25 over the first 30% of the run, then down to almost nothing, along cosines.

    Args:
        progress: Part of the run that is done, in [0, 1).

    Reference:
        Smith and Topin, "Super-convergence", 2019; the numbers are those of torch's OneCycleLR.
    """
    if progress < _ONE_CYCLE_RISE:
        return cosine(progress / _ONE_CYCLE_RISE, _ONE_CYCLE_START, 1.0)
    return cosine((progress - _ONE_CYCLE_RISE) / (1 - _ONE_CYCLE_RISE), 1.0, _ONE_CYCLE_END)


def cosine(progress: float, start: float, end: float) -> float:
    """Half a cosine from ``start`` to ``end``.

    Examples:
        >>> cosine(0.0, 1.0, 0.0), cosine(0.5, 1.0, 0.0), cosine(1.0, 1.0, 0.0)
        (1.0, 0.5, 0.0)
    """
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))


def averaged(network: nn.Module, decay: float) -> AveragedModel:
    """A copy of a network whose weights follow the original as it is trained.

    Formula:

        average = decay average + (1 - decay) weights, after each step

    Buffers, such as the statistics of batch normalisation, are copied as they are.

    Args:
        network: The network to follow; a copy of it is the start.
        decay: In (0, 1).

    Examples:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average = averaged(network, decay=0.75)
        >>> with torch.no_grad():
        ...     _ = average.module.weight.fill_(0), network.weight.fill_(1)
        >>> average.update_parameters(network)
        >>> float(average.module.weight)
        0.25
    """
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.n_averaged.fill_(1)  # at 0 the first update would copy the weights
    return average.requires_grad_(False).eval()
