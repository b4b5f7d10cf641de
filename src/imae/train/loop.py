"""The loop: one step, what follows a step, the whole run, and requests to stop it."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from imae._draws import torch_generator
from imae.data import Batch
from imae.errors import ImaeError
from imae.train.journal import Journal
from imae.train.machine import clip_gradients
from imae.train.optim import factor, set_learning_rate, shortened
from imae.train.setup import restart_training
from imae.train.state import State

_STEPS_BETWEEN_READS = 50  # of results on an accelerator: reading makes the host wait for it


class Stopped(ImaeError):  # noqa: N818 - not an error
    """A run was asked to stop, has saved and can be resumed.

    Args:
        message: One line that says how to continue.
        code: Exit code of the command: 130 after Ctrl-C, 143 after SIGTERM.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message


class StopRequest:
    """Whether a signal has asked the run to stop, and which."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def code(self) -> int:
        """Exit code that shells expect for the signal."""
        return 128 + self.signal

    def take(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Records a signal; a second Ctrl-C does not wait for the run to save."""
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Records Ctrl-C and SIGTERM while the block runs, instead of ending the process."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python handles signals in its main thread only
        return
    before = {
        number: signal.signal(number, request.take) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fit(state: State, journal: Journal) -> None:
    """Trains from where the state is to the end of the run.

    Args:
        state: Changed in place; all ranks have one.
        journal: Where evaluations, dynamics and checkpoints go.

    Raises:
        Stopped: If a signal asked for it; the state has been saved.
        ImaeError: If the numbers go wrong or something cannot be written.
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
    # One message between ranks a step: the weight of the whole batch, and whether to stop.
    mine = torch.stack([weight.sum(), weight.new_tensor(float(request.signal > 0))])
    total, stop = state.ranks.total(mine).unbind()
    # Strategies average gradients over ranks; this makes the average that of the whole batch.
    share = state.ranks.number / total.clamp(min=torch.finfo(total.dtype).tiny)
    loss = (losses * weight).sum()
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
    """Measures, writes dynamics and saves where it is time to."""
    train = state.config.train
    is_last = state.step == state.total_steps
    is_epoch_end = state.step % state.steps_per_epoch == 0
    to_evaluate = is_last or _is_due(train.evaluate_every, state.step, is_epoch_end)
    to_save = is_last or must_stop or _is_due(train.checkpoint_every, state.step, is_epoch_end)
    if to_evaluate or to_save or _is_read(state):
        state.watch.check_finite(state.step)
        journal.growth(state)
    if to_evaluate or to_save or is_epoch_end:
        state.check_weights()
    if is_epoch_end:
        state.method.share()
        state.method.end_epoch(epoch)
    held = journal.dynamics(state, epoch) if is_epoch_end or is_last else None
    is_stopped = is_epoch_end and train.early_stop is not None and journal.stops_early(state)
    if to_evaluate or is_stopped:
        journal.evaluation(state, held)
    if to_save or is_stopped:
        journal.checkpoint(state)
    journal.advanced(state)


def _start_step(state: State) -> None:
    """Sets what follows from the number of the step: the learning rate and the random draws."""
    config = state.config
    epoch, step_in_epoch = divmod(state.step, state.steps_per_epoch)
    # Networks with dropout draw from the global generator: the step decides what they draw.
    draws = torch_generator(config.seed, "step", epoch, step_in_epoch, state.ranks.rank)
    if state.fabric.device.type == "cpu":
        # Not torch.manual_seed, which also records a traceback for each kind of accelerator.
        torch.default_generator.manual_seed(draws.initial_seed())
    else:
        torch.manual_seed(draws.initial_seed())
    set_learning_rate(state.optimizer, config.optimizer.lr * _rate_factor(state))
    # Freed here and not after the step: at its end the C library would give the memory back to
    # the system, and fetching it again cost 7% of a step of ResNet-20.
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
        # Gradients of networks were averaged as they were divided, those of the method were not.
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
