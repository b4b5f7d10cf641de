"""Many runs on a Ray cluster."""

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from imae._extras import import_extra
from imae.errors import ArgumentError
from imae.recipes.job import Job, attempt_content

_RETRIES = 3
_SECONDS_TO_ANSWER = 10


def run_on_ray(jobs: Sequence[Job], address: str) -> Iterator[tuple[Job, str | None]]:
    """Does the jobs on a cluster; a run whose worker dies goes on, on another, where it was.

    All machines of the cluster must see the run folders and the data under the same names.

    Args:
        jobs: The runs.
        address: Address of the cluster, ``auto`` for the one of this machine, or ``local`` to
            start one here.

    Yields:
        Each job as it ends, with what went wrong or None.

    Raises:
        ArgumentError: If there is no cluster at the address, or a run asks for more than this
            machine has and the cluster is its own.
        MissingExtraError: If ray is not installed.
    """
    ray: Any = import_extra("ray", extra="cluster")
    _check_somebody_answers(address)
    own = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"--ray {address}: {reason}") from error
    try:
        if address == "local":
            check_they_fit(ray, jobs)
        yield from _ends(ray, jobs)
    finally:
        ray.shutdown()


def _check_somebody_answers(address: str) -> None:
    """Raises if nobody listens at a host and port, where Ray would try for many minutes."""
    place = re.fullmatch(r"(?:ray://)?([^/]+):(\d+)", address)
    if place is None:
        return
    host, port = place[1].strip("[]"), int(place[2])
    try:
        socket.create_connection((host, port), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"--ray {address}: nobody answers there ({error})") from error


def check_they_fit(ray: Any, jobs: Sequence[Job]) -> None:
    """Refuses runs for which Ray would wait without a word.

    Raises:
        ArgumentError: If a run asks for more than the cluster has.
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
                    f"{job.name}: asks for {asked[key]} {word}, and this machine has "
                    f"{int(there.get(name, 0))}; set machine.threads or machine.accelerator"
                )


def _do_in(folder: str, content: Mapping[str, Any]) -> str | None:
    """Does a run; relative paths mean what they mean where the command was given."""
    os.chdir(folder)
    return attempt_content(content)


def needs(job: Job, *, has_gpus: bool) -> dict[str, Any]:
    """What a run asks of the cluster, which then shows it these devices alone."""
    machine = job.config.machine
    asked: dict[str, Any] = {"num_cpus": machine.threads or 1}
    if machine.accelerator in ("gpu", "cuda") or (machine.accelerator == "auto" and has_gpus):
        asked["num_gpus"] = machine.devices
    return asked


def _ends(ray: Any, jobs: Sequence[Job]) -> Iterator[tuple[Job, str | None]]:
    # A worker that dies is a system failure to Ray, which starts its task again: the run then
    # goes on from its last checkpoint.
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    task = ray.remote(max_retries=_RETRIES)(_do_in)
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
