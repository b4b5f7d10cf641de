"""`imae compare`, `demo`, `reproduce` and `report`: several runs, one table, one page."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from imae._draws import DEFAULT_SEED
from imae.cli.app import (
    DROP,
    EPOCHS,
    FEATURES,
    ID_COLUMN,
    LABEL_COLUMN,
    LR,
    MODEL,
    NOISE,
    OVERWRITE,
    ROOT,
    STEPS,
    check_path_exists,
    data_flags,
    gather_settings,
    print_table,
    say_next,
)
from imae.errors import ArgumentError, ImaeError, check_choice, import_extra
from imae.records import RunFolder

if TYPE_CHECKING:
    from imae.recipes.runner import Job
    from imae.report import RunRecord
    from imae.train import Config


def compare(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    losses: str = typer.Option(
        "cce,mae,gce,imae_capped", help="Losses, separated by commas; `all` for every one."
    ),
    seeds: int = typer.Option(3, help="Number of seeds; each trains every loss once."),
    model: str | None = MODEL,
    noise: str | None = NOISE,
    seed: int | None = typer.Option(None, show_default=str(DEFAULT_SEED), help="The first seed."),
    epochs: int | None = EPOCHS,
    steps: int | None = STEPS,
    lr: float | None = LR,
    features: str | None = FEATURES,
    root: Path | None = ROOT,
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    config: Path | None = typer.Option(None, help="File of settings, .json or .toml."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`."
    ),
    jobs: int = typer.Option(1, help="Number of parallel runs on this machine."),
    out: Path = typer.Option(Path("compare"), help="Folder for the runs, the table and the page."),
) -> None:
    """Train several losses on DATA with one recipe, and compare them over several seeds.

    The same command resumes where it stopped, and repeats nothing.
    """
    check_path_exists(data)
    import_extra("pydantic", extra="train")
    from imae.recipes import split_losses, trainable_losses

    flags = {
        "data.name": data,
        "model.name": model,
        "noise": noise,
        "seed": seed,
        "train.epochs": epochs,
        "train.steps": steps,
        "optimizer.lr": lr,
        "data.features": features,
        "data.root": None if root is None else str(root),
        **data_flags(label_column, id_column, drop),
    }
    content = gather_settings(config, settings, flags)
    chosen = split_losses(losses)
    if losses.strip() == "all":
        chosen, left_out = trainable_losses(chosen, content)
        if left_out:
            names = ", ".join(left_out)
            reason = "as no true labels are known and data.trusted is not set"
            typer.echo(f"left out, {reason}: {names}", err=True)
    compare_and_report(content, chosen, seeds=seeds, jobs=jobs, out=out)


def compare_and_report(
    settings: Mapping[str, Any], losses: list[str], *, seeds: int, jobs: int, out: Path
) -> None:
    """Runs a comparison, prints its table and writes the table, the page and the figures.

    Where some runs fail, all of these are of the others, and the error is raised after them.
    """
    from imae.recipes import compare

    def report_others(folders: Sequence[Path]) -> None:
        with contextlib.suppress(ImaeError):  # the error to report is why the others failed
            _write_comparison(folders, out)

    runs = compare(
        settings, losses, seeds=seeds, out=out, jobs=jobs, show=True, at_failure=report_others
    )
    records = _write_comparison([run.path for run in runs], out)
    say_next("imae", "audit", _run_to_audit(records))


def _write_comparison(folders: Sequence[Path], out: Path) -> "Sequence[RunRecord]":
    """Writes the table, the page and the figures of runs, and prints the table."""
    from imae.audit.cards import run_pictures
    from imae.report import as_text, read_runs, save_figures, save_table, table, write_report

    records = read_runs(folders)
    compared = table(records)
    save_table(compared, out / "table.md")
    save_table(compared, out / "table.csv")
    page = write_report(records, out / "report.html", pictures=run_pictures)
    save_figures(records, out / "figures")
    typer.echo(as_text(compared, width=Console().width))
    typer.echo(f"wrote {page}; the runs, the table and the figures are in the same folder")
    return records


def _run_to_audit(records: "Sequence[RunRecord]") -> Path:
    """The run to audit: of the best methods, the one that predicts most held-out given labels."""
    from imae.report.comparison import group
    from imae.report.diagnosis import best_method, by_held_out

    recommended: list[RunRecord] = []
    for alike in group(records, lambda run: run.setting).values():
        methods = group(alike, lambda run: run.method)
        best = best_method(methods)
        recommended += alike if best is None else methods[best[0]]
    return by_held_out(recommended)[0].folder


# The library's defaults, the same for every loss, except for four things: the noise, no
# augmentation (so that cross entropy has time to memorise the wrong labels), the budget, and one
# thread a run, so that the numbers do not depend on how many processors there are.
_SETTINGS = {
    "data": {"name": "digits", "augment": False},
    "noise": "symmetric:0.4",
    "train": {"epochs": 20},
    "machine": {"threads": 1},
}
_LOSSES = ["cce", "mae", "gce", "imae_capped"]
_SEEDS = 3


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for the runs, the table and the page."),
) -> None:
    """Train four losses on handwritten digits of which 40% have a wrong label.

    Cross entropy memorises the wrong labels; see its final test accuracy.
    """
    import_extra("pydantic", extra="train")
    compare_and_report(_SETTINGS, _LOSSES, seeds=_SEEDS, jobs=os.cpu_count() or 1, out=out)


_BUDGET = "short"


def reproduce(
    name: str | None = typer.Argument(None, help="Recipe; --list shows all."),
    list_all: bool = typer.Option(False, "--list", help="List the recipes and their cells."),
    budget: str | None = typer.Option(
        None, show_default="short", help="tiny, short, features or paper."
    ),
    only: list[str] | None = typer.Option(
        None, metavar="CELL", help="Train only this cell, or those of a pattern; may be repeated."
    ),
    seeds: int | None = typer.Option(
        None,
        show_default="3 for the budget features, else 1",
        help="Runs of each cell, each with its own seed.",
    ),
    jobs: int = typer.Option(1, help="Number of parallel runs on this machine."),
    ray: str | None = typer.Option(
        None, metavar="ADDRESS", help="Run on a Ray cluster; `local` starts one here."
    ),
    resume: bool = typer.Option(False, help="Resume the runs in the folder."),
    rebuild: bool = typer.Option(
        False, "--rebuild", help="Train nothing: rebuild the tables from the run folders."
    ),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`, for every run."
    ),
    root: Path | None = typer.Option(None, help="Folder that holds the data sets."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show the runs, and train nothing."),
    out: Path | None = typer.Option(
        None,
        show_default="one in reproduce/",
        help="Folder for the runs, the tables and the figures.",
    ),
) -> None:
    """Run a table or figure of the paper, and show its numbers beside the measured ones.

    Every cell is a run of its own that can be interrupted and resumed; --only 'resnet20-40-*'
    trains those whose names begin so.
    """
    import_extra("pydantic", extra="train")
    from imae import recipes
    from imae.recipes.output import as_text
    from imae.train import with_settings

    check_choice("budget", budget or _BUDGET, tuple(recipes.BUDGETS))
    is_asked = any((only, settings, root, out, ray, resume, jobs > 1, seeds is not None, dry_run))
    if name is None and is_asked and not list_all and not rebuild:
        raise ArgumentError("give the name of a recipe; --list shows all")
    if list_all or (name is None and not rebuild):
        _list(name, budget)
        return
    if name is not None:
        recipes.RECIPES.find(name)
    folder = out or Path("reproduce") / f"{name}-{budget or _BUDGET}"
    if rebuild:
        others = (only, resume, jobs > 1, seeds is not None, ray, settings, root, budget, dry_run)
        if any(others) or not out:
            raise ArgumentError("--rebuild trains nothing: give --out, the folder, and no others")
        made = recipes.rebuild(folder, name)
    else:
        assert name is not None
        given = [*(settings or []), *([] if root is None else [f"data.root={root}"])]
        chosen: dict[str, Any] = {"budget": budget or _BUDGET, "out": folder, "only": only or []}
        chosen |= {"seeds": seeds, "workers": jobs, "settings": with_settings({}, given)}
        if dry_run:
            _show_runs(recipes.plan_jobs(name, **chosen))
            return
        made = recipes.reproduce(
            name, **chosen, is_resumed=resume, ray_address=ray, show=True, say=typer.echo
        )
    if any(outcome.runs for outcome in made.outcomes):
        typer.echo(as_text(made.recipe, made.budget, made.outcomes, changed=made.changed))
    for path in made.files:
        if path.suffix == ".md" and path.name != "table.md":
            typer.echo(path.read_text())
    typer.echo(f"wrote {len(made.files)} tables and figures: {folder}")
    if any(outcome.runs for outcome in made.outcomes):
        say_next("imae", "report", folder)


def _list(name: str | None, budget: str | None) -> None:
    from imae.recipes import RECIPES

    given = [] if budget is None else ["--budget", budget]
    if name is not None:
        for cell in RECIPES.build(name).cells(budget or _BUDGET):
            typer.echo(cell.name)
        say_next("imae", "reproduce", name, *given)
        return
    table = Table("name", "what it is", "cells")
    table.columns[0].no_wrap = True
    for entry in RECIPES:
        table.add_row(entry.name, entry.summary, str(len(entry.build().cells("paper"))))
    print_table(table)
    say_next("imae", "reproduce", "NAME", *given)


def _show_runs(jobs: "Sequence[Job]") -> None:
    results = [RunFolder(str(job.config.out)).result() for job in jobs]
    for job, result in zip(jobs, results, strict=True):
        state = "to do" if result is None else "done"
        typer.echo(f"{job.name} ({state}): {_in_words(job.config)}")
    done = [result for result in results if result is not None]
    seconds = [result["seconds"] for result in done if "seconds" in result]
    left = len(jobs) - len(done)
    line = f"{len(jobs)} runs, {left} of them to do"
    if seconds and left:
        hours = left * sum(seconds) / len(seconds) / 3600
        line += f"; about {hours:.1f} h one after another, by those that are done"
    typer.echo(line)


def _in_words(config: "Config") -> str:
    data, train, method = config.data, config.train, config.method
    arguments = ", ".join(f"{key}={value}" for key, value in method.arguments.items())
    words = [
        data.name if data.rows is None else f"{data.rows} rows of {data.name}",
        config.noise or "no noise",
        str(config.model.name),
        f"{method.name} ({arguments})" if arguments else method.name,
        f"{train.epochs} epochs" if train.steps is None else f"{train.steps} steps",
        f"batches of {train.batch_size}",
        f"{config.optimizer.name} at {config.optimizer.lr:g}",
    ]
    return ", ".join(words)


def report(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN...", help="Run folders, finished or not, or folders of runs."
    ),
    out: Path = typer.Option(Path("report.html"), help="Page to write: one file, no network."),
    table_file: Path | None = typer.Option(
        None, "--table", help="File for the table, .csv or .md. Default: none."
    ),
    figures: Path | None = typer.Option(
        None, help="Folder for the figures, PNG and SVG. Default: none."
    ),
    pictures: bool = typer.Option(
        False, "--pictures", help="Show pictures of suspect rows, read from the runs' data."
    ),
    overwrite: bool = OVERWRITE,
) -> None:
    """Compare runs: print their table and write one offline page.

    RUN is a run folder, or a folder of `imae compare` or `imae reproduce` for all of its runs.
    """
    from imae.records.files import check_overwriting
    from imae.report import (
        as_text,
        find_runs,
        read_runs,
        save_figures,
        save_table,
        table,
        write_report,
    )

    check_choice("the extension of --out", out.suffix.lower(), (".html", ".htm"))
    for option, path in (("--out", out), ("--table", table_file)):
        if path is not None:
            check_overwriting(path, overwrite=overwrite, option=option)
    records = read_runs(find_runs(runs))
    compared = table(records)
    if table_file is not None:
        save_table(compared, table_file)  # first, as its name may be refused
    shown = import_module("imae.audit.cards").run_pictures if pictures else None
    written = [write_report(records, out, pictures=shown), *([table_file] if table_file else [])]
    if figures is not None:
        written += save_figures(records, figures)
    typer.echo(as_text(compared, width=Console().width))
    for path in written:
        typer.echo(f"wrote {path}")
    say_next("imae", "audit", _run_to_audit(records))
