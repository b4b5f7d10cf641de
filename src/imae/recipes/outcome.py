"""Results of the cells of a recipe, read from run folders, and the paper's numbers."""

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from imae.errors import ArgumentError, DataError
from imae.recipes.recipe import Cell, Recipe, Settings, Variant, cell_config, other_setting
from imae.records.measures import HELD_OUT, find_column
from imae.report.hints import Summary, summarise
from imae.report.read import RunRecord, read_run


def published(recipe: str, cell: str) -> Mapping[str, float]:
    """What the paper prints for a cell, by measure; empty where it prints nothing.

    ``from X`` is a number that the paper takes over from the publication of X.

    Examples:
        >>> published("cifar10", "resnet20-40-imae")["final"]
        84.0
    """
    numbers: Mapping[str, float] = _content().get(recipe, {}).get("cells", {}).get(cell, {})
    return numbers


def published_table(recipe: str) -> str | None:
    """The caption of the paper's table, in short, or None if the recipe is not the paper's.

    Examples:
        >>> published_table("optimisers")[:40]
        'The results of algorithms using differen'
    """
    caption: str | None = _content().get(recipe, {}).get("table")
    return caption


def published_cells(recipe: str) -> tuple[str, ...]:
    """Names of the cells that the paper has numbers for."""
    return tuple(_content().get(recipe, {}).get("cells", {}))


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    text = (resources.files("imae.recipes") / "paper.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@dataclass(frozen=True)
class Outcome:
    """A cell and what was measured for it.

    Args:
        cell: The cell.
        paper: What the paper prints, in percent, by measure.
        variant: The settings that did best on the held-out given labels; None if nothing ran.
        runs: Finished runs under these settings, one for each seed.
        tried: Final accuracy on the held-out given labels, by the label of each variant tried.
        unfinished: Runs of this cell that have begun and not ended.
        failed: Runs of this cell that ended by an error.
        is_settled: Whether all variants were tried under the same seeds.
    """

    cell: Cell
    paper: Mapping[str, float]
    variant: Variant | None
    runs: tuple[RunRecord, ...]
    tried: Mapping[str, Summary | None]
    unfinished: int
    failed: int
    is_settled: bool

    def measure(self, name: str) -> Summary | None:
        """A measure over the seeds, as a fraction; None where it is not known."""
        column = find_column(name)
        return summarise(run.value(column) for run in self.runs)

    @property
    def seconds(self) -> Summary | None:
        """Wall time of a run."""
        return summarise((run.result or {}).get("seconds") for run in self.runs)


def run_folder(folder: Path, cell: Cell, variant: Variant, seed: int) -> Path:
    """Folder of the run of a cell under a variant and a seed."""
    middle = f"-{variant.label}" if variant.label else ""
    return folder / "runs" / f"{cell.name}{middle}-seed{seed}"


_OTHER_NETWORKS = ("tiny", "features")  # budgets that replace the network of the paper


def outcomes(recipe: Recipe, budget: str, folder: Path, changed: Settings) -> tuple[Outcome, ...]:
    """What the run folders below a folder say of every cell, run or not.

    Args:
        recipe: The recipe.
        budget: Name of its budget; the paper's numbers are shown only beside its own networks.
        folder: Folder of the recipe.
        changed: What was laid over the settings of every cell.

    Raises:
        DataError: If a run folder cannot be read, or holds a run under other settings, whose
            numbers do not belong in the table.
    """
    found = []
    for cell in recipe.cells(budget):
        paper = {} if budget in _OTHER_NETWORKS else published(recipe.name, cell.name)
        found.append(_outcome(cell, folder, changed, paper))
    return tuple(found)


def _outcome(cell: Cell, folder: Path, changed: Settings, paper: Mapping[str, float]) -> Outcome:
    finished: dict[str, list[RunRecord]] = {}
    unfinished = failed = 0
    for variant in cell.variants:
        records = list(_records(folder, cell, variant, changed))
        ended = [record for record in records if record.result is not None]
        failed += sum(record.status == "failed" for record in records)
        unfinished += sum(record.status in ("running", "stopped") for record in records)
        if ended:
            finished[variant.label] = ended
    tried = {
        label: summarise(run.measure("final", HELD_OUT.key) for run in runs)
        for label, runs in finished.items()
    }
    chosen = _chosen(cell, tried)
    return Outcome(
        cell=cell,
        paper=paper,
        variant=chosen,
        runs=() if chosen is None else tuple(finished[chosen.label]),
        tried=tried,
        unfinished=unfinished,
        failed=failed,
        is_settled=len({_seeds(finished.get(each.label, [])) for each in cell.variants}) == 1,
    )


def _records(folder: Path, cell: Cell, variant: Variant, changed: Settings) -> Iterator[RunRecord]:
    for seed, path in _runs(folder, cell, variant):
        record = read_run(path)
        _refuse_half_a_record(record)
        wanted = cell_config(cell, variant, changed, seed=seed)
        try:
            other = other_setting(wanted, record.config)
        except ArgumentError as error:
            raise DataError(f"{path}: its settings cannot be used: {error}") from error
        if other is not None:
            raise DataError(
                f"{path}: was run with {other}, and does not belong to this recipe; "
                "move it away, or choose another --out"
            )
        yield record


def _refuse_half_a_record(record: RunRecord) -> None:
    """Raises if a run is said to have ended and its history does not get there."""
    if record.result is None:
        return
    end = (record.result.get("final") or {}).get("step")
    last = record.history[-1]["step"] if record.history else None
    if end is None or end != last:
        raise DataError(
            f"{record.folder}: ended at step {end} by its result.json, and at {last} by its "
            "history.jsonl; a file is damaged: restore it, or move the folder away"
        )


def _seeds(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    return tuple(run.seed for run in runs)


def _runs(folder: Path, cell: Cell, variant: Variant) -> Iterator[tuple[int, Path]]:
    prefix = run_folder(folder, cell, variant, 0).name[:-1]
    runs = [path for path in (folder / "runs").glob(f"{glob.escape(prefix)}*") if path.is_dir()]
    found = {
        int(path.name.removeprefix(prefix)): path
        for path in runs
        if path.name.removeprefix(prefix).isdecimal()
    }
    for seed, path in sorted(found.items()):
        if (path / "config.json").exists():
            yield seed, path
        elif (path / "result.json").exists():
            raise DataError(
                f"{path}: has a result.json and no config.json; restore it, or move the folder away"
            )


def _chosen(cell: Cell, tried: Mapping[str, Summary | None]) -> Variant | None:
    """The variant with the best mean on the held-out labels; the first of equals."""
    known = [variant for variant in cell.variants if variant.label in tried]
    if not known:
        return None

    def held_out(variant: Variant) -> float:
        summary = tried[variant.label]
        return -1.0 if summary is None else summary.mean

    return max(known, key=held_out)
