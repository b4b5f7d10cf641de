"""From a configuration to a state that can be trained."""

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from imae.data import Batches, Split
from imae.errors import ArgumentError
from imae.methods.catalog import METHODS
from imae.methods.method import Facts, TrustedRows
from imae.models import Network, build, input_options, load_weights
from imae.train.config import Config
from imae.train.display import Display
from imae.train.dynamics import Dynamics, Watch
from imae.train.evaluate import predict_features, predict_logits
from imae.train.learner import Learner
from imae.train.machine import divided, shard, sum_dtype
from imae.train.optim import Average, build_optimizer
from imae.train.rows import Prepared, prepare
from imae.train.settings import resolved
from imae.train.state import Ranks, State

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def setup(config: Config, fabric: "Fabric", display: Display) -> State:
    """The state of a run before its first step; nothing is written.

    Args:
        config: Settings, some of them perhaps left open.
        fabric: Devices, precision and strategy.
        display: Told what start weights fitted.

    Raises:
        ImaeError: If the data, the network or an option cannot be used.
    """
    prepared = prepare(config)
    config = resolved(config, prepared)
    ranks = Ranks(fabric)
    train = config.train
    assert train.batch_size is not None
    batches = Batches(
        prepared.train,
        train.batch_size,
        seed=config.seed,
        augment=config.data.augment,
        drop_last=train.drop_last,
        workers=config.data.workers,
        rank=ranks.rank,
        num_ranks=ranks.number,
    )
    total_steps = train.steps or (train.epochs or 0) * len(batches)
    is_sharded = config.machine.strategy == "fsdp" and ranks.number > 1
    method = METHODS.build(config.method.name, **config.method.arguments)
    if is_sharded and method.works_on_weights:
        raise ArgumentError(
            f"{config.method.name} works on the weights themselves, which machine.strategy=fsdp "
            "divides among the processes; take ddp"
        )
    networks = _networks(config, prepared, method.num_networks, display)
    if batches.smallest_share == 1:
        _check_single_rows(networks[0], prepared.train)
    learner = Learner(networks, method, compiled=config.machine.compile, sharded=is_sharded)
    learner = learner.to(fabric.device)
    _start_method(learner, config, prepared, ranks, fabric, -(-total_steps // len(batches)))
    average = None if train.average is None else Average(learner.network, train.average)
    module = fabric.setup_module(learner)
    if is_sharded and average is not None:
        shard(average.network, fabric.strategy.device_mesh)  # type: ignore[attr-defined]
    # After the module: where weights are divided, these are other parameters.
    optimizer = build_optimizer(config.optimizer, learner.networks, method)
    wrapped = fabric.setup_optimizers(optimizer)
    return State(
        config=config,
        prepared=prepared,
        fabric=fabric,
        ranks=ranks,
        learner=learner,
        module=module,
        optimizer=optimizer,
        wrapped_optimizer=wrapped,
        batches=batches,
        dynamics=Dynamics(len(prepared.train), fabric.device),
        watch=Watch(fabric.device),
        average=average,
        total_steps=total_steps,
        loss=torch.zeros(2, dtype=sum_dtype(fabric.device), device=fabric.device),
        restart=method.restart(),
        is_sharded=is_sharded,
    )


def _check_single_rows(network: Network, train: Split) -> None:
    """Refuses a network whose batch normalisation fails on the one row that a batch will have."""
    row = train.inputs.batch(np.zeros(1, np.int64), generator=None)
    try:
        with torch.random.fork_rng(devices=[]):  # dropout draws
            copy.deepcopy(network).train()(row)
    except ValueError as error:
        raise ArgumentError(
            "train.batch_size: some batch has a single row in a process, and this network cannot "
            f"train on one ({error}); set train.drop_last=true or another size"
        ) from None


def train_anew(state: State) -> None:
    """Gives the networks new start weights, and lets the optimiser and the average forget."""
    config, networks = state.config, state.learner.networks
    anew = _networks(config, state.prepared, len(networks), Display(), first_seed=len(networks))
    for network, start in zip(networks, anew, strict=True):
        weights = start.state_dict()
        if state.is_sharded:
            weights = divided(weights, network.state_dict())
        network.load_state_dict(weights)
    state.optimizer.state.clear()
    state.best_validation = -1.0  # what the first stage reached is not this method's
    if state.average is not None:
        state.average.start_from(state.learner.network)


def build_network(config: Config, prepared: Prepared, *, seed: int) -> Network:
    """The network of a configuration with nothing left open, with start weights from a seed."""
    name = config.model.name
    assert name is not None
    options = {**input_options(name, prepared.train.inputs.shape), **config.model.arguments}
    return build(name, num_classes=prepared.train.num_classes, seed=seed, **options)


def _networks(
    config: Config, prepared: Prepared, number: int, display: Display, *, first_seed: int = 0
) -> tuple[Network, ...]:
    networks = []
    for index in range(first_seed, first_seed + number):
        network = build_network(config, prepared, seed=config.seed + index)
        if config.model.init is not None:
            display.say(str(load_weights(network, config.model.init)))
        if config.machine.channels_last:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        networks.append(network)
    return tuple(networks)


def _start_method(
    learner: Learner,
    config: Config,
    prepared: Prepared,
    ranks: Ranks,
    fabric: "Fabric",
    num_epochs: int,
) -> None:
    def predict() -> Tensor:
        return predict_logits(
            learner.network, prepared.train, ranks=ranks, fabric=fabric, config=config
        )

    def features(rows: Tensor) -> Tensor:
        return predict_features(
            learner.network,
            prepared.train.take(rows.cpu().numpy()),
            ranks=ranks,
            fabric=fabric,
            config=config,
        )

    transition = prepared.transition
    learner.method.start(
        Facts(
            labels=torch.from_numpy(prepared.train.labels).to(fabric.device),
            num_classes=prepared.train.num_classes,
            num_epochs=num_epochs,
            seed=config.seed,
            networks=tuple(learner.networks),
            predict=predict,
            features=features,
            total=ranks.total,
            gather=ranks.gather,
            transition=None if transition is None else torch.from_numpy(transition),
            trusted=_trusted_rows(prepared.trusted, fabric.device),
        )
    )


def _trusted_rows(split: Split | None, device: torch.device) -> TrustedRows | None:
    if split is None:
        return None
    inputs = split.inputs.batch(np.arange(len(split)), generator=None)
    return TrustedRows(inputs.to(device), torch.from_numpy(split.labels).to(device))
