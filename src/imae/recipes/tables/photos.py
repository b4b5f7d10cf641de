"""Photos and retrieval: clothes, people in video, and classes that were not trained on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from imae.data.sources.photo_sets import CLASSES
from imae.errors import DataError
from imae.methods.catalog import METHODS
from imae.recipes.protocols import (
    CIFAR100,
    FEATURES,
    SHORT_PHOTOS,
    SHORT_RATES,
    budgeted,
    method,
    short,
    title,
)
from imae.recipes.recipe import Cell, Outcome, Recipe, Settings, merged
from imae.recipes.tables.paper_figures import draw_abnormal
from imae.records.files import read_file, write_file
from imae.records.measures import TEST
from imae.report.formats import UNKNOWN, summary_text
from imae.report.hints import Summary, summarise

_CLOTHING_LOSSES = (
    "cce",
    "mae",
    "imae",
    "imae_stable",
    "imae_capped",
    "imae_authors",
    "bootstrap_hard",
    "forward",
    "d2l",
    "gce",
    "sl",
    "s_adaptation",
    "masking",
    "joint_optim",
)

_CLOTHING_RATE = 0.385  # as its authors estimate it

_CLOTHING_SETTINGS: Settings = {
    "seed": 123,
    "data": {"name": "clothing1m", "hold_out": 0.0},
    "model": {"name": "resnet50"},
    "train": {
        "steps": 30_000,
        "batch_size": 84,
        "evaluate_every": 1000,
        "checkpoint_every": 1000,
        "measure_train": False,
    },
    "optimizer": {"name": "momentum", "lr": 0.01, "momentum": 0.9, "weight_decay": 2e-5},
    "schedule": {"name": "steps", "at": (10_000, 15_000), "divide_by": 10.0},
    "machine": {"channels_last": True},
}

# Our own groups, from the names of the classes; not the structure of the authors of Masking.
_ALIKE = (
    ("T-Shirt", "Shirt", "Chiffon", "Dress", "Vest", "Underwear"),
    ("Knitwear", "Sweater", "Hoodie", "Shawl"),
    ("Windbreaker", "Jacket", "Down Coat", "Suit"),
)
_STRUCTURE: Settings = {
    "structure": "block",
    "groups": tuple(tuple(CLASSES.index(name) for name in group) for group in _ALIKE),
}


def clothing_cells(budget: str) -> tuple[Cell, ...]:
    """Each method."""
    return budgeted(
        budget,
        [
            Cell(
                loss,
                {"Method": title(loss)},
                merged(
                    _CLOTHING_SETTINGS,
                    method(loss, rate=_CLOTHING_RATE),
                    {"method": {"arguments": _STRUCTURE}} if loss == "masking" else {},
                ),
            )
            for loss in _CLOTHING_LOSSES
        ],
        short=SHORT_PHOTOS,
    )


CLOTHING1M = Recipe(
    name="clothing1m",
    cells=clothing_cells,
    notes=(
        "Masking may mistake classes only within three groups that were made for this recipe: "
        f"{'; '.join(', '.join(group) for group in _ALIKE)}. `from X` is a number that "
        "the paper quotes from X. The paper does not say whether its own numbers are best or "
        "final: they are shown beside the final ones. Nor does it print T for this set: it is 8 "
        "here."
    ),
    budget_notes={
        "short": (
            "Not ResNet-50, but a small network on frozen features of EfficientNet-Lite0, because "
            "two processor cores cannot train ResNet-50: the paper's numbers are for another "
            "network."
        ),
    },
    must_set={"paper": ("model.init",)},
)


_PHOTOS_RATE = 0.4
# About 3,000 photos: as many epochs as CCE needs to memorise the wrong labels.
_PHOTOS: Settings = merged(FEATURES, {"train": {"epochs": 40}})


def photo_cells(budget: str) -> tuple[Cell, ...]:
    """Every method."""
    settings = merged(
        _CLOTHING_SETTINGS,
        {"data": {"name": "clothing_photos"}, "noise": f"symmetric:{_PHOTOS_RATE}"},
    )
    return budgeted(
        budget,
        [
            Cell(loss, {"Method": title(loss)}, merged(settings, method(loss, rate=_PHOTOS_RATE)))
            for loss in METHODS.names()
        ],
        short=_PHOTOS,
        features=_PHOTOS,
    )


def write_chosen(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes the test accuracy at the epoch that held-out given labels choose."""
    lines = [
        "| Method | Seeds | Chosen by held-out given labels | At the end |",
        "|---|---:|---:|---:|",
    ]
    for outcome in (outcome for outcome in outcomes if outcome.runs):
        moments = [
            summarise(run.measure(moment, TEST.key) for run in outcome.runs)
            for moment in ("best", "final")
        ]
        shown = [summary_text(each, seeds=len(outcome.runs)) for each in moments]
        row = (outcome.cell.columns["Method"], str(len(outcome.runs)), *shown)
        lines.append(f"| {' | '.join(row)} |")
    if len(lines) == 2:
        return []
    path = folder / "chosen.md"
    write_file(path, "\n".join(lines) + "\n")
    return [path]


CLOTHING_PHOTOS = Recipe(
    name="clothing_photos",
    cells=photo_cells,
    measures=("best", "final", "held_out"),
    notes=(
        "Not in the paper: a folder of photos with one folder for each class, whose path the user "
        "gives, under 40% symmetric noise. Co-teaching, Trimmed and Forward with a known rate are "
        "given how many labels are wrong, and L2RW sees ten true labels of each class. "
        "`chosen.md` has the test accuracy at the epoch that held-out given labels choose."
    ),
    finish=write_chosen,
    must_set={
        "short": ("data.name",),
        "features": ("data.name",),
        "paper": ("data.name", "model.init"),
    },
)


_LOSSES = ("cce", "mae", "gce", "sl", "imae", "imae_stable", "imae_capped", "imae_authors")
_RATE = 0.4
_SHORT_ROWS = 5000
_STEPS_PER_EPOCH = 196  # 25,000 rows in batches of 128
RETRIEVAL = ("mAP", "CMC-1", "CMC-5")


def unseen_cells(budget: str) -> tuple[Cell, ...]:
    """Each loss."""
    settings = merged(
        CIFAR100,
        {
            "data": {"options": {"variant": "half"}},
            "noise": f"symmetric:{_RATE}",
            "train": {
                "steps": 150 * _STEPS_PER_EPOCH,
                "evaluate_every": _STEPS_PER_EPOCH,
                "checkpoint_every": _STEPS_PER_EPOCH,
            },
            "schedule": {"at": (80 * _STEPS_PER_EPOCH, 120 * _STEPS_PER_EPOCH)},
        },
    )
    return budgeted(
        budget,
        [
            Cell(
                loss,
                {"Loss": title(loss)},
                merged(settings, method(loss, rate=_RATE, num_classes=100)),
            )
            for loss in _LOSSES
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def write_retrieval(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes the table of retrieval, the paper's numbers beside the measured ones.

    Runs that were not measured yet are measured, and the result is saved in their folder. Runs
    without their weights, or whose data is not on this machine, are left out.
    """
    rows = []
    has_paper = any(_paper(outcome, name) for outcome in outcomes for name in RETRIEVAL)
    for outcome in outcomes:
        found = [each for run in outcome.runs if (each := _measured(Path(run.folder))) is not None]
        if found:
            rows.append(_row(outcome, found, has_paper=has_paper))
    if not rows:
        return []
    headings = [*outcomes[0].cell.columns, "Seeds"]
    for name in RETRIEVAL:
        headings += [name, "Paper", "Difference"] if has_paper else [name]
    lines = [headings, ["---"] * len(headings), *rows]
    path = folder / "retrieval.md"
    write_file(path, "".join(f"| {' | '.join(line)} |\n" for line in lines))
    return [path]


def _row(outcome: Outcome, found: Sequence[Mapping[str, float]], *, has_paper: bool) -> list[str]:
    row = [*outcome.cell.columns.values(), str(len(found))]
    for name in RETRIEVAL:
        summary = summarise(each.get(name) for each in found)
        row.append(_shown(summary))
        paper = _paper(outcome, name)
        if has_paper and (paper is None or summary is None):
            row += [UNKNOWN if paper is None else f"{paper:.1f}", UNKNOWN]
        elif paper is not None and summary is not None:
            row += [f"{paper:.1f}", f"{summary.mean - paper:+.1f}"]
    return row


def _paper(outcome: Outcome, name: str) -> float | None:
    return outcome.paper.get(f"paper's {name}")


def _shown(summary: Summary | None) -> str:
    if summary is None:
        return UNKNOWN
    spread = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
    return f"{summary.mean:.1f}{spread}"


def _measured(run: Path) -> dict[str, float] | None:
    """The measures of a run in percent, or None if they are not stored and cannot be measured."""
    from imae.train import Run, evaluate_retrieval
    from imae.train.measure import STORED, store_retrieval

    path = run / STORED
    if not path.exists():
        try:
            trained = Run(run)
            store_retrieval(trained, evaluate_retrieval(trained))
        except DataError:
            return None
    try:
        content = json.loads(read_file(path))
        measures = {"mAP": content["mean_average_precision"]}
        measures |= {f"CMC-{rank}": share for rank, share in content["cmc"].items()}
        return {name: 100 * float(share) for name, share in measures.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is damaged ({error}); delete it to measure again") from error


UNSEEN_CLASSES = Recipe(
    name="unseen_classes",
    cells=unseen_cells,
    notes=(
        "Not in the paper: its retrieval on MARS with data that is here. The accuracies are those "
        "of the 50 classes trained on; `retrieval.md` has mAP and CMC of the other 50, whose "
        "tracklets are five test images of a class seen by one of two cameras. SL has the "
        "parameters of 100 classes, IMAE T = 8."
    ),
    finish=write_retrieval,
)


_MARS_LOSSES = ("cce", "mae", "gce", "imae", "imae_stable", "imae_capped", "imae_authors")
_MARS_RATE = 0.4  # not known; above 0, so that IMAE has the T of noisy labels

_MARS_SETTINGS: Settings = {
    "seed": 123,
    "data": {"name": "mars", "hold_out": 0.0},
    "model": {"name": "bn_inception"},
    "train": {
        "steps": 50_000,
        "batch_size": 180,
        "evaluate_every": 10_000,
        "checkpoint_every": 1000,
        "measure_train": False,
    },
    "optimizer": {"name": "momentum", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
    "schedule": {"name": "steps", "every": 10_000, "divide_by": 2.0},
    "machine": {"channels_last": True},
}

# The data stays: a test makes a small tree of its layout.
_MARS_TINY: Settings = {
    "train": {"steps": 3, "batch_size": 4, "evaluate_every": 3, "checkpoint_every": 3},
    "machine": {"channels_last": False},
}


def mars_cells(budget: str) -> tuple[Cell, ...]:
    """Each loss."""
    tables = [
        Cell(loss, {"Loss": title(loss)}, merged(_MARS_SETTINGS, method(loss, rate=_MARS_RATE)))
        for loss in _MARS_LOSSES
    ]
    if budget == "tiny":
        return tuple(
            Cell(cell.name, cell.columns, merged(cell.settings, _MARS_TINY)) for cell in tables
        )
    return budgeted(budget, tables, short=SHORT_PHOTOS)


def write_mars(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """The table of retrieval, and the frames that the last of the networks disbelieves most."""
    trained = [outcome for outcome in outcomes if outcome.runs]
    return write_retrieval(folder, outcomes) + draw_abnormal(folder, trained[-1:])


MARS = Recipe(
    name="mars",
    cells=mars_cells,
    measures=("held_out",),
    notes=(
        "The people of the test part are not those trained on, so there is no accuracy on them: "
        "`retrieval.md` has mAP and CMC beside the paper's. Training draws single frames; a test "
        "tracklet is the average of the features of all its frames. The paper does not say from "
        "which weights it starts: `--set model.init=FILE` starts from published ones, and then "
        "pixels are blue, green, red from 0 to 255, as those expect. Nor does it print T: it is 8. "
        "`abnormal_examples.png` has the training frames that the last network disbelieves most."
    ),
    budget_notes={
        "short": (
            "Not GoogLeNet V2, but a small network on frozen features of EfficientNet-Lite0: the "
            "paper's numbers are of another network."
        ),
        "tiny": "Three steps of every cell, on MARS itself or a tree of its layout, not on digits.",
    },
    finish=write_mars,
)
