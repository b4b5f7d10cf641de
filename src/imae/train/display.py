"""What a person sees of a run while it goes on."""

import sys
from collections.abc import Mapping
from typing import Any, final


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
            disable=not sys.stderr.isatty(),
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
        shown = (("test", "test_accuracy"), ("held out", "validation_accuracy"))
        parts = [f"{name} {row[key]:.1%}" for name, key in shown if row[key] is not None]
        self._bar.update(self._task, description=", ".join(parts))

    def say(self, line: str) -> None:
        """Prints the line above the bar."""
        self._bar.console.print(f"imae: {line}", markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.stop()
