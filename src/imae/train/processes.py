"""Requests to stop, and several processes on one machine, with one message if one fails."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from imae.errors import ImaeError
from imae.train.config import Config


class Stopped(ImaeError):  # noqa: N818 - not an error
    """A run was asked to stop; it has been saved and can be resumed.

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


_PRELOADED = ["imae.train.launch", "lightning_fabric", "sklearn.datasets"]  # if installed
_PAUSES = (0.0, 0.05, 0.2, 0.8)  # seconds, between attempts to start a process


def fresh_context() -> BaseContext:
    """The multiprocessing context in which processes are started.

    If the system supports it, they are forked from one that has torch loaded and has done nothing
    else: the first takes seconds, the others a fraction of a second.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def fresh_process(work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A process, not yet started, that will call ``work(*arguments)``.

    The call sees the current environment. Variables that are read when modules are loaded, such as
    ``OMP_NUM_THREADS``, are those of the first process.
    """
    # The fork server keeps the environment in which it was started.
    return fresh_context().Process(  # type: ignore[attr-defined, no-any-return]
        target=_call, args=(dict(os.environ), work, arguments)
    )


def start(process: BaseProcess) -> None:
    """Starts a process of ``fresh_process``.

    The fork server may be ending at that moment, by a signal to all processes: then Python sees
    the end of a pipe. Another attempt starts a new server once the old one has ended, which takes
    a moment.

    Raises:
        ImaeError: If it cannot be started.
    """
    for pause in (*_PAUSES, None):
        try:
            with _delayed_interrupts():
                process.start()
            return
        except (EOFError, OSError) as error:
            if pause is None or not isinstance(error, EOFError | ConnectionError):
                reason = str(error) or type(error).__name__
                message = f"a process for a run could not be started ({reason})"
                raise ImaeError(message) from error
            time.sleep(pause)


@contextlib.contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back, also from processes that begin in the block, until ``_call``.

    While these load modules it would show a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # here: it lets signals through when it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _call(environment: Mapping[str, str], work: Callable[..., object], arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        work(*arguments)
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


_LOST = "another process of this run ended"


def start_processes(call: Callable[[], object], config: Config, folder: Path) -> None:
    """Runs a call in one process per requested device, and waits for all.

    Args:
        call: What each process does; it must be possible to pickle it.
        config: What is trained.
        folder: The run folder.

    Raises:
        Stopped: If a signal ended the run.
        ImaeError: The error of the first process that failed, or that a process died.
    """
    number = config.machine.devices
    errors: Any = fresh_context().SimpleQueue()
    port = _free_port()
    workers = [fresh_process(_work, call, rank, number, port, errors) for rank in range(number)]
    with _forwarded_signals(workers):
        for worker in workers:
            start(worker)
        _wait(workers)
    said: list[ImaeError] = []
    while not errors.empty():
        said.append(errors.get())
    _raise_first(said, [worker.exitcode for worker in workers], config.resume_command(folder))


def is_lost_process_error(error: Exception) -> bool:
    """Whether an error only means that another process has ended; backends have no type for it."""
    if not isinstance(error, RuntimeError):
        return False
    is_named = isinstance(error, torch.distributed.DistError)
    return is_named or re.search(r"[Cc]onnection|by peer|[Gg]loo|NCCL", str(error)) is not None


def lost_process_message(config: Config, folder: Path) -> str:
    """The message of a process whose partner has ended."""
    return f"{_LOST}; continue with: {config.resume_command(folder)}"


def _raise_first(said: list[ImaeError], codes: list[int | None], command: str) -> None:
    """Raises the error that best explains why processes ended; nothing if all is well."""
    for error in said:
        if isinstance(error, Stopped):
            raise error
    for error in said:
        if not str(error).startswith(_LOST):
            raise error
    failed = [rank for rank, code in enumerate(codes) if code]
    if not failed:
        return
    # One was killed from outside, or crashed; the others lost it, or were ended by us.
    silent = [rank for rank in failed if codes[rank] not in (2, -signal.SIGTERM)]
    rank = (silent or failed)[0]
    raise ImaeError(
        f"process {rank} of {len(codes)} ended without a message (exit code {codes[rank]}); "
        f"continue with: {command}"
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
        if not is_lost_process_error(error):
            raise
        errors.put(ImaeError(_LOST))
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # before the first step, or a second one
        errors.put(Stopped("stopped", 130))
        raise SystemExit(2) from None


def _wait(workers: list[Any]) -> None:
    """Waits for all; when one fails, the others get a moment to end and are then terminated."""
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
    """Forwards Ctrl-C and SIGTERM to the processes, which save and exit."""

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in its main thread only
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
