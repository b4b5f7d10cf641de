"""One recipe, several losses, several seeds."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from imae.errors import ArgumentError, check_integer
from imae.methods.catalog import METHODS
from imae.recipes.grid import claim, run_jobs, with_share_of_threads
from imae.recipes.runner import Job
from imae.train import Config, Run, Stopped, build_config, with_settings


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
) -> list[Run]:
    """Trains every loss under every seed with the same settings, and gives the runs.

    Each run has a folder of its own below ``out``. What has finished is kept and what was
    interrupted resumes, so the same call after a crash only does what is missing.

    Args:
        settings: Nested settings of a run, without its loss, seed and folder being fixed; the
            seed is that of the first round, and the noise is drawn again under every seed.
        losses: Names with parameters, such as ``imae:T=16``.
        seeds: Number of rounds, at least 1.
        out: Folder of the comparison.
        jobs: Runs at once on this machine; each gets its share of the processor.
        show: Whether to show progress.

    Returns:
        The runs, round after round, in the order of ``losses``.

    Raises:
        ArgumentError: If a setting cannot be used, or ``out`` holds a comparison under others.
        Stopped: If Ctrl-C or SIGTERM ended it; the same call resumes.
        ImaeError: If runs failed; the others have been done.
    """
    check_integer("seeds", seeds, low=1)
    folder = Path(out)
    cells = _cells(settings, losses, seeds, folder)
    configs = [with_share_of_threads(config, jobs) for config in cells]
    claim(folder / "compare.json", settings, holds="a comparison under other settings")
    try:
        run_jobs(
            [Job(Path(str(config.out)).name, config) for config in configs],
            workers=jobs,
            show=show,
            say=partial(print, flush=True) if show else lambda _: None,
        )
    except Stopped as stopped:  # the same command, without --resume
        raise Stopped("stopped; the same command resumes", stopped.code) from None
    return [Run(str(config.out), model=config.model.name) for config in configs]


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
