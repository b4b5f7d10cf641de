"""Many independent runs of one folder: those of a recipe, and comparisons of losses."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from imae.errors import ArgumentError, ChangedDataError, ImaeError, check_integer
from imae.methods.catalog import METHODS
from imae.recipes.recipe import Cell, Settings, cell_config, run_folder
from imae.recipes.runner import Job, attempt, run_in_parallel, run_on_ray
from imae.records import RunFolder
from imae.records.files import write_file
from imae.records.measures import TEST
from imae.report.formats import duration
from imae.train import Config, Run, Stopped, build_config, with_settings
from imae.train.display import shown_display
from imae.train.rows import is_truth_known, load_rows, unchanged_data

_WRITTEN = ("table.md", "table.csv", "report.html", "figures")  # beside the runs


class FailedRunsError(ImaeError):
    """Some of several runs failed; the others have been done."""


def claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Records the purpose of a folder; a folder with another purpose is refused.

    Args:
        path: The file; its folder is created if it does not exist.
        content: What the runs share, as plain values.
        holds: What a folder with another purpose holds, for the message.

    Raises:
        ArgumentError: If the file differs or is damaged, or the folder is a file.
    """
    check_claim(path, content, holds=holds)
    write_file(path, _text(content))


def check_claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Refuses a folder with another purpose, and writes nothing; see ``claim``.

    Raises:
        ArgumentError: If the file says something else or is damaged, or the folder is a file.
    """
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, and --out must be a folder")
    if not path.exists():
        for name in _WRITTEN:
            if (path.parent / name).exists():
                raise ArgumentError(
                    f"{path.parent / name}: was not written by this command, which would "
                    "overwrite it; choose another --out"
                )
        return
    if path.read_bytes() != _text(content):
        if not _is_json(path.read_bytes()):
            raise ArgumentError(f"{path}: is damaged; delete it and repeat the command to resume")
        raise ArgumentError(f"{path.parent}: holds {holds}; choose another --out")


def _text(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def build_jobs(
    cells: Sequence[Cell], *, seeds: int, folder: Path, settings: Settings, workers: int = 1
) -> tuple[Job, ...]:
    """Every run of these cells, checked before the first one starts.

    Args:
        cells: What to train.
        seeds: Runs of each cell and variant; the first seed is that of the settings.
        folder: Where the run folders go.
        settings: Override the settings of every cell.
        workers: Runs at the same time; each gets its share of the processor.

    Raises:
        ArgumentError: If a setting cannot be used.
    """
    check_integer("seeds", seeds, low=1)
    jobs = []
    for offset in range(seeds):
        for cell in cells:
            for variant in cell.variants:
                config = cell_config(cell, variant, settings)
                seed = config.seed + offset
                path = run_folder(folder, cell, variant, seed)
                config = config.model_copy(update={"seed": seed, "out": str(path)})
                jobs.append(Job(path.name, with_share_of_threads(config, workers)))
    return tuple(jobs)


def with_share_of_threads(config: Config, workers: int) -> Config:
    """The settings of one of several parallel runs, with its share of the processor.

    Raises:
        ArgumentError: If ``workers`` is not an integer of at least 1.
    """
    check_integer("jobs", workers, low=1)
    if workers == 1 or config.machine.threads is not None:
        return config
    share = max(1, (os.cpu_count() or 1) // workers)
    return config.model_copy(
        update={"machine": config.machine.model_copy(update={"threads": share})}
    )


def waiting_jobs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs whose run has not finished."""
    return [job for job in jobs if RunFolder(str(job.config.out)).result() is None]


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    ray_address: str | None = None,
    show: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Runs the jobs; those that have finished are kept, interrupted ones are resumed.

    Args:
        jobs: The runs.
        workers: Processes at the same time on this machine.
        ray_address: Address of a Ray cluster to run on instead, ``local`` for one of its own;
            all its machines must see the same folders.
        show: Whether to show progress, if one run follows another.
        say: Called with a line for every run that ends.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; the same call resumes.
        FailedRunsError: If runs failed; the others are finished.
    """
    waiting = waiting_jobs(jobs)
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done already")
    if not waiting:
        return
    if ray_address is not None:
        ends = run_on_ray(waiting, ray_address)
    elif workers == 1:
        ends = _one_by_one(waiting, show=show, say=say)
    else:
        ends = run_in_parallel(waiting, workers)
    failed: dict[str, list[str]] = {}
    for number, (job, problem) in enumerate(ends, start=1):
        say(f"{number} of {len(waiting)}: {job.name} {_end(job, problem)}")
        if problem is not None:
            failed.setdefault(problem, []).append(job.name)
    if failed:
        number = sum(map(len, failed.values()))
        reasons = "; ".join(f"{_some(names)}: {problem}" for problem, names in failed.items())
        raise FailedRunsError(f"{number} of {len(waiting)} runs failed: {reasons}")


def _one_by_one(
    jobs: Sequence[Job], *, show: bool, say: Callable[[str], None]
) -> Iterator[tuple[Job, str | None]]:
    printed = set[str]()  # the same data is described once
    for number, job in enumerate(jobs, start=1):
        say(f"{number} of {len(jobs)}: {job.name} begins")
        display = shown_display(printed) if show else None
        try:
            problem = attempt(job.config, show=show, display=display)
        except Stopped as stopped:
            raise Stopped(
                "stopped; resume with the same command and --resume", stopped.code
            ) from None
        yield job, problem


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _end(job: Job, problem: str | None) -> str:
    if problem is not None:
        return f"failed: {problem}"
    result = RunFolder(str(job.config.out)).result() or {}
    accuracy = (result.get("final") or {}).get(TEST.key)
    found = "" if accuracy is None else f", test accuracy {100 * accuracy:.1f}"
    return f"ended after {duration(result.get('seconds', 0))}{found}"


def split_losses(text: str) -> list[str]:
    """The losses in a list such as ``cce,sl:alpha=6,beta=0.1,imae:T=8``; all of them for ``all``.

    A part that begins with ``KEY=`` belongs to the loss before it.

    Raises:
        ArgumentError: If there is none, or one is a duplicate.

    Examples:
        >>> split_losses("cce,sl:alpha=6,beta=0.1")
        ['cce', 'sl:alpha=6,beta=0.1']
    """
    if text.strip() == "all":
        return list(METHODS.names())
    losses: list[str] = []
    for part in filter(None, (part.strip() for part in _split(text))):
        if losses and "=" in part.partition(":")[0]:
            losses[-1] += f",{part}"
        else:
            losses.append(part)
    if not losses:
        raise ArgumentError("name at least one loss, such as cce,imae_capped")
    for loss in losses:
        if losses.count(loss) > 1:
            raise ArgumentError(f"the loss {loss} appears twice")
    return losses


def trainable_losses(
    losses: Sequence[str], settings: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """The losses that can be trained on the data of a comparison, and those that cannot.

    These learn from rows whose labels are known to be right, where neither the data nor a setting
    says which rows those are.

    Args:
        losses: Names of methods.
        settings: Nested settings of every run.

    Raises:
        ArgumentError: If a setting cannot be used.
        DataError: If the data cannot be read.
    """
    needing = [loss for loss in losses if METHODS.build(loss).needs_trusted]
    config = build_config(settings)
    if not needing or config.data.trusted is not None or is_truth_known(config):
        return list(losses), []
    return [loss for loss in losses if loss not in needing], needing


def _split(text: str) -> list[str]:
    """The parts between commas; those within brackets belong to a list."""
    return re.split(r",(?![^\[]*\])", text)


def compare(
    settings: Mapping[str, Any],
    losses: Sequence[str],
    *,
    seeds: int,
    out: str | os.PathLike[str],
    jobs: int = 1,
    show: bool = False,
    at_failure: Callable[[list[Path]], None] = lambda _: None,
) -> list[Run]:
    """Trains every loss with every seed and the same settings, and returns the runs.

    Each run has a folder of its own below ``out``. Finished runs are kept and interrupted ones
    resume, so after a crash the same call does only what is missing.

    Args:
        settings: Nested settings of every run. Their seed is the first one; the loss and the
            folder are replaced, and the noise is drawn again for every seed.
        losses: Names with parameters, such as ``imae:T=16``.
        seeds: Number of seeds, at least 1.
        out: Folder of the comparison.
        jobs: Parallel runs on this machine; each gets its share of the processor.
        show: Whether to show progress.
        at_failure: Called before the error is raised, if some runs failed and others finished, with
            the folders of all that have begun.

    Returns:
        The runs, seed by seed, in the order of ``losses``.

    Raises:
        ArgumentError: If a setting cannot be used, or ``out`` holds one with other settings.
        Stopped: If Ctrl-C or SIGTERM ended it; the same call resumes.
        FailedRunsError: If runs failed; the others have been done.
    """
    check_integer("seeds", seeds, low=1)
    folder = Path(out)
    cells = _cells(settings, losses, seeds, folder)
    configs = [with_share_of_threads(config, jobs) for config in cells]
    claim(folder / "compare.json", settings, holds="a comparison with other settings")
    _check_data(configs, folder)
    runs = [Job(Path(str(config.out)).name, config) for config in configs]
    say = partial(print, flush=True) if show else lambda _: None
    try:
        if jobs > 1:
            extract_features(waiting_jobs(runs), say)
        run_jobs(runs, workers=jobs, show=show, say=say)
    except Stopped as stopped:  # the same command, without --resume
        raise Stopped("stopped; the same command resumes", stopped.code) from None
    except FailedRunsError:
        begun = [run for config in configs if (run := RunFolder(str(config.out))).exists()]
        if any(run.result() is not None for run in begun):
            at_failure([run.path for run in begun])
        raise
    return [Run(str(config.out), model=config.model.name) for config in configs]


def extract_features(jobs: Sequence[Job], say: Callable[[str], None]) -> None:
    """Fills the cache of features first, so that parallel runs do not compute the same ones."""
    first: dict[object, Config] = {}
    for config in (job.config for job in jobs if job.config.data.features is not None):
        sample = None if config.data.rows is None else config.seed
        first.setdefault((config.data.model_dump_json(), sample), config)
    for config in first.values():
        say(f"features of {config.data.name}, which all its runs share")
        load_rows(config)


def _check_data(configs: Sequence[Config], folder: Path) -> None:
    """Raises if the data has changed since the finished runs were trained.

    Raises:
        ArgumentError: If the data exists and is not what they were trained on.
    """
    runs = [RunFolder(str(config.out)) for config in configs]
    seen: list[Mapping[str, str]] = []
    for run in runs:
        try:
            content = {} if run.result() is None else run.preparation().get("content", {})
            if content and content not in seen:
                unchanged_data(configs[0].data.model_dump(), content, with_files=True)
            seen.append(content)
        except ChangedDataError:
            raise ArgumentError(
                f"{folder}: holds a comparison on other data: {configs[0].data.name} has changed "
                "since then; choose another --out"
            ) from None
        except ImaeError:  # it no longer exists, which every remaining run reports
            return


def _cells(
    settings: Mapping[str, Any], losses: Sequence[str], seeds: int, folder: Path
) -> list[Config]:
    """Every configuration, checked before the first one runs."""
    first = build_config(settings).seed
    cells = []
    for seed in range(first, first + seeds):
        for loss in losses:
            name, _, arguments = loss.partition(":")
            texts = [f"method.arguments.{part}" for part in filter(None, _split(arguments))]
            label = re.sub(r"[^\w.=-]+", "-", loss)
            content = with_settings(settings, [f"method.name={name}", *texts, f"seed={seed}"])
            cells.append(build_config({**content, "out": str(folder / f"{label}-seed{seed}")}))
    return cells
