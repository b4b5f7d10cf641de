"""Networks and method in one module, its predictions, and their accuracy."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from imae.data import Batches, Split
from imae.losses.margin import margin
from imae.methods.method import Method, Rows
from imae.models.network import Network
from imae.records import EpochDynamics
from imae.records.measures import MEASURES, Hits
from imae.train.config import Config
from imae.train.rows import Prepared

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from imae.train.state import Ranks, State

_Outputs: TypeAlias = tuple[Tensor | None, Tensor]


class Learner(nn.Module):
    """What the optimiser trains; a call returns the loss of every row.

    The logits of the last call are kept in ``logits``, with their gradient after the backward
    pass: the weight that each row had. The margins of the given labels are kept in ``margin``.

    Args:
        networks: One network, or more if the method needs them; the first is evaluated.
        method: What is optimised.
        compiled: Whether the networks are compiled.
        sharded: Whether their weights will be sharded, so that only whole networks can be called.
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
            is_called = sharded or method.output() is not None
            outputs = outputs_of_call if is_called else _features_and_logits
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
            weight: How much each row counts, shape (B,), if the data has weights.
        """
        features, logits = self._outputs(self.networks[0], inputs)
        others = tuple(self._outputs(network, inputs)[1] for network in self.networks[1:])
        if logits.requires_grad:
            logits.retain_grad()
        self.logits = logits
        rows = Rows(logits, target, row, inputs, features, others, weight)
        losses: Tensor = self.method(rows)
        with torch.no_grad():  # unless the method has computed it
            self.margin = rows.margin.detach()
        return losses


def outputs_of_call(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, E) and logits (B, C) of a network that can only be called as a module.

    The features are the inputs of its last layer.
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


def add_output(network: nn.Module, method: Method) -> None:
    """Makes the method's last step, such as a cap on the confidence, a part of the network.

    A call of the network then returns what the loss sees. The step has no weights to store.
    """
    step = method.output()
    if step is not None:
        network.register_forward_hook(partial(_after, step))


def _after(step: nn.Module, _network: nn.Module, _inputs: object, logits: Tensor) -> Tensor:
    limited: Tensor = step(logits)
    return limited


Measures = dict[str, float | None]


class HeldOut(NamedTuple):
    """Predictions of rows that are not trained on, at the end of an epoch.

    Args:
        predicted: Classes of ``Prepared.validation``, shape (M,); None without such rows.
        num_likelier: How many classes are likelier than the given label, for the same rows.
        unseen: For ``Prepared.unseen``; None without such rows.
    """

    predicted: NDArray[np.int64] | None
    num_likelier: Tensor | None
    unseen: EpochDynamics | None


def predict_held_out(state: "State") -> HeldOut:
    """Predictions of all rows that are not trained on; all ranks must call it."""
    prepared = state.prepared
    _broadcast_buffers(state)

    def shown(logits: Tensor, target: Tensor) -> Tensor:
        logits = logits.float()
        num_likelier = (logits > logits.gather(1, target.unsqueeze(1))).sum(1)
        numbers = logits.argmax(1), num_likelier
        return torch.stack([margin(logits, target), *(each.float() for each in numbers)], dim=1)

    validation, is_held_out = prepared.validation, prepared.is_held_out
    splits = (
        prepared.unseen if validation is None or is_held_out else (validation, *prepared.unseen)
    )
    if not splits:
        return HeldOut(None, None, None)
    rows = torch.cat([_predicted(state, split, shown) for split in splits])
    number = 0 if validation is None else len(validation)
    margins, classes, _ = (rows if is_held_out else rows[number:]).numpy().T
    unseen = EpochDynamics(
        margin=margins.copy(),
        predicted=classes.astype(np.int32),
        weight=np.full(len(margins), np.nan, np.float32),
    )
    return HeldOut(
        predicted=rows[:number, 1].numpy().astype(np.int64) if number else None,
        num_likelier=rows[:number, 2] if number else None,
        unseen=unseen if prepared.unseen else None,
    )


def evaluate(state: "State", held: HeldOut | None = None) -> Measures:
    """Accuracies of the current network, in evaluation mode; all ranks must call it.

    Args:
        state: The run.
        held: What `predict_held_out` returned at this step, if it was called, to save a pass.

    Returns:
        Every measure of ``imae.records.measures`` by its key; None where it is unknown.
    """
    prepared = state.prepared
    _broadcast_buffers(state)

    def predicted(split: Split | None) -> NDArray[np.int64] | None:
        if split is None:
            return None
        return _predicted(state, split, lambda logits, _: logits.argmax(1)).numpy()

    return measures(
        prepared,
        test=predicted(prepared.test),
        validation=predicted(prepared.validation) if held is None else held.predicted,
        train=predicted(prepared.train) if state.config.train.measure_train else None,
    )


def _broadcast_buffers(state: "State") -> None:
    state.ranks.broadcast_buffers(state.learner.networks)
    state.ranks.broadcast_buffers(state.network)  # a moving average has its own buffers


def _predicted(state: "State", split: Split, output: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return _over_rows(
        state.network, split, output, ranks=state.ranks, fabric=state.fabric, config=state.config
    )


def measures(
    prepared: Prepared,
    *,
    test: NDArray[np.int64] | None,
    validation: NDArray[np.int64] | None,
    train: NDArray[np.int64] | None,
) -> Measures:
    """Accuracies from the predicted classes of each part, None where a part is not predicted."""
    held_out, rows = prepared.validation, prepared.train
    is_planted = prepared.is_planted
    kept = slice(None) if is_planted is None else ~is_planted
    is_wrong, truth = prepared.is_flipped, rows.clean_labels
    hits: Hits = {
        "test": None if test is None or prepared.test is None else test == _truth(prepared.test),
        "held_out": None
        if held_out is None or validation is None
        else validation == held_out.labels,
        "given": None if train is None else (train == rows.labels)[kept],
        "true": None if train is None or truth is None else (train == truth)[kept],
        "is_wrong": None if is_wrong is None else is_wrong[kept],
    }
    return {measure.key: measure.accuracy(hits) for measure in MEASURES}


def predict_logits(
    network: Network, split: Split, *, ranks: "Ranks", fabric: "Fabric", config: Config
) -> Tensor:
    """Logits of every row of a split, shape (N, C), on the CPU; all ranks must call it."""
    ranks.broadcast_buffers(network)
    return _over_rows(network, split, _unchanged, ranks=ranks, fabric=fabric, config=config)


def predict_features(
    network: Network, split: Split, *, ranks: "Ranks", fabric: "Fabric", config: Config
) -> Tensor:
    """Input of the last layer for every row of a split, shape (N, E); all ranks must call it."""
    ranks.broadcast_buffers(network)
    features = _Features(network)
    return _over_rows(features, split, _unchanged, ranks=ranks, fabric=fabric, config=config)


def _unchanged(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.float()


class _Features(nn.Module):
    """A network without its last layer."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, inputs: Tensor) -> Tensor:
        return outputs_of_call(self.network, inputs)[0]


@torch.no_grad()
def _over_rows(
    network: nn.Module,
    split: Split,
    output: Callable[[Tensor, Tensor], Tensor],
    *,
    ranks: "Ranks",
    fabric: "Fabric",
    config: Config,
) -> Tensor:
    """``output`` of the logits and given label of every row, computed by all ranks together."""
    # Rank r has every number-th row from r on. All must have the same number of rows, because a
    # sharded network computes on all ranks at once: some are given row 0 to make them equal.
    rows = np.arange(ranks.rank, len(split), ranks.number)
    own = len(rows)
    if own < -(-len(split) // ranks.number):
        rows = np.append(rows, 0)
    share = split if ranks.number == 1 else split.take(rows)
    parts = []
    batches = Batches(
        share,
        config.train.evaluate_batch_size,
        seed=0,
        shuffle=False,
        augment=False,
        workers=config.data.workers,
    )
    with _evaluating(network), fabric.autocast():
        for batch in batches.epoch(0):
            logits = network(fabric.to_device(batch.inputs))
            parts.append(output(logits, batch.target.to(logits.device)))
    if ranks.number == 1:
        return torch.cat(parts).cpu()
    found = torch.cat(parts)
    whole = found.new_zeros(len(split), *found.shape[1:])
    whole[torch.from_numpy(rows[:own]).to(whole.device)] = found[:own]
    return ranks.total(whole).cpu()


@contextlib.contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for the block, then the previous mode."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def _truth(rows: Split) -> NDArray[np.int64]:
    return rows.labels if rows.clean_labels is None else rows.clean_labels
