"""From a configuration to a state that can be trained."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from imae.data import Batches, Data, Split, describe
from imae.data.sources.catalog import SOURCES
from imae.errors import ArgumentError
from imae.methods.catalog import METHODS
from imae.methods.matrix import is_matrix_file, read_matrix
from imae.methods.method import Facts, TrustedRows
from imae.train.build import (
    averaged,
    build_networks,
    build_optimizer,
    check_single_rows,
    first_row,
    given_network,
)
from imae.train.config import Config
from imae.train.display import Display
from imae.train.dynamics import Dynamics, Watch, remedies
from imae.train.learner import Learner, predict_features, predict_logits
from imae.train.machine import build_fabric, chosen_machine, divided, shard, sum_dtype
from imae.train.preparation import full_embedding
from imae.train.rows import Extractor, Prepared, load_rows, prepare
from imae.train.settings import model_for
from imae.train.state import Ranks, State

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def setup(
    config: Config,
    fabric: "Fabric",
    display: Display,
    *,
    data: Data | None = None,
    model: nn.Module | None = None,
    extract: Extractor | None = None,
    scale_by_all: bool = False,
) -> State:
    """The state of a run before its first step; nothing is written.

    Args:
        config: Settings, some of them perhaps left open.
        fabric: Devices, precision and strategy.
        display: Shows which start weights were loaded.
        data: Rows from Python, in place of what the settings name.
        model: A network from Python; a copy of it is trained.
        extract: Makes features of images; see ``load_rows``.
        scale_by_all: For runs of earlier versions; see ``load_rows``.

    Raises:
        ImaeError: If the data, the network or an option cannot be used.
    """
    rows = load_rows(config, data, extract=extract, scale_by_all=scale_by_all)
    arguments = method_arguments(config, rows.data.num_classes)
    chosen = config.method.model_copy(update={"arguments": arguments})
    method = METHODS.build(chosen.name, **arguments)
    config = config.model_copy(update={"method": chosen})
    prepared = prepare(config, rows, needs_trusted=method.needs_trusted)
    held_out = prepared.validation if prepared.is_held_out else None
    held_words = f"; {len(held_out)} rows held out" if held_out else ""
    display.read(describe(rows.data) + held_words, rows.data.notes)
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
        balanced=config.data.balanced,
        workers=config.data.workers,
        rank=ranks.rank,
        num_ranks=ranks.number,
    )
    total_steps = train.steps or (train.epochs or 0) * len(batches)
    is_sharded = config.machine.strategy == "fsdp" and ranks.number > 1
    if is_sharded and method.works_on_weights:
        raise ArgumentError(
            f"{config.method.name} works on the weights themselves, which machine.strategy=fsdp "
            "divides among the processes; take ddp"
        )
    if model is None:
        networks = build_networks(config, prepared.train, method.num_networks, display)
    else:
        networks = (given_network(model, config, prepared.train, method),)
    machine = chosen_machine(
        config.machine,
        networks,
        first_row(prepared.train),
        batch_size=train.batch_size,
        total_steps=total_steps,
        device=fabric.device,
        may_change_format=model is None and ranks.number == 1 and not method.works_on_weights,
    )
    if config.machine.precision == "auto" and machine.precision != "32-true":
        fabric = build_fabric(machine)
        ranks = Ranks(fabric)
    if machine.channels_last:
        for network in networks:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    config = config.model_copy(update={"machine": machine})
    if batches.smallest_share == 1:
        check_single_rows(networks[0], prepared.train)
    learner = Learner(networks, method, compiled=bool(machine.compile), sharded=is_sharded)
    learner = learner.to(fabric.device)
    _start_method(learner, config, prepared, ranks, fabric, -(-total_steps // len(batches)))
    average = None if train.average is None else averaged(learner.network, train.average)
    module = fabric.setup_module(learner)
    if is_sharded and average is not None:
        shard(average.module, fabric.strategy.device_mesh)  # type: ignore[attr-defined]
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
        watch=Watch(fabric.device, remedies(config.optimizer.lr, _all_arguments(config))),
        average=average,
        total_steps=total_steps,
        loss=torch.zeros(2, dtype=sum_dtype(fabric.device), device=fabric.device),
        restart=method.restart(),
        is_sharded=is_sharded,
    )


def restart_training(state: State) -> None:
    """Gives the networks new start weights, and resets the optimiser and the average."""
    config, networks = state.config, state.learner.networks
    fresh = build_networks(
        config, state.prepared.train, len(networks), Display(), first=len(networks)
    )
    for network, start in zip(networks, fresh, strict=True):
        weights = start.state_dict()
        if state.is_sharded:
            weights = divided(weights, network.state_dict())
        network.load_state_dict(weights)
    state.optimizer.state.clear()
    state.best_validation = -1.0  # what the first stage reached is not this method's
    if state.average is not None:
        state.average.module.load_state_dict(state.learner.network.state_dict())


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

    transition, weights = prepared.transition, prepared.train.weights
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
            weights=None if weights is None else torch.from_numpy(weights),
        )
    )


def _trusted_rows(split: Split | None, device: torch.device) -> TrustedRows | None:
    if split is None:
        return None
    inputs = split.inputs.batch(np.arange(len(split)), generator=None)
    return TrustedRows(inputs.to(device), torch.from_numpy(split.labels).to(device))


_DEFAULT_EPOCHS = 40
_DEFAULT_BATCH_SIZE = 64


def resolved(config: Config, prepared: Prepared) -> Config:
    """The configuration with every setting decided: what is stored, and what a resume reads.

    Paths become absolute, so that a resume in another working directory reads the same files.

    Raises:
        ArgumentError: If the batch is larger than the data.
    """
    rows = len(prepared.train)
    train = config.train
    if train.batch_size is not None and train.batch_size > rows:
        raise ArgumentError(
            f"train.batch_size: {train.batch_size} is more than the {rows} rows to train on"
        )
    batch_size = train.batch_size or min(_DEFAULT_BATCH_SIZE, rows)
    epochs = train.epochs or (None if train.steps is not None else _DEFAULT_EPOCHS)
    name = config.model.name or model_for(prepared.train.inputs.shape, rows)
    config = with_full_paths(config)
    changes: dict[str, Any] = {
        "train": train.model_copy(update={"batch_size": batch_size, "epochs": epochs}),
        "model": config.model.model_copy(update={"name": name}),
        "data": config.data.model_copy(update={"trusted": _trusted(config, prepared)}),
    }
    return config.model_copy(update=changes)


def with_full_paths(config: Config) -> Config:
    """The configuration with absolute paths, as a run stores it."""
    data = {
        "name": _full_name(config),
        "root": _full(config.data.root),
        "labels": _full(config.data.labels),
        "features": full_embedding(config.data.features),
    }
    model = {"init": _full(config.model.init)}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "model": config.model.model_copy(update=model),
        }
    )


def _full(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _full_name(config: Config) -> str:
    name = config.data.name
    return name if config.data.from_python or name in SOURCES else os.path.abspath(name)


def _all_arguments(config: Config) -> dict[str, Any]:
    return {**METHODS.find(config.method.name).defaults, **config.method.arguments}


def method_arguments(config: Config, num_classes: int) -> dict[str, Any]:
    """The parameters of the method, with the number of classes and the content of files.

    Raises:
        ArgumentError: If a file holds no square matrix.
        DataError: If a file cannot be read.
    """
    arguments = dict(config.method.arguments)
    if "num_classes" in METHODS.find(config.method.name).defaults:
        arguments.setdefault("num_classes", num_classes)
    # The numbers, not the name of their file: the run must outlive it.
    return {
        key: read_matrix(key, value).tolist() if is_matrix_file(value) else value
        for key, value in arguments.items()
    }


def _trusted(config: Config, prepared: Prepared) -> int | str | None:
    if config.data.trusted is not None or prepared.trusted is None:
        return config.data.trusted
    return len(prepared.trusted)
