"""What a run would do and how long it would take, from a few steps on a few rows."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from imae.data import Batch, ImageFiles, Split, Table
from imae.models import build
from imae.train.config import Config
from imae.train.display import QuietDisplay
from imae.train.loop import StopRequest, train_step
from imae.train.machine import build_fabric, pinned
from imae.train.preparation import published_images
from imae.train.settings import known_settings
from imae.train.setup import setup
from imae.train.state import State

_TRIED_STEPS = 8
_TRIED_ROWS = 4
_LONG_STEP = 1.0  # seconds: from here on a few rows are timed, not whole batches
_LONG_RUN = 3600.0


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
        feature_seconds: About how long the features of a frozen network take, once, if the run
            asks for them.
        hints: What could be done better, a line each.
    """

    settings: dict[str, str]
    num_rows: int
    num_parameters: int
    total_steps: int
    epoch_seconds: float
    total_seconds: float
    feature_seconds: float | None = None
    hints: tuple[str, ...] = ()


def plan(config: Config) -> Plan:
    """Tries a few steps of a run in this process, without writing anything.

    Of images in files only the first are read, and features of a frozen network are computed for
    a few rows only.

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
        settings=_flat(state.config),
        num_rows=len(state.prepared.train),
        num_parameters=sum(parameter.numel() for parameter in state.learner.parameters()),
        total_steps=state.total_steps,
        epoch_seconds=step_seconds * state.steps_per_epoch,
        total_seconds=total_seconds,
        feature_seconds=sampled.seconds if config.data.features is not None else None,
        hints=_hints(state, total_seconds),
    )


def _time_steps(state: State) -> float:
    """About how long a step takes; a slow one is timed on a few rows."""
    seconds: list[float] = []
    for batch in state.batches.epoch(0):
        if not seconds:
            few = _first_rows(batch, _TRIED_ROWS)
            for _ in range(2):  # the first also prepares memory
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


def _first_rows(batch: Batch, number: int) -> Batch:
    weight = None if batch.weight is None else batch.weight[:number]
    return replace(
        batch,
        inputs=batch.inputs[:number],
        target=batch.target[:number],
        row=batch.row[:number],
        weight=weight,
    )


class _SampledFeatures:
    """Stands for features of all rows: those of a few, repeated, and the time all would take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def extractor(self, name: str, workers: int) -> Callable[[Split], Split]:  # noqa: ARG002
        """As ``frozen_features``, with start weights: the time does not depend on weights."""
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
