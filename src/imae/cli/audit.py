"""`imae audit`: which labels are wrong, from one training run."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imae.cli.app import (
    DROP,
    ID_COLUMN,
    LABEL_COLUMN,
    LABELS,
    NOISE,
    ROOT,
    data_flags,
    gather_settings,
    print_table,
)
from imae.cli.review import (
    apply,
    check,
    export,
    serve,
    write_data_settings,
    write_pages,
)
from imae.errors import ArgumentError

if TYPE_CHECKING:
    from imae.audit.result import Audit

_DEFAULT = "run"
_SHOWN = 10  # rows in the summary
_ID_WIDTH = 40


class _Audit(typer.core.TyperGroup):
    """Commands of which ``run`` is meant where none is named: `imae audit DATA`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named or not args else [_DEFAULT, *args])


audit = typer.Typer(
    cls=_Audit,
    no_args_is_help=True,
    add_completion=False,
    help="Find the rows whose labels are wrong: imae audit DATA, or imae audit RUN.\n\n"
    "Its options are those of the command run: imae audit run --help.",
)


@audit.command(_DEFAULT)
def run(
    target: str = typer.Argument(
        ..., metavar="DATA|RUN", help="Data to train on and audit, or a run that was trained."
    ),
    out: Path | None = typer.Option(
        None,
        show_default="runs/NAME-TIME",
        help="Run folder for DATA; a run in it that was stopped is resumed.",
    ),
    precision: float | None = typer.Option(
        None,
        show_default="at the estimated rate",
        help="Flag rows so that this estimated share of them is wrong.",
    ),
    features: str | None = typer.Option(
        None, help="Pretrained network whose features are trained on, or compared for a RUN."
    ),
    probabilities: Path | None = typer.Option(
        None, help="Judge DATA by these (.npy, or .csv of `imae predict`); nothing is trained."
    ),
    epochs: int | None = typer.Option(None, show_default="40", help="Passes over DATA."),
    seed: int | None = typer.Option(None, show_default="123", help="Seed of every draw."),
    noise: str | None = NOISE,
    labels: Path | None = LABELS,
    root: Path | None = ROOT,
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Any setting of `imae train`."
    ),
    previews: int | None = typer.Option(
        None, show_default="2000", min=0, help="Suspects that get a picture or text on the page."
    ),
) -> None:
    """Find wrong labels: how many, which rows, how sure, and what each should be.

    DATA is trained on once, by the default method, and the run is audited; a RUN is audited as it
    is, after it is resumed if it was stopped. Results are in RUN/audit.
    """
    from imae.records import RunFolder

    flags = {
        "data.root": root,
        "data.labels": labels,
        **data_flags(label_column, id_column, drop),
        "noise": noise,
        "train.epochs": epochs,
        "seed": seed,
        "out": out,
    }
    if probabilities is not None:
        with _warnings_as_lines():
            folder, found = _from_probabilities(target, probabilities, flags, settings, precision)
    else:
        path = _trained(target, flags, features, settings)
        if os.environ.get("RANK", "0") != "0":  # one of several that torchrun started
            return
        with _warnings_as_lines():
            folder, found = RunFolder(path), _from_run(path, features, precision)
    found.save(folder)
    page = write_pages(folder.path, most_previews=previews)
    _summarise(found, folder.path, page)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Shows what the block warns about in one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"Note: {line}", err=True)


def _trained(
    target: str, flags: Mapping[str, object], features: str | None, settings: list[str] | None
) -> Path:
    """The folder of the finished run of this data, trained now if need be."""
    from imae.audit.sources import T
    from imae.records import RunFolder
    from imae.train import build_config, resume, train

    if RunFolder(target).exists():
        if settings or any(value is not None for value in flags.values()):
            raise ArgumentError(f"{target} is a run with its own settings; give no others")
        return resume(target, show=True).path
    # A row is judged best by a network that was not trained on it, and a validation part that the
    # data brings along is not audited: so rows are held out of the others.
    chosen = ["data.own_validation=false", *(settings or ())]
    if not any(text.startswith(("method.", "method=")) for text in chosen):
        chosen.append(f"method.arguments.T={T}")
    config = build_config(
        gather_settings(None, chosen, {**flags, "data.name": target, "data.features": features})
    )
    if config.out is not None and RunFolder(config.out).exists():
        before = build_config(RunFolder(config.out).config())
        kept = {"own_validation": before.data.own_validation}
        labels = [(each.noise, each.noise_map, each.noise_exact) for each in (before, config)]
        if before.data != config.data.model_copy(update=kept) or labels[0] != labels[1]:
            raise ArgumentError(
                f"--out {config.out}: holds a run on other data or labels; choose another folder"
            )
        return resume(config.out, show=True).path
    return train(config, show=True).path


def _from_run(path: Path, features: str | None, precision: float | None) -> "Audit":
    from imae.audit.audit import audit as find_wrong
    from imae.audit.sources import compared_features
    from imae.records import RunFolder

    folder = RunFolder(path)
    found = find_wrong(folder, precision=precision)
    if features is None or folder.config()["data"].get("features") == features:
        return found
    table = compared_features(folder.config(), features, found.row_ids)
    return find_wrong(folder, precision=precision, features=table)


def _from_probabilities(
    target: str,
    file: Path,
    flags: Mapping[str, object],
    settings: list[str] | None,
    precision: float | None,
) -> tuple[Any, "Audit"]:
    from imae.audit.audit import audit as find_wrong
    from imae.audit.sources import labelled_rows, read_probabilities
    from imae.records import RunFolder

    out = flags["out"]
    if out is None:
        raise ArgumentError("--probabilities needs --out, a folder for the results")
    folder = RunFolder(Path(str(out)))
    if folder.exists():
        raise ArgumentError(f"--out {out}: holds a run; choose another folder")
    content = gather_settings(None, settings, {**flags, "data.name": target})
    if content.get("noise") is not None:
        raise ArgumentError("noise is added in training, and --probabilities needs no training")
    data = content["data"]
    rows = labelled_rows(data)
    found = find_wrong(
        read_probabilities(file, rows),
        given=rows.labels,
        row_ids=rows.row_ids,
        class_names=rows.class_names,
        precision=precision,
    )
    write_data_settings(folder.path, data)
    return folder, found


def _summarise(found: "Audit", path: Path, page: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from imae.report.formats import percent, printable, shorten

    console = Console()
    table = Table("row", "given", "suggested", "wrong")
    for row in found.order()[:_SHOWN]:
        if found.fits_no_class[row]:
            suggested = "no class"
        elif found.suggested[row] == found.given[row]:
            suggested = ""  # suspect, but no other class is likelier
        else:
            suggested = printable(found.class_names[found.suggested[row]])
        cells = (
            shorten(printable(found.row_ids[row]), limit=_ID_WIDTH),
            printable(found.class_names[found.given[row]]),
            suggested,
            f"{found.wrong_probability[row]:.1%}",
        )
        table.add_row(*map(Text, cells))  # Text: no markup is read from names
    print_table(table, console)
    lines = (
        f"{percent(found.noise_rate)}% of {len(found)} labels are wrong (range "
        f"{percent(found.noise_rate_low)}% to {percent(found.noise_rate_high)}%); "
        f"{int(found.is_flagged.sum())} rows are flagged, {int(found.fits_no_class.sum())} fit no "
        "class",
        f"Review them: imae audit serve {path}, then imae audit apply {path} --out labels.csv",
        f"Or open {page}, download your decisions, then imae audit apply {path} decisions.csv "
        "--out labels.csv",
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)


for _command in (serve, check, apply, export):
    audit.command()(_command)
