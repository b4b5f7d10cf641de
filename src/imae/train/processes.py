"""Several processes on this machine, and one clear line when one of them ends."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from imae.errors import ImaeError
from imae.train.config import Config
from imae.train.fresh_process import fresh_context, fresh_process
from imae.train.signals import Stopped

_LOST = "another process of this run ended"


def is_worker() -> bool:
    """Whether this process was started as one of several, by torchrun or by us."""
    return "LOCAL_RANK" in os.environ


def started_as() -> dict[str, int]:
    """Devices and nodes that torchrun, or we, started; nothing if it does not say."""
    if "WORLD_SIZE" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return {}
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return {"devices": here, "nodes": everywhere // here}


def start_processes(
    work: Callable[..., object], config: Config, folder: Path, *, is_resumed: bool, show: bool
) -> None:
    """Runs the work in as many processes as devices are asked for, and waits for all.

    Args:
        work: Called as ``work(config, folder, is_resumed=..., show=...)`` in each process.
        config: What to train.
        folder: The run folder.
        is_resumed: Whether the folder holds a run that is to go on.
        show: Whether the first process shows progress.

    Raises:
        Stopped: If a signal ended the run.
        ImaeError: What the first process to fail said, or that one died.
    """
    number = config.machine.devices
    errors: Any = fresh_context().SimpleQueue()
    port = _free_port()
    call = partial(work, config, folder, is_resumed=is_resumed, show=show)
    workers = [fresh_process(_work, call, rank, number, port, errors) for rank in range(number)]
    with _forwarded_signals(workers):
        for worker in workers:
            worker.start()
        _wait(workers)
    said: list[ImaeError] = []
    while not errors.empty():
        said.append(errors.get())
    _raise_first(said, [worker.exitcode for worker in workers], config.resume_command(folder))


def lost_a_process(error: Exception) -> bool:
    """Whether an error only says that another process is gone; backends have no type for it."""
    if not isinstance(error, RuntimeError):
        return False
    is_named = isinstance(error, torch.distributed.DistError)
    return is_named or re.search(r"[Cc]onnection|by peer|[Gg]loo|NCCL", str(error)) is not None


def lost_line(config: Config, folder: Path) -> str:
    """What a process says that has lost another."""
    return f"{_LOST}; go on with: {config.resume_command(folder)}"


def _raise_first(said: list[ImaeError], codes: list[int | None], command: str) -> None:
    """Raises what explains best why processes ended as they did; nothing if all is well."""
    for error in said:
        if isinstance(error, Stopped):
            raise error
    for error in said:
        if not str(error).startswith(_LOST):
            raise error
    failed = [rank for rank, code in enumerate(codes) if code]
    if not failed:
        return
    # One that was ended from outside, or crashed; others have lost it, or were ended by us.
    silent = [rank for rank in failed if codes[rank] not in (2, -signal.SIGTERM)]
    rank = (silent or failed)[0]
    raise ImaeError(
        f"process {rank} of {len(codes)} ended without a word (exit code {codes[rank]}); "
        f"go on with: {command}"
    )


def _work(
    call: Callable[[], object],
    rank: int,
    number: int,
    port: int,
    errors: Any,
) -> None:
    os.environ.update(
        LOCAL_RANK=str(rank),
        RANK=str(rank),
        NODE_RANK="0",
        GROUP_RANK="0",
        WORLD_SIZE=str(number),
        LOCAL_WORLD_SIZE=str(number),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    try:
        call()
    except ImaeError as error:
        errors.put(error)
        raise SystemExit(2) from None
    except RuntimeError as error:
        if not lost_a_process(error):
            raise
        errors.put(ImaeError(_LOST))
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # before the first step, or a second one
        errors.put(Stopped("stopped", 130))
        raise SystemExit(2) from None


def _wait(workers: list[Any]) -> None:
    """Waits for all; when one fails the others get a moment, and are then ended."""
    waiting = {worker.sentinel: worker for worker in workers}
    limit: float | None = None
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting), timeout=limit)
        for sentinel in ready:
            worker = waiting.pop(sentinel)
            worker.join()
            if worker.exitcode:
                limit = 10.0
        if not ready:
            for worker in waiting.values():
                worker.terminate() if limit == 10.0 else worker.kill()
            limit = 5.0


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _forwarded_signals(workers: list[Any]) -> Iterator[None]:
    """Passes Ctrl-C and SIGTERM on to the processes, which save and leave."""

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python takes signals in its main thread only
        return
    # A terminal sends Ctrl-C to all processes of the group itself.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
