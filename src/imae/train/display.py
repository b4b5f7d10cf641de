"""What people and other programs see of a run during training: progress, and additional logs."""

import csv
import datetime
import io
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from imae.errors import import_extra
from imae.records import RunFolder, explained_writing
from imae.records.files import printable, whole_file
from imae.records.measures import HELD_OUT, TEST

_SECONDS_BETWEEN_LINES = 60


class Display:
    """Shows nothing: for all processes except the first."""

    def say(self, line: str) -> None:
        """Shows a line that must not be missed."""

    def read(self, summary: str, notes: Sequence[str]) -> None:
        """Shows a summary of the data, and notes on it."""

    def start(self, step: int, total_steps: int) -> None:
        """Starts showing progress."""

    def advance(self, step: int) -> None:
        """Shows that a step is done."""

    def measured(self, row: Mapping[str, Any]) -> None:
        """Shows the measures of an evaluation."""

    def close(self) -> None:
        """Ends the display."""


@final
class QuietDisplay(Display):
    """Prints only lines that must not be missed, to the error stream.

    Args:
        has_notes: Whether notes on the data are shown.
    """

    def __init__(self, *, has_notes: bool = True) -> None:
        self._has_notes = has_notes

    def say(self, line: str) -> None:
        """Prints the line."""
        print(f"imae: {printable(line)}", file=sys.stderr, flush=True)

    def read(self, summary: str, notes: Sequence[str]) -> None:  # noqa: ARG002
        """Prints the notes."""
        for note in notes if self._has_notes else ():
            self.say(note)


@final
class LineDisplay(Display):
    """A line a minute, with the time left and the last measures, on the error stream.

    Args:
        clock: Seconds from some moment on.
        printed: Lines about the data that were printed already; they are not repeated.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, printed: set[str] | None = None
    ) -> None:
        self._clock = clock
        self._printed = set[str]() if printed is None else printed
        self._start = self._total = 0
        self._started = self._spoke = 0.0
        self._last = ""

    def say(self, line: str) -> None:
        """Prints the line."""
        print(f"imae: {printable(line)}", file=sys.stderr, flush=True)

    def read(self, summary: str, notes: Sequence[str]) -> None:
        """Prints the summary and the notes, unless they were printed before."""
        for line in _not_printed([summary, *notes], self._printed):
            self.say(line)

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
    """A bar with the time left and the last measures, on the error stream.

    Args:
        printed: Lines about the data that were printed already; they are not repeated.
    """

    def __init__(self, *, printed: set[str] | None = None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._printed = set[str]() if printed is None else printed
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

    def read(self, summary: str, notes: Sequence[str]) -> None:
        """Prints the summary and the notes, unless they were printed before."""
        for line in _not_printed([summary, *notes], self._printed):
            self.say(line)

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
        self._bar.console.print(
            f"imae: {printable(line)}", markup=False, highlight=False, soft_wrap=True
        )

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.stop()


def shown_display(printed: set[str] | None = None) -> Display:
    """A bar on a terminal, lines in a file or a pipe.

    Args:
        printed: Lines about the data that other displays have printed; this one adds its own.
    """
    return BarDisplay(printed=printed) if sys.stderr.isatty() else LineDisplay(printed=printed)


def _not_printed(lines: Sequence[str], printed: set[str]) -> list[str]:
    """The lines that were not printed yet; they are added to ``printed``."""
    new = [line for line in dict.fromkeys(lines) if line not in printed]
    printed.update(new)
    return new


def _measures(row: Mapping[str, Any]) -> str:
    shown = [(each.heading.lower(), row.get(each.key)) for each in (TEST, HELD_OUT)]
    return ", ".join(f"{name} {value:.1%}" for name, value in shown if value is not None)


class Logger(ABC):
    """A log that receives every row of the history."""

    @abstractmethod
    def log(self, row: Mapping[str, Any]) -> None:
        """Logs a row of the history."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is still open."""


@final
class CSVLogger(Logger):
    """``history.csv`` in the run folder, written from the whole history at each row."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def log(self, row: Mapping[str, Any]) -> None:
        """Writes the whole history, whose last row this is."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row))
        writer.writeheader()
        writer.writerows(self._run.history())
        path = self._run.path / "history.csv"
        with explained_writing(path, self._run.path), whole_file(path) as file:
            file.write(text.getvalue().encode())

    def close(self) -> None:
        """Does nothing: no file is open."""


@final
class TensorBoardLogger(Logger):
    """Scalars in the folder ``tensorboard`` of the run."""

    def __init__(self, run: RunFolder, step: int) -> None:
        import_extra("tensorboard", extra="log")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

    def log(self, row: Mapping[str, Any]) -> None:
        """Writes every number of the row under its name."""
        for name, value in _numbers(row).items():
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Writes what is still buffered."""
        self._writer.close()


@final
class WandbLogger(Logger):
    """A run of Weights & Biases with the name of the run folder."""

    def __init__(self, run: RunFolder) -> None:
        wandb = import_extra("wandb", extra=None)
        known, name = _remembered(run, "wandb"), run.path.resolve().name
        self._run = wandb.init(project="imae", name=name, id=known, resume="allow")
        _remember(run, "wandb", self._run.id)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends every number of the row."""
        self._run.log(_numbers(row), step=row["step"])

    def close(self) -> None:
        """Ends the run there."""
        self._run.finish()


@final
class MLflowLogger(Logger):
    """A run of MLflow with the name of the run folder."""

    def __init__(self, run: RunFolder) -> None:
        self._mlflow = import_extra("mlflow", extra=None)
        known, name = _remembered(run, "mlflow"), run.path.resolve().name
        started = self._mlflow.start_run(run_id=known, run_name=None if known else name)
        _remember(run, "mlflow", started.info.run_id)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends every number of the row."""
        self._mlflow.log_metrics(_numbers(row), step=row["step"])

    def close(self) -> None:
        """Ends the run there."""
        self._mlflow.end_run()


def build_loggers(names: tuple[str, ...], run: RunFolder, step: int) -> list[Logger]:
    """The loggers of these names.

    Args:
        names: Of csv, tensorboard, wandb, mlflow.
        run: The run folder.
        step: Number of steps done; later rows of the log are written again.

    Raises:
        MissingExtraError: If the package of one is not installed.
    """
    makers: dict[str, Callable[[], Logger]] = {
        "csv": lambda: CSVLogger(run),
        "tensorboard": lambda: TensorBoardLogger(run, step),
        "wandb": lambda: WandbLogger(run),
        "mlflow": lambda: MLflowLogger(run),
    }
    return [makers[name]() for name in names]


def _remembered(run: RunFolder, service: str) -> str | None:
    """The id that a service gave to this run; names of folders can repeat."""
    path = run.path / f"{service}-id.txt"
    return path.read_text("utf-8").strip() if path.is_file() else None


def _remember(run: RunFolder, service: str, identity: str) -> None:
    path = run.path / f"{service}-id.txt"
    with explained_writing(path, run.path), whole_file(path) as file:
        file.write(f"{identity}\n".encode())


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if value is not None and name != "step"}
