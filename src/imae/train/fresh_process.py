"""Processes that share nothing with this one, and start quickly."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

_PRELOADED = ["imae.train", "lightning_fabric", "sklearn.datasets"]  # if they are installed


def fresh_context() -> BaseContext:
    """How processes are started, with the pipes and queues that go with it.

    Where the system can, they are forked off one that has torch loaded and has done nothing
    else yet: the first takes seconds, the others a fraction of one.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def fresh_process(work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A process, not yet started, that will call ``work(*arguments)``.

    The call sees the environment of now. What was read when modules were loaded, such as
    ``OMP_NUM_THREADS``, is that of the first process.
    """
    # The server keeps the environment of the moment it was started in.
    return fresh_context().Process(  # type: ignore[attr-defined, no-any-return]
        target=_call, args=(dict(os.environ), work, arguments)
    )


def _call(environment: Mapping[str, str], work: Callable[..., object], arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    work(*arguments)
