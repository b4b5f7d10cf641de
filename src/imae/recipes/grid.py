"""Many independent runs, and the settings that the runs of a folder share."""

import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from imae.errors import ArgumentError, ImaeError, check_integer
from imae.recipes.outcome import run_folder
from imae.recipes.recipe import Cell, Settings, cell_config
from imae.recipes.runner import Job, attempt, run_at_once, run_on_ray
from imae.records import RunFolder
from imae.records.files import whole_file
from imae.records.measures import TEST
from imae.report.settings import flatten
from imae.train import Config, Stopped


def claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Writes down what a folder is for; a folder that is for something else is refused.

    Args:
        path: The file; its folder is made if it is not there.
        content: What the runs share, as plain values.
        holds: What the folder holds if it holds something else, for the message.

    Raises:
        ArgumentError: If the file says something else or is damaged, or the folder is none.
    """
    check_claim(path, content, holds=holds)
    with whole_file(path) as file:
        file.write(_text(content))


def check_claim(path: Path, content: Mapping[str, Any], *, holds: str) -> None:
    """Refuses a folder that is for something else, and writes nothing; see ``claim``.

    Raises:
        ArgumentError: If the file says something else or is damaged, or the folder is none.
    """
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, and --out names a folder")
    if path.exists() and path.read_bytes() != _text(content):
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


# What a recipe is about, even where all its cells share it.
_FIXED = ("data.name", "method.name", "model.name", "noise", "out")


def chosen_cells(cells: Sequence[Cell], only: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose name fits one of the patterns, such as ``resnet20-40-*``; all for none.

    Raises:
        ArgumentError: If a pattern fits no cell.
    """
    for pattern in only:
        if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in cells):
            names = ", ".join(cell.name for cell in cells)
            known = f"the cells are {names}" if names else "this recipe trains nothing"
            raise ArgumentError(f"--only {pattern}: no such cell; {known}")
    if not only:
        return tuple(cells)
    return tuple(
        cell for cell in cells if any(fnmatch.fnmatchcase(cell.name, each) for each in only)
    )


def build_jobs(
    cells: Sequence[Cell], *, seeds: int, folder: Path, settings: Settings, workers: int = 1
) -> tuple[Job, ...]:
    """Every run of these cells, checked before the first one starts.

    Args:
        cells: What is to be trained.
        seeds: Runs of each cell and variant; the first seed is that of the settings.
        folder: Where the run folders go.
        settings: Laid over the settings of every cell.
        workers: Runs at once; each gets its share of the processor.

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
    """The settings of one of several runs at once, with its share of the processor.

    Raises:
        ArgumentError: If ``workers`` is not a number of at least 1.
    """
    check_integer("jobs", workers, low=1)
    if workers == 1 or config.machine.threads is not None:
        return config
    share = max(1, (os.cpu_count() or 1) // workers)
    return config.model_copy(
        update={"machine": config.machine.model_copy(update={"threads": share})}
    )


def check_overrides(cells: Sequence[Cell], settings: Settings) -> None:
    """Refuses settings by which the rows of a table would no longer be what they are called.

    Args:
        cells: All cells of the recipe.
        settings: What a user wants to lay over the settings of every cell.

    Raises:
        ArgumentError: If a setting is one that the cells or their variants differ in, one that
            they give their method, or what a recipe is about.
    """
    by_cell = [flatten(cell.settings) for cell in cells]
    tried = {key for cell in cells for each in cell.variants for key in flatten(each.settings)}
    for key in flatten(settings):
        if key in tried:
            raise ArgumentError(f"{key}: the recipe tries several of it; leave it out")
        is_of_a_method = key.startswith("method.") and any(key in each for each in by_cell)
        if key in _FIXED or is_of_a_method or len({each.get(key) for each in by_cell}) > 1:
            raise ArgumentError(
                f"{key}: belongs to the recipe; for something else there is imae compare"
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
    """Does the runs; those that have finished are kept, interrupted ones are resumed.

    Args:
        jobs: The runs.
        workers: Processes at once on this machine.
        ray_address: Address of a Ray cluster to run on instead, ``local`` for one of its own;
            all its machines must see the same folders.
        show: Whether runs one after another show their progress.
        say: Called with a line for every run that ends.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; the same call resumes.
        ImaeError: If runs failed; the others have been done.
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
        ends = run_at_once(waiting, workers)
    failed: dict[str, list[str]] = {}
    for number, (job, problem) in enumerate(ends, start=1):
        say(f"{number} of {len(waiting)}: {job.name} {_end(job, problem)}")
        if problem is not None:
            failed.setdefault(problem, []).append(job.name)
    if failed:
        number = sum(map(len, failed.values()))
        reasons = "; ".join(f"{_some(names)}: {problem}" for problem, names in failed.items())
        raise ImaeError(f"{number} of {len(waiting)} runs failed: {reasons}")


def _one_by_one(
    jobs: Sequence[Job], *, show: bool, say: Callable[[str], None]
) -> Iterator[tuple[Job, str | None]]:
    for number, job in enumerate(jobs, start=1):
        say(f"{number} of {len(jobs)}: {job.name} begins")
        try:
            problem = attempt(job.config, show=show)
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
    return f"ended after {result.get('seconds', 0) / 60:.1f} min{found}"
