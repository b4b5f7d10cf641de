"""Many independent runs: one after another, several at once, or on a cluster."""

import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from imae._checks import check_integer
from imae.errors import ArgumentError, ImaeError
from imae.recipes.cluster import run_on_ray
from imae.recipes.job import Job, train_or_resume
from imae.recipes.outcome import run_folder
from imae.recipes.recipe import Cell, Settings, merged
from imae.recipes.workers import run_at_once
from imae.records import RunFolder
from imae.train import Config, Stopped, build_config


def chosen_cells(cells: Sequence[Cell], only: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose name fits one of the patterns, such as ``resnet20-40-*``; all for none.

    Raises:
        ArgumentError: If a pattern fits no cell.
    """
    for pattern in only:
        if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in cells):
            names = ", ".join(cell.name for cell in cells)
            raise ArgumentError(f"--only {pattern}: no such cell; the cells are {names}")
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
    check_integer("jobs", workers, low=1)
    _refuse_what_variants_set(cells, settings)
    threads: Settings = {}
    if workers > 1:
        threads = {"machine": {"threads": max(1, (os.cpu_count() or 1) // workers)}}
    jobs = []
    for offset in range(seeds):
        for cell in cells:
            for variant in cell.variants:
                content = merged(threads, cell.settings, variant.settings, settings)
                seed = build_config(content).seed + offset
                path = run_folder(folder, cell, variant, seed)
                config = build_config({**content, "seed": seed, "out": str(path)})
                _refuse_other_settings(config)
                jobs.append(Job(path.name, config))
    return tuple(jobs)


def _refuse_what_variants_set(cells: Sequence[Cell], settings: Settings) -> None:
    given = _leaves(settings)
    for cell in cells:
        for variant in cell.variants:
            for key in _leaves(variant.settings):
                if key in given:
                    raise ArgumentError(f"{key}: {cell.name} tries several of it; leave it out")


def _refuse_other_settings(config: Config) -> None:
    """Refuses a run folder from an older form of the recipe, whose numbers do not belong here."""
    assert config.out is not None
    run = RunFolder(config.out)
    if not run.exists():
        return
    wanted, found = (
        _leaves({key: value for key, value in content.items() if key not in ("out", "machine")})
        for content in (config.model_dump(mode="json"), run.config())
    )
    for key, value in wanted.items():
        if value is not None and found.get(key) != value:  # what is left open was filled in
            raise ArgumentError(
                f"{config.out}: was run with {key}={found.get(key)}, not {value}; "
                "choose another --out"
            )


def _leaves(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        is_section = isinstance(value, Mapping)
        flat.update(_leaves(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value})
    return flat


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    ray_address: str | None = None,
    show: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Does the runs; those that have finished are left alone, interrupted ones go on.

    Args:
        jobs: The runs.
        workers: Processes at once on this machine.
        ray_address: Address of a Ray cluster to run on instead, ``local`` for one of its own;
            all its machines must see the same folders.
        show: Whether a run that is alone shows its progress.
        say: Told of every run that ends.

    Raises:
        Stopped: If Ctrl-C or SIGTERM ended it; the same call goes on.
        ImaeError: If runs failed; the others have been done.
    """
    waiting = [job for job in jobs if RunFolder(str(job.config.out)).result() is None]
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
    failed = []
    for number, (job, problem) in enumerate(ends, start=1):
        say(f"{number} of {len(waiting)}: {job.name} {_end(job, problem)}")
        if problem is not None:
            failed.append(f"{job.name}: {problem}")
    if failed:
        raise ImaeError(f"{len(failed)} of {len(waiting)} runs failed: {'; '.join(failed)}")


def _one_by_one(
    jobs: Sequence[Job], *, show: bool, say: Callable[[str], None]
) -> Iterator[tuple[Job, str | None]]:
    for number, job in enumerate(jobs, start=1):
        say(f"{number} of {len(jobs)}: {job.name} begins")
        try:
            train_or_resume(job.config, show=show)
        except Stopped:
            raise
        except ImaeError as error:
            yield job, str(error)
        else:
            yield job, None


def _end(job: Job, problem: str | None) -> str:
    if problem is not None:
        return f"failed: {problem}"
    result = RunFolder(str(job.config.out)).result() or {}
    accuracy = (result.get("final") or {}).get("test_accuracy")
    found = "" if accuracy is None else f", test accuracy {100 * accuracy:.1f}"
    return f"ended after {result.get('seconds', 0) / 60:.1f} min{found}"
