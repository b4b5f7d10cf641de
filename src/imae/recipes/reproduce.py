"""A recipe run from beginning to end: grid, tables, figures."""

import contextlib
import difflib
import fnmatch
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imae.data import load
from imae.data.sources.catalog import SETS
from imae.data.sources.download import data_root
from imae.errors import ArgumentError, DataError, check_choice, import_extra
from imae.recipes.grid import (
    build_jobs,
    check_claim,
    claim,
    extract_features,
    run_jobs,
    waiting_jobs,
)
from imae.recipes.output import as_csv, as_markdown, save_figures
from imae.recipes.protocols import BUDGETS, SEEDS
from imae.recipes.recipe import RECIPES, Cell, Outcome, Recipe, Settings, outcomes
from imae.recipes.runner import Job
from imae.records.files import read_file, write_file
from imae.report.read import flatten, is_machine_setting

_CLAIM = "reproduce.json"
_OTHERS = "another recipe, budget or settings"


@dataclass(frozen=True)
class Reproduction:
    """The result of a recipe.

    Args:
        recipe: The recipe.
        budget: Name of its budget.
        changed: Settings that override those of every cell, except for the machine's.
        outcomes: What was measured for every cell.
        files: The tables and figures written.
    """

    recipe: Recipe
    budget: str
    changed: Settings
    outcomes: tuple[Outcome, ...]
    files: tuple[Path, ...]


def reproduce(
    name: str,
    *,
    budget: str = "short",
    out: str | os.PathLike[str],
    only: Sequence[str] = (),
    seeds: int | None = None,
    is_resumed: bool = False,
    workers: int = 1,
    ray_address: str | None = None,
    settings: Settings | None = None,
    show: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Runs a recipe and writes its tables and figures.

    Args:
        name: A name of ``imae.recipes.RECIPES``.
        budget: A name of ``imae.recipes.BUDGETS``.
        out: Folder for the runs, the tables and the figures.
        only: Patterns of cells to train; all cells if empty.
        seeds: Runs of each cell; 3 for the budget ``features`` and 1 for the others by default.
        is_resumed: Whether the folder may hold runs already; they are resumed.
        workers: Runs at the same time.
        ray_address: A Ray cluster to run on.
        settings: Override the settings of every cell, such as the folder of the data.
        show: Whether to show the progress of a run.
        say: Called with a line for every run that begins or ends.

    Returns:
        The outcome of every cell, and the files written.

    Raises:
        ArgumentError: If an option cannot be used, or the folder holds other runs.
        Stopped: If Ctrl-C or SIGTERM ended it; with ``is_resumed`` the same call resumes.
        ImaeError: If runs failed; the tables hold the others.

    Examples:
        >>> import tempfile
        >>> result = reproduce("weights", out=tempfile.mkdtemp())
        >>> sorted(path.name for path in result.files)[:2]
        ['imae_values.png', 'imae_values.svg']
    """
    out = Path(out)
    changed = settings or {}
    recipe = RECIPES.build(name)
    jobs = plan_jobs(
        name, budget=budget, out=out, only=only, seeds=seeds, workers=workers, settings=changed
    )
    if jobs and not is_resumed and any(out.glob("runs/*/config.json")):
        raise ArgumentError(
            f"{out}: holds runs already; add --resume to continue, or choose another --out"
        )
    import_extra("matplotlib", extra="plot")  # before the first run, not after the last
    claim(out / _CLAIM, _content(recipe, budget, changed), holds=_OTHERS)
    if ray_address is None:  # the machines of a cluster may hold what this one does not
        _check_data(waiting_jobs(jobs))
        if workers > 1:
            extract_features(waiting_jobs(jobs), say)
    try:
        run_jobs(jobs, workers=workers, ray_address=ray_address, show=show, say=say)
    except BaseException:
        with contextlib.suppress(Exception):  # the error to report is what ended the runs
            rebuild(out)
        raise
    return rebuild(out)


def plan_jobs(
    name: str,
    *,
    budget: str = "short",
    out: str | os.PathLike[str],
    only: Sequence[str] = (),
    seeds: int | None = None,
    workers: int = 1,
    settings: Settings | None = None,
) -> tuple[Job, ...]:
    """The runs of ``reproduce`` with these arguments, finished or not.

    Raises:
        ArgumentError: If an option cannot be used, or the folder is for other runs.
        DataError: If the folder holds a run that does not belong there.

    Examples:
        >>> jobs = plan_jobs("stability", only=["printed"], out="stability")
        >>> [job.name for job in jobs], jobs[0].config.train.epochs
        (['printed-lr=0.1-seed123', 'printed-lr=0.02-seed123'], 20)
    """
    recipe = RECIPES.build(name)
    check_choice("budget", budget, tuple(BUDGETS))
    changed = settings or {}
    _check_required(recipe, budget, changed)
    cells = chosen_cells(recipe.cells(budget), only)
    required = recipe.must_set.get(budget, ())
    check_overrides(recipe.cells(budget), changed, required=required)
    seeds = SEEDS[budget] if seeds is None else seeds
    jobs = build_jobs(cells, seeds=seeds, folder=Path(out), settings=changed, workers=workers)
    check_claim(Path(out) / _CLAIM, _content(recipe, budget, changed), holds=_OTHERS)
    outcomes(recipe, budget, Path(out), changed)  # refuses runs that do not belong there
    return jobs


def rebuild(out: str | os.PathLike[str], name: str | None = None) -> Reproduction:
    """Rebuilds the tables and figures of a folder from its run folders only.

    Args:
        out: Folder of a recipe.
        name: The recipe that is expected there, if any.

    Raises:
        ArgumentError: If the folder holds another recipe.
        DataError: If the folder holds no recipe, or a record cannot be read.
    """
    out = Path(out)
    recipe, budget, changed = _claimed(out)
    if name not in (None, recipe.name):
        raise ArgumentError(f"{out}: holds the recipe {recipe.name}, not {name}")
    found = outcomes(recipe, budget, out, changed)
    written = []
    if (out / "table.csv").exists() and not any(out.glob("runs/*")):
        raise DataError(f"{out}: holds a table and none of its runs; nothing was written")
    if found:
        for name, text in (
            ("table.md", as_markdown(recipe, budget, found, changed=changed)),
            ("table.csv", as_csv(recipe, found)),
        ):
            write_file(out / name, text)
            written.append(out / name)
        written += save_figures(found, out / "figures")
    if recipe.finish is not None:
        written += recipe.finish(out, found)
    return Reproduction(recipe, budget, changed, found, tuple(written))


def chosen_cells(cells: Sequence[Cell], only: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose name matches one of the patterns, such as ``resnet20-40-*``; all if none.

    Raises:
        ArgumentError: If a pattern matches no cell.
    """
    for pattern in only:
        if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in cells):
            names = [cell.name for cell in cells]
            near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.3) or names[:5]
            known = f"there are {len(names)}, such as {', '.join(near)}; --list shows all"
            known = known if names else "this recipe trains nothing"
            raise ArgumentError(f"--only {pattern}: no such cell; {known}")
    if not only:
        return tuple(cells)
    return tuple(
        cell for cell in cells if any(fnmatch.fnmatchcase(cell.name, each) for each in only)
    )


# These define a recipe, even where all its cells share them.
_FIXED = ("data.name", "method.name", "model.name", "noise", "out")


def check_overrides(
    cells: Sequence[Cell], settings: Settings, *, required: Sequence[str] = ()
) -> None:
    """Refuses settings that would make the rows of a table differ from what their names say.

    Args:
        cells: All cells of the recipe.
        settings: Settings of the user that would override those of every cell.
        required: Settings that the recipe leaves to the user.

    Raises:
        ArgumentError: If the cells or their variants differ in a setting, it is a parameter of
            their method, or it defines the recipe.
    """
    by_cell = [flatten(cell.settings) for cell in cells]
    tried = {key for cell in cells for each in cell.variants for key in flatten(each.settings)}
    for key in (key for key in flatten(settings) if key not in required):
        if key in tried:
            raise ArgumentError(f"{key}: the recipe tries several values of it; leave it out")
        is_of_a_method = key.startswith("method.") and any(key in each for each in by_cell)
        if key in _FIXED or is_of_a_method or len({each.get(key) for each in by_cell}) > 1:
            raise ArgumentError(f"{key}: belongs to the recipe; use imae compare for another value")


def _check_required(recipe: Recipe, budget: str, changed: Settings) -> None:
    given = flatten(changed)
    for key in recipe.must_set.get(budget, ()):
        if key not in given:
            raise ArgumentError(
                f"{recipe.name}: the budget {budget} needs --set {key}=PATH (docs/reproduce.md)"
            )


def _content(recipe: Recipe, budget: str, changed: Settings) -> dict[str, Any]:
    """What is stored in a folder to record which runs it is for."""
    return {"recipe": recipe.name, "budget": budget, "settings": _without_machine(changed)}


def _check_data(jobs: Sequence[Job]) -> None:
    """Raises before the first run if a data set is missing."""
    for name, root in dict.fromkeys((job.config.data.name, job.config.data.root) for job in jobs):
        for item in SETS:
            if item.name == name and item.locate(data_root(root)) is None:
                load(name, root=root)


def _without_machine(changed: Settings, prefix: str = "") -> dict[str, Any]:
    """The settings that the numbers depend on; the machine and its speed may change."""
    kept: dict[str, Any] = {}
    for key, value in changed.items():
        if isinstance(value, Mapping):
            inner = _without_machine(value, f"{prefix}{key}.")
            kept.update({key: inner} if inner else {})
        elif not is_machine_setting(f"{prefix}{key}"):
            kept[key] = value
    return kept


def _claimed(out: Path) -> tuple[Recipe, str, Settings]:
    path = out / _CLAIM
    try:
        content = json.loads(read_file(path))
        check_choice("budget", content["budget"], tuple(BUDGETS))
        return RECIPES.build(content["recipe"]), content["budget"], dict(content["settings"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read; no recipe was run here ({error})") from error
