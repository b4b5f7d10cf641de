"""Several runs at once on this machine, each in a process of its own."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from imae.recipes.job import Job, attempt_content
from imae.train import Stopped
from imae.train.fresh_process import fresh_process
from imae.train.signals import stop_requests

_SECONDS_BETWEEN_LOOKS = 0.5  # for a signal


def run_at_once(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, str | None]]:
    """Does the jobs, so many at a time.

    A process that dies takes no other with it: its run can be resumed.

    Yields:
        Each job as it ends, with what went wrong or None.

    Raises:
        Stopped: If Ctrl-C or SIGTERM came; the runs have saved and can go on.
    """
    waiting, running = list(jobs), list[_Worker]()
    with stop_requests() as request, contextlib.ExitStack() as at_end:
        at_end.callback(_stop, running)
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Worker(waiting.pop(0)))
            ready = wait([worker.receiver for worker in running], _SECONDS_BETWEEN_LOOKS)
            if request.signal:
                raise Stopped("stopped; the same command with --resume goes on", request.code)
            for worker in [each for each in running if each.receiver in ready]:
                running.remove(worker)
                yield worker.job, worker.problem()


class _Worker:
    """A process that does one job, and the pipe on which it says what went wrong.

    The pipe tells when it has ended. What multiprocessing knows of it comes from the process that
    started it, which a signal to all of them ends before the runs have saved.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = fresh_process(_work, job.content(), sender)
        self._process.start()
        sender.close()

    def problem(self) -> str | None:
        """What went wrong, or None; waits until the process has said so, or has ended."""
        try:
            said: str | None = self.receiver.recv()
        except EOFError:
            self._process.join()
            return f"its process ended without a word (exit code {self._process.exitcode})"
        finally:
            self.receiver.close()
        return said

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, at which a run saves and leaves."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)


def _work(content: Mapping[str, Any], sender: Connection) -> None:
    try:
        sender.send(attempt_content(content))
    except Stopped as stopped:
        sender.send(str(stopped))


def _stop(running: Sequence[_Worker]) -> None:
    for worker in running:
        worker.ask_to_stop()
    for worker in running:
        worker.problem()
