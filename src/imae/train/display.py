"""What a person sees of a run while it goes on."""

import datetime
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from imae.records.measures import HELD_OUT, TEST

_SECONDS_BETWEEN_LINES = 60


class Display:
    """Shows nothing: for all processes but the first."""

    def say(self, line: str) -> None:
        """Is told a line that must not be missed."""

    def start(self, step: int, total_steps: int) -> None:
        """Is told how long the run is."""

    def advance(self, step: int) -> None:
        """Is told of every step."""

    def measured(self, row: Mapping[str, Any]) -> None:
        """Is told of every evaluation."""

    def close(self) -> None:
        """Ends the display."""


@final
class QuietDisplay(Display):
    """Only lines that must not be missed, on the error stream."""

    def say(self, line: str) -> None:
        """Prints the line."""
        print(f"imae: {line}", file=sys.stderr, flush=True)


@final
class LineDisplay(Display):
    """A line a minute, with the time left and the last measures, on the error stream.

    Args:
        clock: Seconds from some moment on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = self._total = 0
        self._started = self._spoke = 0.0
        self._last = ""

    def say(self, line: str) -> None:
        """Prints the line."""
        print(f"imae: {line}", file=sys.stderr, flush=True)

    def start(self, step: int, total_steps: int) -> None:
        """Starts counting."""
        self._start, self._total = step, total_steps
        self._started = self._spoke = self._clock()

    def advance(self, step: int) -> None:
        """Prints a line if the last one is a minute old."""
        now = self._clock()
        if now - self._spoke < _SECONDS_BETWEEN_LINES:
            return
        self._spoke = now
        seconds = (now - self._started) / (step - self._start) * (self._total - step)
        left = datetime.timedelta(seconds=round(seconds))
        self.say(f"step {step} of {self._total}, {left} left{self._last}")

    def measured(self, row: Mapping[str, Any]) -> None:
        """Keeps the measures for the next line."""
        measures = _measures(row)
        self._last = f"; {measures}" if measures else ""


@final
class BarDisplay(Display):
    """A bar with the time left and the last measures, on the error stream."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=None)

    def start(self, step: int, total_steps: int) -> None:
        """Shows the bar."""
        self._bar.update(self._task, completed=step, total=total_steps)
        self._bar.start()

    def advance(self, step: int) -> None:
        """Moves the bar."""
        self._bar.update(self._task, completed=step)

    def measured(self, row: Mapping[str, Any]) -> None:
        """Shows the measures beside the bar."""
        self._bar.update(self._task, description=_measures(row))

    def say(self, line: str) -> None:
        """Prints the line above the bar."""
        self._bar.console.print(f"imae: {line}", markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.stop()


def shown_display() -> Display:
    """A bar on a terminal, lines in a file or a pipe."""
    return BarDisplay() if sys.stderr.isatty() else LineDisplay()


def _measures(row: Mapping[str, Any]) -> str:
    shown = [(each.heading.lower(), row.get(each.key)) for each in (TEST, HELD_OUT)]
    return ", ".join(f"{name} {value:.1%}" for name, value in shown if value is not None)
