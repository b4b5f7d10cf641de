"""Training and resuming runs, and training a student, in this process or in several."""

import contextlib
import csv
import datetime
import io
import itertools
import os
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from imae.curves import Curve
from imae.data import Data
from imae.data.image_files import BadImageError
from imae.data.loading import as_data
from imae.errors import ArgumentError, DataError, ImaeError, in_one_line
from imae.methods.catalog import METHODS
from imae.records import RunFolder
from imae.records.files import write_file
from imae.train.config import FROM_PYTHON, Config, build_config, with_values
from imae.train.display import Display, QuietDisplay, shown_display
from imae.train.journal import Journal
from imae.train.loop import fit
from imae.train.machine import build_fabric, pinned
from imae.train.predict import load_network, plain_batches, predicted_classes
from imae.train.processes import (
    Stopped,
    is_lost_process_error,
    lost_process_message,
    start_processes,
)
from imae.train.relabel import read_label_file
from imae.train.rows import Prepared, leaves_out_rows, load_rows, prepare
from imae.train.run import Run
from imae.train.setup import setup


def train(
    config: Config | Mapping[str, Any] | None = None,
    data: object = None,
    model: nn.Module | None = None,
    *,
    loss: str | Curve | None = None,
    show: bool = False,
    display: Display | None = None,
) -> Run:
    """Trains as configured and returns the finished run.

    Args:
        config: What to train: a ``Config``, or nested settings as for ``build_config``; all
            settings have defaults.
        data: The rows, in place of ``data.name``: an ``imae.data.Data``, a map-style
            ``torch.utils.data.Dataset`` of (input, label) pairs, arrays or texts ``(X, y)``, a
            frame of pandas or polars with a column ``label``, or a name or path. See
            ``imae.data.from_arrays``, ``from_dataset`` and ``load`` for the allowed contents; the
            options of ``load`` for a frame are the setting ``data.options``.
        model: The network, in place of ``model.name``; a copy of it is trained.
        loss: What is minimised, in place of ``method``: a name of ``imae list methods``, or a
            curve of ``imae.curves``.
        show: Whether to show progress on the error stream.
        display: Shows the progress instead; in one process only.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; it can be resumed.
        ImaeError: If the data or an option cannot be used, a loss or weight is not finite, a file
            cannot be written, or the folder is not empty.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> settings = {"train": {"epochs": 2}, "out": tempfile.mkdtemp()}
        >>> X, y = np.random.default_rng(1).normal(size=(80, 4)), np.arange(80) % 2
        >>> run = train(settings, data=(X, y))
        >>> run.result["final"]["step"]
        4
    """
    rows = None
    config = {} if config is None else config
    if loss is not None:
        config = _with_given_loss(config, loss)
    if data is not None:
        rows, config = given_data(config, data)
    elif not isinstance(config, Config):
        config = build_config(config)
    if model is not None:
        config = _with_given_model(config, model)
    folder = Path(config.out or default_folder(config))
    path = _start(
        config, folder, data=rows, model=model, is_resumed=False, show=show, display=display
    )
    return Run(path, model=config.model.name if model is None else model)


def resume(
    path: str | os.PathLike[str],
    data: object = None,
    model: str | nn.Module | None = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    show: bool = False,
    display: Display | None = None,
) -> Run:
    """Continues a run from its last checkpoint; a run that has finished is left as it is.

    The result is bit for bit that of a run that was never interrupted. This does not hold with a
    larger budget: the run is lengthened, and from the checkpoint on the learning rate follows the
    schedule of the new length.

    Args:
        path: The run folder.
        data: The rows again, if they were given in Python; or the new place of data that was moved.
            They must have the same content.
        model: The network again, if it was given in Python; its name, if it is a function of
            your own. See ``Run``.
        epochs: A larger number of epochs, to lengthen the run.
        steps: A larger number of steps, to lengthen the run.
        show: Whether to show progress on the error stream.
        display: See ``train``.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it again.
        ImaeError: As from ``train``, or if the folder does not hold a run.
    """
    run = Run(path, model=model)
    budget = (run.config.train.epochs, run.config.train.steps)
    is_longer = (epochs, steps) not in ((None, None), budget)
    if run.result is None or is_longer:
        run.refuse_code()
        rows, config = None, run.config
        if is_longer:
            longer = {**config.train.model_dump(), "epochs": epochs, "steps": steps}
            config = build_config({**config.model_dump(), "train": longer})
        if data is not None:
            rows, config = given_data(config, data)
        elif config.data.from_python:
            raise ArgumentError(
                f"{run.path}: its data was given in Python; give it again: "
                f"{config.resume_command(run.path)}"
            )
        elif os.sep in config.data.name and not os.path.exists(config.data.name):
            command = shlex.join(["imae", "train", "DATA", "--resume", str(run.path)])
            raise DataError(
                f"{run.path}: its data no longer exists ({config.data.name}: no such file or "
                f"folder); if it was moved, give the new path: {command}"
            )
        module = model if isinstance(model, nn.Module) else None
        _start(
            config, run.path, data=rows, model=module, is_resumed=True, show=show, display=display
        )
    return Run(path, model=model)


STUDENT_LABELS = "student.csv"  # in the folder of the first run


def train_student(
    run: Run | str | os.PathLike[str],
    data: object = None,
    model: str | nn.Module | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    show: bool = False,
) -> Run:
    """Trains a new network with the settings of a run on the labels that the run predicts.

    The best epoch of a run has memorised few of the wrong labels, and contradicts most of them. A
    network that starts from its predictions has fewer wrong labels to memorise. Every training row
    is relabelled, including those held out, and none is held out again: their labels would be
    predictions of the first network. The labels are saved as ``student.csv`` in the folder of the
    first run.

    Args:
        run: A finished run, or its folder.
        data: The rows again, if they were given in Python; or the new place of data that was moved.
        model: The network again, if it was given in Python, with the weights to start from; its
            name, if it is a function of your own. A ``Run`` that was opened with it has it.
        out: Folder of the new run; by default that of the first with ``-student`` appended.
        show: Whether to show progress on the error stream.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; the new run can be resumed.
        ArgumentError: If the run was trained on only a part of its rows.
        DataError: If the run is not finished, or the data is not what it was trained on.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> X, y = np.random.default_rng(1).normal(size=(80, 4)), np.arange(80) % 2
        >>> settings = {"train": {"epochs": 2}, "out": tempfile.mkdtemp()}
        >>> first = train(settings, data=(X, y))
        >>> second = train_student(first, (X, y), out=tempfile.mkdtemp())
        >>> len(second.folder.labels().given)
        80

    Reference:
        Chen et al., "Robustness of accuracy metric and its inspirations in learning with noisy
        labels", AAAI 2021.
    """
    if not isinstance(run, Run):
        run = Run(run, model=model)
    elif model is not None:
        run = Run(run.path, model=model)
    network = load_network(run, None)
    config = run.config
    rows = None
    if data is not None:
        rows, config = given_data(config, data)
    elif config.data.from_python:
        raise ArgumentError(f"{run.path}: its data was given in Python; give it again: data=...")
    if leaves_out_rows(config):
        raise ArgumentError(
            f"{run.path}: was trained on a part of the rows (data.rows or trusted rows); a student "
            "needs a prediction for each of them"
        )
    prepared = prepare(config, load_rows(config, rows))
    _check_same_content(run, prepared)
    held = prepared.validation if prepared.is_held_out else None
    lines = []
    for split in (prepared.train, *([] if held is None else [held])):
        labels = predicted_classes(network, plain_batches(run, split))
        names = np.array(split.class_names, dtype=object)[labels]
        lines += [
            (row_id, name, "")
            for row_id, name in zip(split.row_ids.tolist(), names.tolist(), strict=True)
        ]
    predicted = {name for _, name, _ in lines}
    lost = [name for name in prepared.train.class_names if name not in predicted]
    if lost:
        warnings.warn(
            f"{run.path}: its best epoch predicts no row as {', '.join(lost)}, so the student "
            "cannot learn that; train the first run longer, or with data.balanced",
            stacklevel=2,
        )
    lines += [(row_id, "", "removed before") for row_id in _removed_rows(config)]
    path = run.path / STUDENT_LABELS
    _write_labels(path, lines)
    student = _student_config(config, path, out or f"{run.path}-student", prepared)
    return train(student, data=data, model=run.module, show=show)


def teacher_folder(labels: str | os.PathLike[str] | None) -> Path | None:
    """The folder of the run whose predictions a label file holds; None if it is another file.

    Args:
        labels: The file, as in the setting ``data.labels``.
    """
    path = None if labels is None else Path(labels)
    is_found = path is not None and path.name == STUDENT_LABELS and RunFolder(path.parent).exists()
    return path.parent if path is not None and is_found else None


def _student_config(
    config: Config, labels: Path, out: str | os.PathLike[str], prepared: Prepared
) -> Config:
    content = config.model_dump()
    content |= {"noise": None, "noise_map": None, "noise_exact": False, "out": os.fspath(out)}
    content["data"] |= {"labels": str(labels.resolve()), "planted": 0.0}
    if (config.model.name or "").startswith(FROM_PYTHON):  # `train` gets the module again
        content["model"]["name"] = None
    if prepared.is_held_out:
        content["data"]["hold_out"] = 0.0
    elif config.noise is not None:  # without it the validation part would have its true labels
        content["data"] |= {"hold_out": 0.0, "own_validation": False}
    return build_config(content)


def _check_same_content(run: Run, prepared: Prepared) -> None:
    before = run.folder.preparation().get("content")
    if before is not None and before != dict(prepared.content):
        raise DataError(f"{run.path}: the data is not what this run was trained on")


def _removed_rows(config: Config) -> list[str]:
    """Ids of the rows that the label file of a run removes because they belong to no class."""
    labels = config.data.labels
    file = None if labels is None else read_label_file(Path(labels))
    return [] if file is None else file.row_ids[file.is_removed].tolist()


def _write_labels(path: Path, lines: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("row_id", "label", "removed"))
    writer.writerows(lines)
    write_file(path, text.getvalue())


def given_data(config: Config | Mapping[str, Any], data: object) -> tuple[Data | None, Config]:
    """The rows that were given, if they are not on disk, and the configuration with their name.

    Raises:
        ArgumentError: If the rows or the settings cannot be used.
        DataError: If the rows cannot be used.
    """
    content = config.model_dump() if isinstance(config, Config) else config
    section = content.get("data", {}) if isinstance(content, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(section.get("options", {}), Mapping):
        return None, build_config(content)  # says what is wrong with it
    rows = None
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
    elif isinstance(data, Data) and section.get("from_python"):
        rows, name = data, section["name"]  # read already, with the options
    else:
        rows = as_data(data, root=section.get("root"), options=section.get("options"))
        name = section.get("name") or rows.name
    changes = {"data.name": name, "data.from_python": rows is not None}
    return rows, build_config(with_values(content, changes))


def _with_given_loss(config: Config | Mapping[str, Any], loss: str | Curve) -> Mapping[str, Any]:
    """The settings with this loss as the method."""
    content = config.model_dump() if isinstance(config, Config) else config
    if not isinstance(config, Config) and isinstance(content, Mapping) and "method" in content:
        raise ArgumentError("loss: cannot be combined with settings of the section method")
    name = loss.name if isinstance(loss, Curve) else loss
    if not isinstance(name, str) or (isinstance(loss, Curve) and name not in METHODS):
        raise ArgumentError(
            "loss must be a name of imae list methods, or a curve of imae.curves that has such a "
            f"name, got {type(loss).__name__}"
        )
    if not isinstance(loss, Curve):
        return {**content, "method": {"name": loss}}
    arguments = {each.name: getattr(loss, each.name) for each in fields(loss)}  # type: ignore[arg-type]
    return {**content, "method": {"name": loss.name, "arguments": arguments}}


def _with_given_model(config: Config, model: nn.Module) -> Config:
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {model!r}; a name is model.name")
    if config.model.name is not None or config.model.arguments or config.model.init:
        raise ArgumentError("model: cannot be combined with settings of the section model")
    section = config.model.model_copy(update={"name": f"{FROM_PYTHON}{type(model).__name__}"})
    return config.model_copy(update={"model": section})


def default_folder(config: Config) -> str:
    """``runs/NAME-TIME``, NAME from the data and the method; with a number if that exists."""
    data = re.sub(r"[^\w.-]+", "-", Path(config.data.name).name).strip("-.") or "data"
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = f"runs/{data}-{config.method.name}-{time}"
    names = itertools.chain([folder], (f"{folder}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not os.path.exists(name))


def train_here(
    config: Config,
    folder: Path,
    *,
    data: Data | None = None,
    model: nn.Module | None = None,
    is_resumed: bool,
    show: bool,
    display: Display | None = None,
) -> Path:
    """Trains in this process, as the only one or as one of several.

    Args:
        config: What to train.
        folder: The run folder; that of the first rank counts.
        data: Rows from Python.
        model: A network from Python.
        is_resumed: Whether the folder holds a run to continue.
        show: Whether the first rank shows progress.
        display: Shows the progress instead, on the first rank.

    Returns:
        The run folder.
    """
    fabric = build_fabric(config.machine)
    folder = Path(fabric.broadcast(str(folder)))  # its default name holds a time
    run = RunFolder(folder)
    is_first = fabric.global_rank == 0
    if not is_first:
        display = Display()
    elif display is None:
        display = shown_display() if show else QuietDisplay()
    journal = Journal(run, display)
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        stack.enter_context(_bad_images_explained())
        if is_first:
            stack.enter_context(run.lock())
            if run.exists() and not is_resumed:
                is_begun = any(
                    (folder / name).exists() for name in ("history.jsonl", "checkpoints")
                )
                raise ArgumentError(
                    f"{folder}: holds a run already; continue it with --resume "
                    f"{shlex.quote(str(folder))}, or choose another --out"
                    + ("" if is_begun else " (nothing is trained in it yet: it can be removed)")
                )
        is_early = is_resumed and "content" not in run.preparation()
        state = setup(
            config,
            fabric,
            display,
            data=data,
            model=model,
            scale_by_all=is_early,
            is_resumed=is_resumed,
        )
        threads = state.config.machine.threads
        assert threads is not None
        stack.enter_context(pinned(threads, fabric.device))
        try:
            journal.begin(state, is_resumed=is_resumed)
            fit(state, journal)
            journal.finish(state)
        except Stopped:
            raise
        except ImaeError as error:
            with contextlib.suppress(ImaeError):
                journal.failed(state, str(error))
            raise
        except Exception as error:  # such as out of memory
            is_lost = state.ranks.number > 1 and is_lost_process_error(error)
            reason = in_one_line(error)
            with contextlib.suppress(ImaeError):
                journal.failed(state, lost_process_message(config, folder) if is_lost else reason)
            if is_lost:
                raise ImaeError(lost_process_message(config, folder)) from error
            raise
    return folder


@contextlib.contextmanager
def _bad_images_explained() -> Iterator[None]:
    """Adds to the error about an unreadable image how to train without such images."""
    try:
        yield
    except BadImageError as error:
        raise BadImageError(
            f"{error}; to leave out all images that cannot be read: --set "
            "data.options.on_bad_image=skip (in Python: on_bad_image='skip' of imae.data.load)"
        ) from error


def _start(
    config: Config,
    folder: Path,
    *,
    data: Data | None,
    model: nn.Module | None,
    is_resumed: bool,
    show: bool,
    display: Display | None,
) -> Path:
    call = partial(
        train_here, data=data, model=model, is_resumed=is_resumed, show=show, display=display
    )
    if is_worker():
        machine = config.machine.model_copy(update=started_as())
        config = config.model_copy(update={"machine": machine})
    elif config.machine.nodes > 1:
        raise ArgumentError(
            "machine.nodes: several machines are started with torchrun, which connects them: "
            "torchrun --nnodes M --nproc-per-node N $(which imae) train ..."
        )
    if config.data.balanced is not None and config.machine.devices * config.machine.nodes > 1:
        # What is kept for a row is summed over the processes: each row must be in one of them.
        raise ArgumentError(
            "data.balanced: an epoch may hold a row in several processes, which would each keep "
            "values of it; train in one process, machine.devices=1"
        )
    if not is_worker() and config.machine.devices > 1:
        start_processes(partial(call, config, folder), config, folder)
        return folder
    return call(config, folder)


def is_worker() -> bool:
    """Whether this process was started as one of several, by torchrun or by us."""
    return "LOCAL_RANK" in os.environ


def started_as() -> dict[str, int]:
    """Numbers of devices and nodes that torchrun, or imae, started; empty if unknown."""
    if "WORLD_SIZE" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return {}
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return {"devices": here, "nodes": everywhere // here}
