"""A progress bar for downloads, where the ``rich`` package is installed."""

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def byte_progress(label: str, *, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function that takes the number of bytes done so far and shows it on standard error.

    It shows nothing when standard error is not a terminal or ``rich`` is not installed.

    Args:
        label: What is being fetched.
        done: Bytes that were there before.
        total: Bytes in all, or None if unknown.
    """
    if importlib.util.find_spec("rich") is None:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    ) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count: bar.update(task, completed=count)
