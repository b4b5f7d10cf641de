"""The measures of the paper: accuracy on test rows, on right and on wrong labels."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from imae.data import Batches, Split
from imae.losses.margin import margin
from imae.models.network import Network
from imae.records import EpochDynamics
from imae.train.config import Config
from imae.train.learner import outputs_of_call
from imae.train.rows import Prepared
from imae.train.state import Ranks, State

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Measures = dict[str, float | None]


def held_dynamics(state: State) -> EpochDynamics | None:
    """What the network predicts of `Prepared.unseen`; all ranks must call it."""
    if not state.prepared.unseen:
        return None
    _take_over_buffers(state)

    def shown(logits: Tensor, target: Tensor) -> Tensor:
        logits = logits.float()
        return torch.stack([margin(logits, target), logits.argmax(1).float()], dim=1)

    rows = torch.cat([_predicted(state, split, shown) for split in state.prepared.unseen])
    margins, predicted = rows.numpy().T
    return EpochDynamics(
        margin=margins.copy(),
        predicted=predicted.astype(np.int32),
        weight=np.full(len(rows), np.nan, np.float32),
    )


def evaluate(state: State, held: EpochDynamics | None = None) -> Measures:
    """Accuracies of the network as it is, in evaluation mode; all ranks must call it.

    Args:
        state: The run.
        held: What `held_dynamics` gave at this step, if it was called, to save a second pass.

    Returns:
        ``test_accuracy``, ``validation_accuracy`` (on held-out given labels), ``train_accuracy``
        (training rows predicted as given), ``intact_accuracy`` (training rows predicted as what
        they are), ``noisy_accuracy`` (wrong labels predicted as given), ``clean_accuracy`` (right
        labels predicted), ``corrected_accuracy`` (rows with wrong labels predicted as what they
        are) and ``hybrid_accuracy`` (test rows and all training rows predicted as what they are);
        None where unknown.
    """
    prepared = state.prepared
    _take_over_buffers(state)

    def predicted(split: Split | None) -> NDArray[np.int64] | None:
        if split is None:
            return None
        return _predicted(state, split, lambda logits, _: logits.argmax(1)).numpy()

    validation = prepared.validation
    if held is None or not prepared.is_held_out or validation is None:
        held_predicted = predicted(validation)
    else:
        held_predicted = held.predicted[: len(validation)].astype(np.int64)
    is_measured = state.config.train.measure_train and prepared.train.clean_labels is not None
    return measures(
        prepared,
        test=predicted(prepared.test),
        validation=held_predicted,
        train=predicted(prepared.train) if is_measured else None,
    )


def _take_over_buffers(state: State) -> None:
    state.ranks.take_over_buffers(state.learner.networks)
    state.ranks.take_over_buffers(state.network)  # a moving average has buffers of its own


def _predicted(state: State, split: Split, output: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
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
    test_hits = None if test is None else test == _truth(prepared.test)
    given = intact = noisy = clean = corrected = hybrid = None
    if train is not None:
        split, is_flipped = prepared.train, prepared.is_flipped
        assert is_flipped is not None
        given, intact = train == split.labels, train == split.clean_labels
        if prepared.is_planted is not None:
            kept = ~prepared.is_planted
            given, intact, is_flipped = given[kept], intact[kept], is_flipped[kept]
        noisy, clean, corrected = given[is_flipped], given[~is_flipped], intact[is_flipped]
        hybrid = None if test_hits is None else np.concatenate([test_hits, intact])
    held = prepared.validation
    held_hits = None if held is None or validation is None else validation == held.labels
    return {
        "test_accuracy": _mean(test_hits),
        "validation_accuracy": _mean(held_hits),
        "train_accuracy": _mean(given),
        "intact_accuracy": _mean(intact),
        "noisy_accuracy": _mean(noisy),
        "clean_accuracy": _mean(clean),
        "corrected_accuracy": _mean(corrected),
        "hybrid_accuracy": _mean(hybrid),
    }


def predict_logits(
    network: Network, split: Split, *, ranks: Ranks, fabric: "Fabric", config: Config
) -> Tensor:
    """Logits of every row of a split, shape (N, C), on the CPU; all ranks must call it."""
    ranks.take_over_buffers(network)
    return _over_rows(network, split, _as_they_are, ranks=ranks, fabric=fabric, config=config)


def predict_features(
    network: Network, split: Split, *, ranks: Ranks, fabric: "Fabric", config: Config
) -> Tensor:
    """Input of the last layer for every row of a split, shape (N, E); all ranks must call it."""
    ranks.take_over_buffers(network)
    features = _Features(network)
    return _over_rows(features, split, _as_they_are, ranks=ranks, fabric=fabric, config=config)


def _as_they_are(outputs: Tensor, _: Tensor) -> Tensor:
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
    ranks: Ranks,
    fabric: "Fabric",
    config: Config,
) -> Tensor:
    """``output`` of the logits and given label of every row; each rank does its share of them."""
    # Rank r has every number-th row from r on. All have as many, for a network whose weights are
    # divided computes on all ranks at once: where the rows do not go round, some get row 0 too.
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
    """Evaluation mode for the block, and afterwards the mode that was."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def _truth(split: Split | None) -> NDArray[np.int64]:
    assert split is not None
    return split.labels if split.clean_labels is None else split.clean_labels


def _mean(hits: NDArray[np.bool_] | None) -> float | None:
    return None if hits is None or len(hits) == 0 else float(hits.mean())
