"""The training loop: a step and its learning rate, the whole run, and an estimate of its time."""

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imae._draws import torch_generator
from imae.data import Batch, ImageFiles, Split, Table
from imae.data.extract import is_text_embedding
from imae.models import build
from imae.train.config import Config, ScheduleConfig, chosen_settings
from imae.train.display import QuietDisplay
from imae.train.journal import Journal
from imae.train.machine import build_fabric, clip_gradients, pinned
from imae.train.preparation import frozen_features, published_images
from imae.train.processes import Stopped, StopRequest, stop_requests
from imae.train.setup import restart_training, setup
from imae.train.state import State

_STEPS_BETWEEN_READS = 50  # of results on an accelerator: reading makes the host wait for it


def fit(state: State, journal: Journal) -> None:
    """Trains from the current state to the end of the run.

    Args:
        state: Changed in place; all ranks have one.
        journal: Where evaluations, dynamics and checkpoints go.

    Raises:
        Stopped: If a signal asked for it; the state has been saved.
        ImaeError: If a loss or weight is not finite, or a file cannot be written.
    """
    state.learner.train()
    with stop_requests() as request:
        while state.step < state.total_steps:
            epoch, start = divmod(state.step, state.steps_per_epoch)
            if start == 0 and state.restart is not None and epoch == state.restart.epoch:
                restart_training(state)
            state.method.start_epoch(epoch)
            for batch in state.batches.epoch(epoch, start_step=start):
                must_stop = train_step(state, batch, request)
                after_step(state, journal, epoch, must_stop=must_stop)
                if must_stop:
                    raise Stopped(journal.stopped(state), request.code if request.signal else 143)
                if state.step == state.total_steps:
                    break


def train_step(state: State, batch: Batch, request: StopRequest) -> bool:
    """One step of the optimiser.

    Returns:
        Whether a signal has asked any rank to stop.
    """
    began = time.perf_counter()
    _start_step(state)
    inputs, target, row = (state.fabric.to_device(each) for each in _tensors(state, batch))
    given_weight = None if batch.weight is None else state.fabric.to_device(batch.weight)
    losses: Tensor = state.module(inputs, target, row, given_weight)
    logits, margin = state.learner.logits, state.learner.margin
    assert logits is not None
    assert margin is not None
    state.watch.update(losses, logits)
    if state.watch.is_reading_cheap:
        state.watch.check_finite(state.step, inputs, state.prepared.train.row_ids[batch.row])
    weight = torch.ones_like(losses) if given_weight is None else given_weight
    # One message between ranks per step: the weight of the whole batch, and whether to stop.
    mine = torch.stack([weight.sum(), weight.new_tensor(float(request.signal > 0))])
    total, stop = state.ranks.total(mine).unbind()
    # Strategies average gradients over ranks; this makes the average that of the whole batch.
    share = state.ranks.number / total.clamp(min=torch.finfo(total.dtype).tiny)
    # A row of weight 0 adds nothing, whatever its loss is.
    loss = torch.where(weight > 0, losses * weight, 0).sum()
    state.fabric.backward(loss * share)
    assert logits.grad is not None
    own = logits.grad.float().abs().sum(1) / (share * _loss_scale(state))
    state.dynamics.update(row, logits.detach(), margin, own)
    _update_weights(state)
    state.loss += torch.stack([loss.detach(), weight.sum()]).to(state.loss.dtype)
    state.step += 1
    state.step_seconds += time.perf_counter() - began
    if state.ranks.number == 1:
        return request.signal > 0
    return _is_read(state) and bool(stop > 0)


def after_step(state: State, journal: Journal, epoch: int, *, must_stop: bool) -> None:
    """Evaluates, writes dynamics and saves a checkpoint, each if it is due."""
    train = state.config.train
    is_last = state.step == state.total_steps
    is_epoch_end = state.step % state.steps_per_epoch == 0
    to_evaluate = is_last or _is_due(train.evaluate_every, state.step, is_epoch_end)
    if train.early_stop is not None:  # the best epoch, whichever it is, is measured at its end
        to_evaluate |= is_epoch_end
    is_due = _is_due(train.checkpoint_every, state.step, is_epoch_end)
    if is_due and train.checkpoint_every is None:
        is_due = journal.is_checkpoint_due(state)
    to_save = is_last or must_stop or is_due
    if to_evaluate or to_save or _is_read(state):
        state.watch.check_finite(state.step)
        journal.growth(state)
    if to_evaluate or to_save or is_epoch_end:
        state.check_weights()
    if is_epoch_end:
        state.method.share()
        state.method.end_epoch(epoch)
    held = journal.dynamics(state, epoch) if is_epoch_end or is_last else None
    # Not in an epoch that is cut short, which another run may complete.
    if is_epoch_end and held is not None and held.num_likelier is not None:
        state.method.see_held_out(held.num_likelier)
    is_stopped = is_epoch_end and train.early_stop is not None and journal.stops_early(state)
    if to_evaluate or is_stopped:
        journal.evaluation(state, held)
    if to_save or is_stopped:
        journal.checkpoint(state)
    journal.advanced(state)


def _start_step(state: State) -> None:
    """Sets what depends on the number of the step: the learning rate and the random draws."""
    config = state.config
    epoch, step_in_epoch = divmod(state.step, state.steps_per_epoch)
    # Networks with dropout draw from the global generator: the step decides what they draw.
    draws = torch_generator(config.seed, "step", epoch, step_in_epoch, state.ranks.rank)
    if state.fabric.device.type == "cpu":
        # Not torch.manual_seed, which also records a traceback for each kind of accelerator.
        torch.default_generator.manual_seed(draws.initial_seed())
    else:
        torch.manual_seed(draws.initial_seed())
    state.method.learning_rate = config.optimizer.lr * _rate_factor(state)
    set_learning_rate(state.optimizer, state.method.learning_rate)
    # Freed here and not after the step: there the C library would return the memory to
    # the system, and getting it back cost 7% of a step of ResNet-20.
    state.wrapped_optimizer.zero_grad(set_to_none=True)
    state.learner.logits = None


def _rate_factor(state: State) -> float:
    """The schedule at this step; each stage of a run in two stages has its own schedule."""
    schedule = state.config.schedule
    if state.restart is None:
        return factor(schedule, state.step, state.total_steps)
    border = min(state.restart.epoch * state.steps_per_epoch, state.total_steps)
    if state.step >= border:
        length = state.total_steps - border
        return factor(shortened(schedule, length / state.total_steps), state.step - border, length)
    if state.restart.is_rate_constant:
        return factor(schedule.model_copy(update={"name": "constant"}), state.step, border)
    return factor(shortened(schedule, border / state.total_steps), state.step, border)


def _update_weights(state: State) -> None:
    clip = state.config.train.clip
    if state.is_sharded:
        # Sharding has averaged the gradients of the networks, but not those of the method.
        state.ranks.average_gradients(state.method.parameters())
        if clip is not None:
            clip_gradients(state.learner.parameters(), clip)
    elif clip is not None:
        state.fabric.clip_gradients(
            state.module, state.wrapped_optimizer, max_norm=clip, error_if_nonfinite=False
        )
    state.wrapped_optimizer.step()
    if state.average is not None:
        state.average.update_parameters(state.learner.network)


def _tensors(state: State, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    inputs = batch.inputs
    if state.config.machine.channels_last and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs, batch.target, batch.row


def _is_read(state: State) -> bool:
    return state.watch.is_reading_cheap or state.step % _STEPS_BETWEEN_READS == 0


def _loss_scale(state: State) -> float:
    scaler: Any = state.scaler()
    return 1.0 if scaler is None else float(scaler.get_scale())


def _is_due(every: int | None, step: int, is_epoch_end: bool) -> bool:
    return is_epoch_end if every is None else step % every == 0


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
    warm_steps = schedule.warm_up or 0
    warm_up = min(1.0, (step + 1) / (warm_steps + 1))
    if schedule.name == "constant":
        return warm_up
    if schedule.name == "steps":
        return warm_up * divided(schedule, step)
    if schedule.name == "cosine":
        progress = max(0, step - warm_steps) / max(1, total_steps - warm_steps)
        return warm_up * cosine(progress, 1.0, 0.0)
    return one_cycle(step / total_steps)


def divided(schedule: ScheduleConfig, step: int) -> float:
    """The factor after all divisions by ``divide_by`` up to this step."""
    if schedule.every is not None:
        times = step // schedule.every
    else:
        times = sum(step >= at for at in schedule.at)
    return float(schedule.divide_by**-times)


def shortened(schedule: ScheduleConfig, part: float) -> ScheduleConfig:
    """The schedule for a stage that is a part of the run, in (0, 1]: its divisions come earlier.

    Examples:
        >>> shortened(ScheduleConfig(name="steps", at=(32000, 48000)), 0.5).at
        (16000, 24000)
    """
    at = tuple(max(1, round(part * each)) for each in schedule.at)
    every = None if schedule.every is None else max(1, round(part * schedule.every))
    return schedule.model_copy(update={"at": at, "every": every})


def one_cycle(progress: float) -> float:
    """Up from 1/25 over the first 30% of the run, then down to almost 0, along cosines.

    Args:
        progress: Fraction of the run that is done, in [0, 1).

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


_TRIED_STEPS = 8
_TRIED_ROWS = 4
_LONG_STEP = 1.0  # seconds: from here on a few rows are timed, not whole batches
_LONG_RUN = 3600.0


@dataclass(frozen=True)
class Plan:
    """What would run: its settings as text, its size, and estimates of training steps in seconds.

    ``feature_seconds`` is for features of a frozen network; ``hints`` are lines of advice;
    ``columns`` are those of a table, each with its use.
    """

    settings: dict[str, str]
    num_rows: int
    num_parameters: int
    total_steps: int
    epoch_seconds: float
    total_seconds: float
    feature_seconds: float | None = None
    hints: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()


def plan(config: Config) -> Plan:
    """Tries a few steps of a run in this process, without writing anything.

    Only the first image files are read, and features of a frozen network are computed for
    only a few rows.

    Raises:
        ImaeError: If the data, the network or an option cannot be used.
    """
    single = config.machine.model_copy(update={"devices": 1, "nodes": 1})
    fabric = build_fabric(single)
    sampled = _SampledFeatures()
    state = setup(config, fabric, QuietDisplay(), extract=sampled.extractor)
    state.learner.train()
    threads = state.config.machine.threads
    assert threads is not None
    with pinned(threads, fabric.device):
        step_seconds = _time_steps(state)
    total_seconds = step_seconds * state.total_steps
    return Plan(
        settings=chosen_settings(state.config),
        num_rows=len(state.prepared.train),
        num_parameters=sum(parameter.numel() for parameter in state.learner.parameters()),
        total_steps=state.total_steps,
        epoch_seconds=step_seconds * state.steps_per_epoch,
        total_seconds=total_seconds,
        feature_seconds=sampled.seconds if config.data.features is not None else None,
        hints=_hints(state, total_seconds),
        columns=state.prepared.columns,
    )


def _time_steps(state: State) -> float:
    """About how long a step takes; a slow one is timed on a few rows."""
    seconds: list[float] = []
    for batch in state.batches.epoch(0):
        if not seconds:
            weight = None if batch.weight is None else batch.weight[:_TRIED_ROWS]
            tried = slice(_TRIED_ROWS)
            few = Batch(batch.inputs[tried], batch.target[tried], batch.row[tried], weight)
            for _ in range(2):  # the first also allocates memory
                taken = _time_step(state, few)
            estimate = taken * len(batch) / len(few)
            if estimate > _LONG_STEP:
                return estimate
        seconds.append(_time_step(state, batch))
        if len(seconds) == _TRIED_STEPS:
            break
    return statistics.median(seconds)


def _time_step(state: State, batch: Batch) -> float:
    before = state.step_seconds
    train_step(state, batch, StopRequest())
    return state.step_seconds - before


class _SampledFeatures:
    """Repeats the features of a few rows instead of computing all, and estimates the time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def extractor(self, name: str, workers: int) -> Callable[[Split], Split]:  # noqa: ARG002
        """As ``frozen_features``, with initial weights: the time does not depend on weights."""
        if is_text_embedding(name):  # a matter of seconds
            return frozen_features(name)
        network = build(name, num_classes=1000).eval()

        def extract(split: Split) -> Split:
            rows = np.arange(min(_TRIED_ROWS, len(split)))
            began = time.perf_counter()
            inputs = published_images(name, split.inputs).batch(rows, generator=None)
            with torch.inference_mode():
                features = network.features(inputs).numpy()
            self.seconds += (time.perf_counter() - began) / len(rows) * len(split)
            return replace(
                split, inputs=Table(np.resize(features, (len(split), *features.shape[1:])))
            )

        return extract


def _hints(state: State, total_seconds: float) -> tuple[str, ...]:
    are_photos = isinstance(state.prepared.train.inputs, ImageFiles)
    if are_photos and state.fabric.device.type == "cpu" and total_seconds > _LONG_RUN:
        return (
            "photos take long without an accelerator; --features efficientnet_lite0 trains on "
            "features of a pretrained network, which is a matter of minutes",
        )
    return ()
