"""`imae train` and `imae tune`: a trained network from data with wrong labels, and its settings."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae.cli import INTERRUPTED
from imae.cli.app import (
    DROP,
    EPOCHS,
    FEATURES,
    ID_COLUMN,
    LABEL_COLUMN,
    LABELS,
    LR,
    MODEL,
    NOISE,
    ROOT,
    SEED,
    STEPS,
    check_path_exists,
    data_flags,
    gather_settings,
    print_table,
    say,
    say_next,
    warnings_as_lines,
)
from imae.errors import ArgumentError, import_extra
from imae.records.measures import MEASURES

if TYPE_CHECKING:
    from imae.tune import Outcome


def train(
    data: str | None = typer.Argument(None, help="Name of a data set, or a path to your own."),
    loss: str | None = typer.Option(
        None,
        "--loss",
        "--method",
        show_default="imae_capped",
        help="What to optimise; see `imae list methods`.",
    ),
    T: str | None = typer.Option(
        None, "--T", help="T of IMAE, how much more uncertain rows count: a number, or auto."
    ),
    cap: float | None = typer.Option(
        None, help="Largest probability that the model gives to a class."
    ),
    model: str | None = MODEL,
    noise: str | None = NOISE,
    labels: Path | None = LABELS,
    seed: int | None = SEED,
    epochs: int | None = EPOCHS,
    steps: int | None = STEPS,
    batch_size: int | None = typer.Option(None, show_default="64", help="Rows in a step."),
    lr: float | None = LR,
    hold_out: float | None = typer.Option(
        None,
        show_default="0.1",
        help="Share of the training rows held out to choose the best epoch.",
    ),
    features: str | None = FEATURES,
    init: Path | None = typer.Option(None, help="File of initial weights."),
    devices: int | None = typer.Option(None, show_default="1", help="Processes, one per device."),
    nodes: int | None = typer.Option(None, show_default="1", help="Machines, under torchrun."),
    strategy: str | None = typer.Option(
        None,
        show_default="ddp",
        help="Each process holds the whole network (ddp) or a part of it (fsdp).",
    ),
    root: Path | None = ROOT,
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    out: Path | None = typer.Option(None, show_default="runs/NAME-TIME", help="Run folder."),
    log: list[str] | None = typer.Option(
        None, help="Additional logs: csv, tensorboard, wandb, mlflow. May be repeated."
    ),
    config: Path | None = typer.Option(None, help="File of settings, .json or .toml."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting; see `imae list settings`."
    ),
    resume: Path | None = typer.Option(
        None, help="Run folder to resume; --epochs or --steps lengthen the run."
    ),
    student: Path | None = typer.Option(
        None,
        metavar="RUN",
        help="Train a second network on the labels that the best epoch of RUN predicts, with the "
        "settings of RUN.",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would run, and how long."),
) -> None:
    """Train on DATA, whose labels may be wrong.

    Settings come from --config, then --set, then the other options; the last one counts.
    `imae train DATA --dry-run` shows all of them.
    """
    check_path_exists(data)
    import_extra("pydantic", extra="train")
    import_extra("lightning_fabric", extra="train")
    flags: dict[str, object] = {
        "data.name": data,
        "data.root": root,
        "data.labels": labels,
        "data.hold_out": hold_out,
        "data.features": features,
        **data_flags(label_column, id_column, drop),
        "method.name": loss,
        "method.arguments.T": _number_or_auto(T),
        "method.arguments.cap": cap,
        "model.name": model,
        "model.init": init,
        "noise": noise,
        "seed": seed,
        "train.epochs": epochs,
        "train.steps": steps,
        "train.batch_size": batch_size,
        "optimizer.lr": lr,
        "machine.devices": devices,
        "machine.nodes": nodes,
        "machine.strategy": strategy,
        "out": out,
        "log": [name for each in log for name in each.split(",")] if log else None,
    }
    has_others = config is not None or bool(settings) or dry_run
    if resume is not None:
        _resume(resume, flags, has_others=has_others or student is not None)
    elif student is not None:
        _train_student(student, flags, has_others=has_others)
    else:
        _train(gather_settings(config, settings, flags), dry_run=dry_run)


def _resume(path: Path, flags: dict[str, object], *, has_others: bool) -> None:
    from imae.train import resume as resume_run
    from imae.train.launch import teacher_folder

    model, data = flags.pop("model.name"), flags.pop("data.name")
    budget: dict[str, Any] = {key: flags.pop(f"train.{key}") for key in ("epochs", "steps")}
    is_code = isinstance(model, str) and ":" in model  # a run folder by itself imports no code
    if has_others or any(value is not None for value in flags.values()) or (model and not is_code):
        raise ArgumentError(
            "--resume continues with the settings of the run; only DATA, if it was moved, and "
            "--epochs or --steps, to lengthen the run, can be given with it"
        )
    run = resume_run(path, data, str(model) if is_code else None, **budget, show=True)
    _report(run.path, run.result, audited=teacher_folder(run.config.data.labels))


def _train_student(path: Path, flags: dict[str, object], *, has_others: bool) -> None:
    from imae.train import train_student

    model, data, out = flags.pop("model.name"), flags.pop("data.name"), flags.pop("out")
    assert out is None or isinstance(out, Path)
    is_code = isinstance(model, str) and ":" in model  # a run folder by itself imports no code
    if has_others or any(value is not None for value in flags.values()) or (model and not is_code):
        raise ArgumentError(
            "--student trains with the settings of its run; only DATA, if it was moved, --model, "
            "if the network is a function of your own, and --out can be given with it"
        )
    with warnings_as_lines():
        run = train_student(path, data, str(model) if is_code else None, out=out, show=True)
    _report(run.path, run.result, audited=path)


def _train(content: dict[str, Any], *, dry_run: bool) -> None:
    from imae.train import build_config
    from imae.train import train as train_run

    if "data" not in content:
        raise ArgumentError("give DATA: the name of a data set, or a path to your own")
    config = build_config(content)
    if dry_run:
        _show_plan(config)
        return
    run = train_run(config, show=True)
    _report(run.path, run.result)


_COLUMNS = 100  # of a table that --dry-run lists


def _show_plan(config: Any) -> None:
    from imae.train.loop import plan

    planned = plan(config)
    console = Console()
    if planned.columns:
        columns = Table("column", "used as", title="What would be read")
        for name, use in planned.columns[:_COLUMNS]:
            columns.add_row(escape(name), escape(use))
        print_table(columns, console)
        if len(planned.columns) > _COLUMNS:
            typer.echo(f"and {len(planned.columns) - _COLUMNS} more columns")
    table = Table("setting", "value", title="What would run")
    for key, value in planned.settings.items():
        table.add_row(key, escape(value))
    print_table(table, console)
    say(
        f"{planned.num_rows:,} rows to train on, {planned.num_parameters:,} parameters, "
        f"{planned.total_steps:,} steps; an epoch takes about {planned.epoch_seconds:.1f} s, "
        f"all of it about {planned.total_seconds:.0f} s without evaluation"
    )
    if planned.feature_seconds is not None:
        say(f"before that, features take about {planned.feature_seconds:.0f} s, once")
    for hint in planned.hints:
        say(hint)


def _report(path: Path, result: dict[str, Any] | None, *, audited: Path | None = None) -> None:
    """Shows the result of a run, and suggests an audit: of its teacher, if it has one."""
    if result is None or os.environ.get("RANK", "0") != "0":  # one of several that torchrun started
        return
    best, final = result["best"], result["final"]
    rows = {f"final (step {final['step']})": final}
    if (path / "weights" / "best.pt").exists():
        rows = {f"best (step {best['step']})": best, **rows}
    table = Table("accuracy", *rows)
    for measure in MEASURES:
        ends = [row.get(measure.key) for row in rows.values()]
        if measure.is_summary and None not in ends:
            table.add_row(measure.heading.lower(), *(f"{value:.1%}" for value in ends))
    console = Console()
    if table.row_count:  # a student has no rows to measure on, unless its data has test rows
        print_table(table, console)
    console.print(
        f"{result['steps']} steps in {result['seconds']:.1f} s; the run is in {path}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    say_next("imae", "audit", audited or path)


def _number_or_auto(T: str | None) -> float | str | None:
    if T is None or T == "auto":
        return T
    try:
        return float(T)
    except ValueError:
        raise ArgumentError(f"--T must be a number or auto, got {T!r}") from None


_SHOWN = 5  # trials in the table


def tune(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    trials: int | None = typer.Option(
        None, show_default="20, without --minutes", help="Total number of trials."
    ),
    minutes: float | None = typer.Option(None, help="Time to search, instead of trials."),
    clean_validation: Path | None = typer.Option(
        None, help="Rows whose labels are right, in the form of DATA, to choose by."
    ),
    losses: str | None = typer.Option(
        None,
        "--losses",
        show_default="imae_capped",
        help="Losses to choose from, separated by commas.",
    ),
    lr: str | None = typer.Option(
        None, metavar="LOW:HIGH", help="Range of the learning rate. Default: it is not searched."
    ),
    storage: str | None = typer.Option(
        None,
        metavar="URL",
        help="Database, for a search on several machines.",
    ),
    study: str = typer.Option("imae", help="Name of the search in the database."),
    model: str | None = MODEL,
    noise: str | None = NOISE,
    labels: Path | None = LABELS,
    seed: int | None = SEED,
    epochs: int | None = EPOCHS,
    steps: int | None = STEPS,
    features: str | None = FEATURES,
    root: Path | None = ROOT,
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    config: Path | None = typer.Option(None, help="File of settings, .json or .toml."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`; it is not searched."
    ),
    out: Path = typer.Option(Path("tune"), help="Folder for the runs, the result and the page."),
) -> None:
    """Choose T, the cap and, if asked, the learning rate and the loss by a search.

    Without --clean-validation the choice is made on held-out given labels. The same command
    resumes a search that was stopped, and repeats nothing. Several machines search together with
    --storage postgresql://USER@HOST/NAME.
    """
    check_path_exists(data)
    import_extra("pydantic", extra="train")
    import_extra("optuna", extra="tune")
    from imae.train import Stopped
    from imae.tune import tune as search

    if any(each.partition("=")[0].strip() == "out" for each in settings or ()):
        raise ArgumentError("--set out: the runs of a search are in its own folder; use --out")

    flags = {
        "data.name": data,
        "data.labels": labels,
        "data.features": features,
        "data.root": root,
        **data_flags(label_column, id_column, drop),
        "model.name": model,
        "noise": noise,
        "seed": seed,
        "train.epochs": epochs,
        "train.steps": steps,
    }
    try:
        outcome = search(
            gather_settings(config, settings, flags),
            trials=trials,
            minutes=minutes,
            losses=[name for name in (losses or "").split(",") if name],
            lr=None if lr is None else _range(lr),
            clean_validation=clean_validation,
            out=out,
            storage=storage,
            study=study,
            say=lambda line: typer.echo(f"imae: {line}", err=True),
        )
    except KeyboardInterrupt:  # not in a trial, such as while the rows are read
        raise Stopped("stopped; the same command continues", INTERRUPTED) from None
    _show(outcome)


def _show(outcome: "Outcome") -> None:
    from imae.tune.outcome import setting_words

    measured = "clean labels" if outcome.is_clean else "held-out given labels"
    table = Table("trial", "settings", measured, "status")
    ranked = sorted(outcome.trials, key=lambda each: (-(each.accuracy or 0), each.number))
    for trial in dict.fromkeys([outcome.chosen, *ranked[:_SHOWN]]):
        mark = " (chosen)" if trial is outcome.chosen else ""
        accuracy = "-" if trial.accuracy is None else f"{trial.accuracy:.1%}"
        words = setting_words(trial.settings)
        table.add_row(f"{trial.number}{mark}", words, accuracy, trial.status)
    print_table(table)
    for line in outcome.lines():
        say(line)
    typer.echo(f"wrote {outcome.page}; train with the chosen settings:\n{outcome.command}")


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise ArgumentError(f"--lr must be a range such as 0.005:0.2, got {text!r}") from None
    return low, high
