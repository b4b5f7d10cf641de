"""A recipe run from beginning to end: grid, tables, figures."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imae._checks import check_choice
from imae._files import whole_file
from imae.errors import ArgumentError, DataError, ImaeError
from imae.recipes.budgets import BUDGETS
from imae.recipes.catalog import RECIPES
from imae.recipes.grid import build_jobs, chosen_cells, run_jobs
from imae.recipes.outcome import Outcome, outcomes
from imae.recipes.recipe import Recipe, Settings
from imae.recipes.reproduction import as_csv, as_markdown
from imae.report import save_figures

_CLAIM = "reproduce.json"


@dataclass(frozen=True)
class Reproduction:
    """What a recipe came to.

    Args:
        recipe: The recipe.
        outcomes: What was measured for every cell.
        files: The tables and figures written.
    """

    recipe: Recipe
    outcomes: tuple[Outcome, ...]
    files: tuple[Path, ...]


def reproduce(
    name: str,
    *,
    budget: str = "short",
    out: Path,
    only: Sequence[str] = (),
    seeds: int = 1,
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
        only: Patterns of cells to train; all for none.
        seeds: Runs of each cell.
        is_resumed: Whether the folder may hold runs already; they are gone on with.
        workers: Runs at once.
        ray_address: A Ray cluster to run on.
        settings: Laid over the settings of every cell, such as the folder of the data.
        show: Whether to show the progress of a run.
        say: Told of every run that begins or ends.

    Returns:
        The outcome of every cell, and the files written.

    Raises:
        ArgumentError: If an option cannot be used, or the folder holds other runs.
        Stopped: If Ctrl-C or SIGTERM ended it; with ``is_resumed`` the same call goes on.
        ImaeError: If runs failed; the tables hold the others.

    Examples:
        >>> import tempfile
        >>> result = reproduce("weights", out=Path(tempfile.mkdtemp()))
        >>> sorted(path.name for path in result.files)[:2]
        ['imae_weights.png', 'imae_weights.svg']
    """
    recipe = RECIPES.build(name)
    check_choice("budget", budget, tuple(BUDGETS))
    cells = chosen_cells(recipe.cells(budget), only)
    jobs = build_jobs(cells, seeds=seeds, folder=out, settings=settings or {}, workers=workers)
    if (out / "runs").exists() and jobs and not is_resumed:
        raise ArgumentError(
            f"{out}: holds runs already; go on with --resume, or choose another --out"
        )
    _claim(out, recipe, budget, settings or {})
    try:
        run_jobs(jobs, workers=workers, ray_address=ray_address, show=show, say=say)
    except BaseException:
        with contextlib.suppress(ImaeError):  # what ended the runs is what must be told
            rebuild(out)
        raise
    return rebuild(out)


def rebuild(out: Path, name: str | None = None) -> Reproduction:
    """Writes the tables and figures of a folder again, from its run folders alone.

    Args:
        out: Folder of a recipe.
        name: The recipe that is expected there, if any.

    Raises:
        ArgumentError: If the folder holds another recipe.
        DataError: If the folder holds no recipe, or a record cannot be read.
    """
    recipe, budget, changed = _claimed(out)
    if name not in (None, recipe.name):
        raise ArgumentError(f"{out}: holds the recipe {recipe.name}, not {name}")
    found = outcomes(recipe, recipe.cells(budget), out)
    written = []
    for name, text in (
        ("table.md", as_markdown(recipe, budget, found, changed=changed)),
        ("table.csv", as_csv(recipe, found)),
    ):
        with whole_file(out / name) as file:
            file.write(text.encode())
        written.append(out / name)
    written += _figures(found, out)
    if recipe.finish is not None:
        written += recipe.finish(out, found)
    return Reproduction(recipe, found, tuple(written))


def _figures(found: Sequence[Outcome], out: Path) -> list[Path]:
    runs = [run for outcome in found for run in outcome.runs]
    return save_figures(runs, out / "figures") if runs else []


def _claim(out: Path, recipe: Recipe, budget: str, settings: Settings) -> None:
    path = out / _CLAIM
    content: dict[str, Any] = {"recipe": recipe.name, "budget": budget, "settings": settings}
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if path.exists() and path.read_text() != text:
        raise ArgumentError(
            f"{out}: holds another recipe, budget or settings; choose another --out"
        )
    with whole_file(path) as file:
        file.write(text.encode())


def _claimed(out: Path) -> tuple[Recipe, str, Settings]:
    path = out / _CLAIM
    try:
        content = json.loads(path.read_text())
        return RECIPES.build(content["recipe"]), content["budget"], content["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read; no recipe was run here ({error})") from error
