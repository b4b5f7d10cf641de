"""Training, resuming and planning, in this process or in several that are started for it."""

import contextlib
import datetime
import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from imae.errors import ArgumentError, ImaeError
from imae.records import RunFolder
from imae.train.config import Config
from imae.train.display import Display, QuietDisplay, shown_display
from imae.train.journal import Journal
from imae.train.loop import fit, train_step
from imae.train.machine import build_fabric, pinned
from imae.train.processes import (
    Stopped,
    StopRequest,
    is_worker,
    lost_a_process,
    lost_line,
    start_processes,
    started_as,
)
from imae.train.run import Run
from imae.train.settings import known_settings
from imae.train.setup import setup

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


def train(config: Config, *, show: bool = False) -> Run:
    """Trains as configured and gives the finished run.

    Args:
        config: What to train; ``imae.train.build_config`` makes one from nested settings.
        show: Whether to show progress on the error stream.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; it can be resumed.
        ImaeError: If the data or an option cannot be used, the numbers go wrong, something
            cannot be written, or the folder holds a run already.

    Examples:
        >>> import tempfile
        >>> from imae.train import Config
        >>> config = Config(
        ...     data={"name": "digits"},
        ...     noise="symmetric:0.4",
        ...     model={"name": "mlp"},
        ...     train={"epochs": 1},
        ...     out=tempfile.mkdtemp(),
        ... )
        >>> run = train(config)
        >>> run.result["final"]["step"]
        21
    """
    folder = Path(config.out or default_folder(config))
    return Run(_start(config, folder, is_resumed=False, show=show), model=config.model.name)


def resume(path: str | os.PathLike[str], *, show: bool = False, model: str | None = None) -> Run:
    """Goes on with a run from its last checkpoint; one that has finished is left alone.

    The end is bit for bit that of a run which was never interrupted.

    Args:
        path: The run folder.
        show: Whether to show progress on the error stream.
        model: Name of the network, if it is a function of your own; see ``Run``.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it again.
        ImaeError: As from ``train``, or if the folder holds no run.
    """
    run = Run(path, model=model)
    if run.result is None:
        run.refuse_code()
        _start(run.config, run.path, is_resumed=True, show=show)
    return Run(path, model=model)


def default_folder(config: Config) -> str:
    """``runs/NAME-TIME``, NAME from the data and the method."""
    data = re.sub(r"[^\w.-]+", "-", Path(config.data.name).name).strip("-.") or "data"
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"runs/{data}-{config.method.name}-{time}"


def train_here(config: Config, folder: Path, *, is_resumed: bool, show: bool) -> Path:
    """Trains in this process, as the only one or as one of several.

    Args:
        config: What to train.
        folder: The run folder; that of the first rank counts.
        is_resumed: Whether the folder holds a run that is to go on.
        show: Whether the first rank shows progress.

    Returns:
        The run folder.
    """
    fabric = build_fabric(config.machine)
    folder = Path(fabric.broadcast(str(folder)))  # its default name holds a time
    run = RunFolder(folder)
    is_first = fabric.global_rank == 0
    display = Display()
    if is_first:
        display = shown_display() if show else QuietDisplay()
    journal = Journal(run, display)
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        if is_first:
            stack.enter_context(run.lock())
            if run.exists() and not is_resumed:
                raise ArgumentError(
                    f"{folder}: holds a run already; go on with --resume {folder}, "
                    "or choose another --out"
                )
        state = setup(config, fabric, display)
        threads = state.config.machine.threads
        assert threads is not None
        stack.enter_context(pinned(threads, fabric.device))
        try:
            journal.begin(state, is_resumed=is_resumed)
            fit(state, journal)
            journal.finish(state)
        except Stopped:
            raise
        except ImaeError as error:
            with contextlib.suppress(ImaeError):
                journal.failed(state, str(error))
            raise
        except Exception as error:  # such as no more memory
            is_lost = state.ranks.number > 1 and lost_a_process(error)
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            with contextlib.suppress(ImaeError):
                journal.failed(state, lost_line(config, folder) if is_lost else reason)
            if is_lost:
                raise ImaeError(lost_line(config, folder)) from error
            raise
    return folder


def _start(config: Config, folder: Path, *, is_resumed: bool, show: bool) -> Path:
    if is_worker():
        machine = config.machine.model_copy(update=started_as())
        config = config.model_copy(update={"machine": machine})
    elif config.machine.nodes > 1:
        raise ArgumentError(
            "machine.nodes: several machines are started with torchrun, which names them to each "
            "other: torchrun --nnodes M --nproc-per-node N $(which imae) train ..."
        )
    elif config.machine.devices > 1:
        start_processes(train_here, config, folder, is_resumed=is_resumed, show=show)
        return folder
    return train_here(config, folder, is_resumed=is_resumed, show=show)
