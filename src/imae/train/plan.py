"""What a configuration would run, and how long it would take."""

import statistics
from dataclasses import dataclass

from imae.train.config import Config
from imae.train.display import QuietDisplay
from imae.train.environment import pinned
from imae.train.loop import train_step
from imae.train.reading import known_settings
from imae.train.setup import build_fabric, setup
from imae.train.signals import StopRequest

_TRIED_STEPS = 8


@dataclass(frozen=True)
class Plan:
    """What would run.

    Args:
        settings: Every setting that is not None, as text, by its key.
        num_rows: Rows to train on.
        num_parameters: Numbers that the optimiser changes.
        total_steps: Steps of the whole run.
        epoch_seconds: About how long the training steps of an epoch take.
        total_seconds: About how long all training steps take.
    """

    settings: dict[str, str]
    num_rows: int
    num_parameters: int
    total_steps: int
    epoch_seconds: float
    total_seconds: float


def plan(config: Config) -> Plan:
    """Tries a few steps of a run in this process, without writing anything.

    Raises:
        ImaeError: If the data, the network or an option cannot be used.
    """
    alone = config.machine.model_copy(update={"devices": 1, "nodes": 1})
    fabric = build_fabric(alone)
    state = setup(config, fabric, QuietDisplay())
    state.learner.train()
    seconds = []
    threads = state.config.machine.threads
    assert threads is not None
    with pinned(threads, fabric.device):
        for batch in state.batches.epoch(0):
            before = state.step_seconds
            train_step(state, batch, StopRequest())
            seconds.append(state.step_seconds - before)
            if state.step == _TRIED_STEPS:
                break
    step_seconds = statistics.median(seconds)
    return Plan(
        settings=_flat(state.config),
        num_rows=len(state.prepared.train),
        num_parameters=sum(parameter.numel() for parameter in state.learner.parameters()),
        total_steps=state.total_steps,
        epoch_seconds=step_seconds * state.steps_per_epoch,
        total_seconds=step_seconds * state.total_steps,
    )


def _flat(config: Config) -> dict[str, str]:
    content = config.model_dump(mode="json")
    flat = {}
    for key, *_ in known_settings():
        value = content
        for part in key.split("."):
            value = value[part]
        if value not in (None, {}, []):
            flat[key] = str(value)
    return flat
