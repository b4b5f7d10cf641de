"""Running jobs: in worker processes on this machine, or on a Ray cluster."""

import contextlib
import multiprocessing
import os
import re
import signal
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from imae.errors import ArgumentError, ImaeError, import_extra, in_one_line
from imae.records import RunFolder
from imae.train import Config, Run, Stopped, build_config, resume, train
from imae.train.display import Display, QuietDisplay
from imae.train.processes import fresh_process, start, stop_requests


@dataclass(frozen=True)
class Job:
    """One run to do.

    Args:
        name: Name of its folder.
        config: What is trained.
    """

    name: str
    config: Config

    def content(self) -> dict[str, Any]:
        """The settings as plain values, which another process can read."""
        return self.config.model_dump(mode="json")


def train_or_resume(config: Config, *, show: bool = False, display: Display | None = None) -> Run:
    """The finished run of a configuration: trained, resumed, or already finished.

    Args:
        config: What is trained.
        show: Whether to show progress.
        display: Shows the progress of a run in one process instead.
    """
    assert config.out is not None
    if config.machine.devices * config.machine.nodes > 1:
        display = None
    if RunFolder(config.out).exists():
        return resume(config.out, show=show, display=display, model=config.model.name)
    return train(config, show=show, display=display)


def attempt(config: Config, *, show: bool = False, display: Display | None = None) -> str | None:
    """Calls ``train_or_resume``; returns what went wrong, in one line, or None.

    Raises:
        Stopped: If a signal ended it; it can be resumed.
    """
    try:
        train_or_resume(config, show=show, display=display)
    except Stopped:
        raise
    except ImaeError as error:
        return str(error)
    except Exception as error:  # such as out of memory: the other runs of a grid continue
        traceback.print_exc()
        return in_one_line(error)
    return None


def attempt_settings(content: Mapping[str, Any], *, has_notes: bool = True) -> str | None:
    """Calls ``attempt`` with settings as plain values, as another process receives them.

    Args:
        content: The settings.
        has_notes: Whether notes on the data are shown.
    """
    return attempt(build_config(content), display=QuietDisplay(has_notes=has_notes))


_SECONDS_BETWEEN_LOOKS = 0.5  # for a signal


def run_in_parallel(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, str | None]]:
    """Runs the jobs, a few at a time.

    A process that dies does not stop the others, and its run can be resumed.

    Yields:
        Each job as it ends, with what went wrong or None.

    Raises:
        Stopped: After Ctrl-C or SIGTERM; the runs have been saved and can be resumed.
    """
    waiting, running = list(jobs), list[_Worker]()
    with stop_requests() as request, contextlib.ExitStack() as at_end:
        at_end.callback(_stop, running)
        while waiting or running:
            while waiting and len(running) < workers:
                is_first = len(waiting) == len(jobs)
                running.append(_Worker(waiting.pop(0), has_notes=is_first))
            ready = wait([worker.receiver for worker in running], _SECONDS_BETWEEN_LOOKS)
            if request.signal:
                raise Stopped("stopped; resume with the same command and --resume", request.code)
            for worker in [each for each in running if each.receiver in ready]:
                running.remove(worker)
                yield worker.job, worker.problem()


class _Worker:
    """A process for one job, and the pipe on which it reports what went wrong.

    The pipe shows when it has ended. multiprocessing learns this from the process that
    started it, which a signal to all of them ends before the runs have been saved.
    """

    def __init__(self, job: Job, *, has_notes: bool) -> None:
        self.job = job
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = fresh_process(_work, job.content(), sender, has_notes)
        start(self._process)
        sender.close()

    def problem(self) -> str | None:
        """What went wrong, or None; waits until the process has reported it, or has ended."""
        try:
            said: str | None = self.receiver.recv()
        except EOFError:
            self._process.join()
            return f"its process ended without a message (exit code {self._process.exitcode})"
        finally:
            self.receiver.close()
        return said

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, on which a run saves and exits."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)


def _work(content: Mapping[str, Any], sender: Connection, has_notes: bool) -> None:
    try:
        problem = attempt_settings(content, has_notes=has_notes)
    except Stopped as stopped:
        problem = str(stopped)
    with contextlib.suppress(OSError):  # the process that listened was killed
        sender.send(problem)


def _stop(running: Sequence[_Worker]) -> None:
    for worker in running:
        worker.ask_to_stop()
    for worker in running:
        worker.problem()


_RETRIES = 3
_SECONDS_TO_ANSWER = 10


def run_on_ray(jobs: Sequence[Job], address: str) -> Iterator[tuple[Job, str | None]]:
    """Runs the jobs on a cluster; a run whose worker dies resumes on another.

    All machines of the cluster must see the run folders and the data at the same paths.

    Args:
        jobs: The runs.
        address: Address of the cluster, ``auto`` for the one of this machine, or ``local`` to
            start one here.

    Yields:
        Each job as it ends, with what went wrong or None.

    Raises:
        ArgumentError: If there is no cluster at the address, or a run needs more than this
            machine has and the cluster is only this machine.
        MissingExtraError: If ray is not installed.
    """
    ray: Any = import_extra("ray", extra="cluster")
    _check_cluster_answers(address)
    own = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"--ray {address}: {reason}") from error
    try:
        if address == "local":
            check_resources(ray, jobs)
        yield from _ends(ray, jobs)
    finally:
        ray.shutdown()


def _check_cluster_answers(address: str) -> None:
    """Raises if no process listens at a host and port, where Ray would retry for minutes."""
    place = re.fullmatch(r"(?:ray://)?([^/]+):(\d+)", address)
    if place is None:
        return
    host, port = place[1].strip("[]"), int(place[2])
    try:
        socket.create_connection((host, port), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"--ray {address}: no answer ({error})") from error


def check_resources(ray: Any, jobs: Sequence[Job]) -> None:
    """Refuses runs for which Ray would wait forever without saying so.

    Raises:
        ArgumentError: If a run needs more than the cluster has.
    """
    there = ray.cluster_resources()
    for job in jobs:
        asked = needs(job, has_gpus=there.get("GPU", 0) > 0)
        for key, name, word in (
            ("num_cpus", "CPU", "processors"),
            ("num_gpus", "GPU", "graphics cards"),
        ):
            if asked.get(key, 0) > there.get(name, 0):
                raise ArgumentError(
                    f"{job.name}: needs {asked[key]} {word}, and this machine has "
                    f"{int(there.get(name, 0))}; set machine.threads or machine.accelerator"
                )


def _run_in_folder(folder: str, content: Mapping[str, Any]) -> str | None:
    """Does a run in the folder where the command was given, for its relative paths."""
    os.chdir(folder)
    return attempt_settings(content)


def needs(job: Job, *, has_gpus: bool) -> dict[str, Any]:
    """The resources that a run requests from the cluster, which then shows it only these."""
    machine = job.config.machine
    asked: dict[str, Any] = {"num_cpus": machine.threads or 1}
    if machine.accelerator in ("gpu", "cuda") or (machine.accelerator == "auto" and has_gpus):
        asked["num_gpus"] = machine.devices
    return asked


def _ends(ray: Any, jobs: Sequence[Job]) -> Iterator[tuple[Job, str | None]]:
    # A worker that dies is a system failure to Ray, which starts its task again: the run then
    # resumes from its last checkpoint.
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    task = ray.remote(max_retries=_RETRIES)(_run_in_folder)
    running = {}
    for job in jobs:
        options = task.options(name=job.name, **needs(job, has_gpus=has_gpus))
        running[options.remote(os.getcwd(), job.content())] = job
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        job = running.pop(done)
        try:
            yield job, ray.get(done)
        except ray.exceptions.RayError as error:
            yield job, " ".join(str(error).split())[:300]
