"""Logs beside the run folder: each is told every row of the history."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

from imae.errors import import_extra
from imae.records import RunFolder, explained_writing
from imae.records.files import whole_file


class Logger(ABC):
    """Something that is told every row of the history."""

    @abstractmethod
    def log(self, row: Mapping[str, Any]) -> None:
        """Takes a row of the history."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is still open."""


@final
class CSVLogger(Logger):
    """``history.csv`` in the run folder, made anew from the history: a resume doubles nothing."""

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
        """Has nothing open."""


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
        """Writes what is still open."""
        self._writer.close()


@final
class WandbLogger(Logger):
    """A run of Weights & Biases under the name of the run folder."""

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
    """A run of MLflow under the name of the run folder."""

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
        step: Steps that are done; what was logged after them will come again.

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
    """What a service called this run when it was first started; names of folders come again."""
    path = run.path / f"{service}-id.txt"
    return path.read_text("utf-8").strip() if path.is_file() else None


def _remember(run: RunFolder, service: str, identity: str) -> None:
    path = run.path / f"{service}-id.txt"
    with explained_writing(path, run.path), whole_file(path) as file:
        file.write(f"{identity}\n".encode())


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in row.items() if value is not None and name != "step"}
