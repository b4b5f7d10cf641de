"""From a configuration to a state that can be trained: settings resolved, networks built."""

import copy
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from imae._draws import derive_seed
from imae.data import Batches, Data, Split, describe
from imae.data.sources.catalog import SOURCES
from imae.errors import ArgumentError
from imae.methods.catalog import METHODS
from imae.methods.matrix import is_matrix_file, read_matrix
from imae.methods.method import Facts, Method, TrustedRows
from imae.models import build, input_options, load_weights
from imae.models.network import Network, as_network, model_for
from imae.train.config import TWO_CLASS_CLIP, Config
from imae.train.display import Display
from imae.train.dynamics import Dynamics, Watch, remedies
from imae.train.learner import Learner, predict_features, predict_logits
from imae.train.machine import build_fabric, chosen_machine, divided, shard, sum_dtype
from imae.train.preparation import full_embedding
from imae.train.rows import Extractor, Prepared, load_rows, prepare
from imae.train.state import Ranks, State, averaged, build_optimizer

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
    is_resumed: bool = False,
) -> State:
    """The state of a run before its first step; nothing is written.

    Args:
        config: Settings; those left open are resolved here.
        fabric: Devices, precision and strategy.
        display: Shows which initial weights were loaded.
        data: Rows from Python, in place of what the settings name.
        model: A network from Python; a copy of it is trained.
        extract: Makes features of images; see ``load_rows``.
        scale_by_all: For runs of earlier versions; see ``load_rows``.
        is_resumed: Whether the settings are those of a run that has begun: nothing is left open.

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
    if not is_resumed:
        config = careful_start(config, prepared)
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
            "divides among the processes; use ddp"
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
    """Initialises the networks again, and resets the optimiser and the average."""
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
    state.best_validation = -1.0  # the accuracy of the first stage does not count
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


def build_network(config: Config, train: Split, *, seed: int) -> Network:
    """The network of a complete configuration, with initial weights from a seed."""
    name = config.model.name
    assert name is not None
    options = {**input_options(name, train.inputs.shape), **config.model.arguments}
    return build(name, num_classes=train.num_classes, seed=seed, **options)


def build_networks(
    config: Config, train: Split, number: int, display: Display, *, first: int = 0
) -> tuple[Network, ...]:
    """Networks of a complete configuration, each with its own initial weights.

    Args:
        config: The settings.
        train: Rows to train on.
        number: Number of networks.
        display: Shows which initial weights were loaded.
        first: Number of networks that the run has already built.
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
            f"{config.method.name} trains {method.num_networks} networks with initial weights of "
            "their own; name a function that builds one: model.name=package.module:function"
        )
    network = as_network(model, train.num_classes)
    check_network(network, train)
    return network


def check_network(network: Network, train: Split) -> None:
    """Tests a user's network on one row.

    Raises:
        ArgumentError: If it fails, has no parameters, or does not return one logit per class.
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
            f"model: returns outputs of shape {tuple(outputs.shape)} for one row; the data has "
            f"{train.num_classes} classes"
        )


def check_single_rows(network: Network, train: Split) -> None:
    """Raises if some batch has one row, on which the network's batch normalisation fails.

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
    """The first row without augmentation, shape (1, ...), to test a network with."""
    return train.inputs.batch(np.zeros(1, np.int64), generator=None)


DEFAULT_EPOCHS = 40
DEFAULT_BATCH_SIZE = 64


def resolved(config: Config, prepared: Prepared) -> Config:
    """The configuration with every setting resolved, as it is stored and as a resume reads it.

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
    batch_size = train.batch_size or min(DEFAULT_BATCH_SIZE, rows)
    epochs = train.epochs or (None if train.steps is not None else DEFAULT_EPOCHS)
    name = config.model.name or model_for(prepared.train.inputs.shape, rows)
    config = with_full_paths(config)
    changes: dict[str, Any] = {
        "train": train.model_copy(update={"batch_size": batch_size, "epochs": epochs}),
        "model": config.model.model_copy(update={"name": name}),
        "data": config.data.model_copy(update={"trusted": _trusted(config, prepared)}),
    }
    return config.model_copy(update=changes)


# With two classes a few large steps can move all rows to one side, where a robust loss has almost
# no gradient: this happened in 3 of 12 runs on clean moons and circles, and in none with these.
_TWO_CLASS_WARM_UP = 40
_WARM_UP_PART = 8  # of a short run: one step in this many


def careful_start(config: Config, prepared: Prepared) -> Config:
    """The resolved configuration with gradients clipped and a warm-up, for two classes.

    Settings that were given are kept.
    """
    train, schedule = config.train, config.schedule
    clip, warm_up = train.clip, schedule.warm_up
    has_two_classes = prepared.train.num_classes == 2
    if has_two_classes and clip is None:
        clip = TWO_CLASS_CLIP
    if warm_up is None:
        assert train.batch_size is not None
        epoch = -(-len(prepared.train) // train.batch_size)
        total_steps = train.steps or (train.epochs or 0) * epoch
        is_wanted = has_two_classes and schedule.name != "one_cycle"
        warm_up = min(_TWO_CLASS_WARM_UP, total_steps // _WARM_UP_PART) if is_wanted else 0
    return config.model_copy(
        update={
            "train": train.model_copy(update={"clip": clip}),
            "schedule": schedule.model_copy(update={"warm_up": warm_up}),
        }
    )


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
    # The numbers, not the name of their file, which may be gone when the run is resumed.
    return {
        key: read_matrix(key, value).tolist() if is_matrix_file(value) else value
        for key, value in arguments.items()
    }


def _trusted(config: Config, prepared: Prepared) -> int | str | None:
    if config.data.trusted is not None or prepared.trusted is None:
        return config.data.trusted
    return len(prepared.trusted)
