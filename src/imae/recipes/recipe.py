"""A recipe: cells to train, the results in their run folders, and the recipes by name."""

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from imae._registry import Catalog, Entry, Imported
from imae.errors import ArgumentError, DataError
from imae.records.measures import HELD_OUT, find_column
from imae.report.hints import Summary, summarise
from imae.report.read import RunRecord, flatten, is_machine_setting, read_run
from imae.train import Config, build_config
from imae.train.config import TWO_CLASS_CLIP

Settings: TypeAlias = Mapping[str, Any]
_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"


@dataclass(frozen=True)
class Variant:
    """One of several settings that a cell tries.

    Args:
        label: Short text for folders and tables, such as ``lr=0.1``; empty for the only one.
        settings: Override the settings of the cell.
    """

    label: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One entry of a table, trained under every seed.

    Args:
        name: Text for ``--only`` and for the folders.
        columns: What the table shows for it, by heading.
        settings: Nested settings of a run, without its seed and folder.
        variants: Settings to choose from on the held-out given labels.
    """

    name: str
    columns: Mapping[str, str]
    settings: Settings
    variants: tuple[Variant, ...] = (Variant(),)


@dataclass(frozen=True)
class Recipe:
    """A table or figure that can be reproduced.

    Args:
        name: Key on the command line.
        cells: The cells of a budget.
        measures: What the table shows for each: names of columns of ``imae.records.measures``.
        notes: What a reader of the table must know.
        budget_notes: Notes that hold for only one budget, by its name.
        must_set: Settings that only the user can give, such as a path, by budget.
        finish: Makes further files in the folder from the outcomes; returns their paths.
        title: One line for listings, which the catalog fills in.
    """

    name: str
    cells: Callable[[str], tuple[Cell, ...]]
    measures: tuple[str, ...] = ("best", "final")
    notes: str = ""
    budget_notes: Mapping[str, str] = field(default_factory=dict)
    must_set: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finish: Callable[[Path, Sequence["Outcome"]], list[Path]] | None = None
    title: str = ""


def merged(*layers: Settings) -> dict[str, Any]:
    """Nested settings merged; later ones override earlier ones.

    Examples:
        >>> merged({"train": {"epochs": 1, "clip": 5}}, {"train": {"epochs": 2}})
        {'train': {'epochs': 2, 'clip': 5}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            is_section = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if is_section else value
    return result


_FILLED_IN = (
    "train.batch_size",
    "train.epochs",
    "schedule.warm_up",
    "model.name",
    "data.trusted",
    "method.arguments.num_classes",
)
_CLIPPED = ("train.clip", str(TWO_CLASS_CLIP))
_OPEN = (None, "null")


def cell_config(
    cell: Cell, variant: Variant, changed: Settings, *, seed: int | None = None
) -> Config:
    """The configuration that is trained for a cell and a variant.

    Args:
        cell: The cell.
        variant: One of its variants.
        changed: Settings that override those of both.
        seed: Seed of the run; that of the settings if None.

    Raises:
        ArgumentError: If a setting cannot be used.
    """
    # The numbers of one table must not depend on which precision is fast on a machine.
    content = merged(
        {"machine": {"precision": "32-true"}}, cell.settings, variant.settings, changed
    )
    return build_config(content if seed is None else {**content, "seed": seed})


def other_setting(config: Config, stored: Mapping[str, Any]) -> str | None:
    """The first setting in which a stored run differs from a configuration, in words, or None.

    Args:
        config: What the run should have been.
        stored: Settings that the run stored, with all defaults filled in.

    Raises:
        ArgumentError: If the stored settings cannot be used at all.
    """
    # Read as a configuration, so that a setting newer than the run has its default.
    found, wanted = _leaves(build_config(stored)), _leaves(config)
    for key in dict.fromkeys((*wanted, *found)):
        is_filled_in = key in _FILLED_IN or (key, found.get(key)) == _CLIPPED
        is_filled_in = is_filled_in and wanted.get(key) in _OPEN
        if wanted.get(key) != found.get(key) and not is_filled_in and not is_machine_setting(key):
            return f"{key}={found.get(key)}, not {wanted.get(key)}"
    return None


def _leaves(config: Config) -> dict[str, str]:
    flat = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if value != "{}"}  # a section without keys


@dataclass(frozen=True)
class Outcome:
    """A cell and what was measured for it.

    Args:
        cell: The cell.
        paper: What the paper prints, in percent, by measure.
        variant: The settings that did best on the held-out given labels; None if nothing ran.
        runs: Finished runs with these settings, one for each seed.
        tried: Final accuracy on the held-out given labels, by the label of each variant tried.
        unfinished: Runs of this cell that have begun but not ended.
        failed: Runs of this cell that ended with an error.
        is_settled: Whether all variants were tried with the same seeds.
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
    """Folder of the run of a cell with a variant and a seed."""
    middle = f"-{variant.label}" if variant.label else ""
    return folder / "runs" / f"{cell.name}{middle}-seed{seed}"


_OTHER_NETWORKS = ("tiny", "features")  # budgets that replace the network of the paper


def outcomes(recipe: Recipe, budget: str, folder: Path, changed: Settings) -> tuple[Outcome, ...]:
    """The outcome of every cell, run or not, from the run folders below a folder.

    Args:
        recipe: The recipe.
        budget: Name of its budget; the paper's numbers are shown only beside its own networks.
        folder: Folder of the recipe.
        changed: Settings that override those of every cell.

    Raises:
        DataError: If a run folder cannot be read, or holds a run with other settings, whose
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
        _check_complete(record)
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


def _check_complete(record: RunRecord) -> None:
    """Raises if a run has a result but its history ends before it."""
    if record.result is None:
        return
    end = (record.result.get("final") or {}).get("step")
    last = record.history[-1]["step"] if record.history else None
    if end is None or end != last:
        raise DataError(
            f"{record.folder}: ended at step {end} according to result.json, and at {last} "
            "according to history.jsonl; a file is damaged: restore it, or move the folder away"
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


def _entry(name: str, place: str, title: str, reference: str = "") -> Entry[Recipe]:
    def build() -> Recipe:
        found: Any = Imported(f"imae.recipes.tables.{place}").find()
        recipe: Recipe = replace(found, title=title)
        return recipe

    return Entry(name, build, title, reference)


RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    (
        _entry(
            "weights",
            "paper_figures:WEIGHTS",
            "weight curves, variances, gradients, IMAE for T = 16 to 0, the loss by integral",
            _PAPER,
        ),
        _entry(
            "cifar10",
            "cifar:CIFAR10_RECIPE",
            "CIFAR-10, ResNet-20 and ResNet-56, noise 0, 40 and 80%: best, final, subsets, hybrid",
            _PAPER,
        ),
        _entry(
            "cifar100_symmetric",
            "cifar:CIFAR100_SYMMETRIC",
            "CIFAR-100, ResNet-44, clean and 20, 40, 60% symmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "cifar100_asymmetric",
            "cifar:CIFAR100_ASYMMETRIC",
            "CIFAR-100, ResNet-44, 20, 30, 40% asymmetric noise: all methods of the table",
            _PAPER,
        ),
        _entry(
            "clothing1m",
            "photos:CLOTHING1M",
            "Clothing1M, ResNet-50 from ImageNet weights: all methods of the table",
            _PAPER,
        ),
        _entry(
            "clothing_photos",
            "photos:CLOTHING_PHOTOS",
            "a folder of clothing photos at 40% symmetric noise, frozen features: every method",
        ),
        _entry(
            "mars",
            "photos:MARS",
            "MARS, GoogLeNet V2: retrieval of people in video, CCE, MAE, GCE and IMAE",
            _PAPER,
        ),
        _entry(
            "t_ablation",
            "imae_settings:T_ABLATION",
            "CIFAR-10, ResNet-20, clean and 40%: each T, and T chosen on validation data",
            _PAPER,
        ),
        _entry(
            "optimisers",
            "cifar:OPTIMISERS",
            "CIFAR-10 at 40% noise, ResNet-56, six optimiser settings: CCE, MAE, GCE, IMAE",
            _PAPER,
        ),
        _entry(
            "abnormal_examples",
            "paper_figures:ABNORMAL_EXAMPLES",
            "a picture of abnormal training examples, found by the program itself",
            _PAPER,
        ),
        _entry(
            "cifar_n",
            "cifar:CIFAR_N",
            "CIFAR-10N and CIFAR-100N: human labels, every method",
            "labels: Wei et al., Learning with noisy labels revisited, ICLR 2022",
        ),
        _entry(
            "cnn8",
            "cifar:CNN8",
            "CIFAR-10, the 8-layer CNN protocol of the robust-loss literature",
            "protocol: Ma et al., Normalized loss functions, ICML 2020",
        ),
        _entry(
            "stability",
            "imae_settings:STABILITY",
            "CIFAR-10 at 40% noise, ResNet-20: what stabilises IMAE",
        ),
        _entry(
            "study",
            "imae_settings:STUDY",
            "T, cap and scale of IMAE with capped confidence, beside other losses",
        ),
        _entry(
            "unseen_classes",
            "photos:UNSEEN_CLASSES",
            "CIFAR-100: train on 50 classes at 40% noise, retrieve among the 50 others",
        ),
    ),
)


def published(recipe: str, cell: str) -> Mapping[str, float]:
    """What the paper prints for a cell, by measure; empty where it prints nothing.

    ``from X`` is a number that the paper quotes from the publication of X.

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
