"""`imae audit`: which labels are wrong, from one training run."""

import contextlib
import copy
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Set
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
    SEED,
    check_path_exists,
    column_words,
    command_line,
    data_flags,
    gather_settings,
    print_table,
    say,
    warnings_as_lines,
)
from imae.cli.review import (
    apply,
    check,
    export,
    new_labels_file,
    read_data_settings,
    serve,
    write_data_settings,
    write_pages,
)
from imae.errors import ArgumentError, DataError, check_integer, check_interval

if TYPE_CHECKING:
    from imae.audit.result import Audit
    from imae.train import Config

_DEFAULT = "run"
_SHOWN = 10  # rows in the summary
_ID_WIDTH = 40
_COLUMNS = "data.options."
_REMEDY = re.compile(  # of a run that predicts one class for every row
    r" with (?P<sampling>--set data\.balanced=\d+ --set train\.batch_size=\d+), and audit that run$"
    r"|, such as --loss cce, or with another --T or more epochs, and audit that run$"
)
_OTHER_LOSS = "--set method.name=cce"
_FROM_SCRATCH = (
    "a few thousand photos are too few for an audit from scratch, which also takes long without an "
    "accelerator; --features efficientnet_lite0 trains on features of a pretrained network, which "
    "is a matter of minutes"
)
# Settings that matter to rows whose probabilities are given.
_JUDGED = ("out", "data.name", "data.root", "data.options", "data.labels", "data.features")


class _Audit(typer.core.TyperGroup):
    """The subcommands; ``run`` is the default: `imae audit DATA`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if is_named and self._is_path(ctx, args):
            is_named = False
        elif args and not is_named:
            self._check_spelling(args[0])
        return super().parse_args(ctx, args if is_named or not args else [_DEFAULT, *args])

    def _check_spelling(self, word: str) -> None:
        """Raises if a word is neither data nor a run, but nearly the name of a command."""
        near = difflib.get_close_matches(word, self.commands, n=1, cutoff=0.7)
        if not near or os.path.lexists(word):
            return
        from imae.data.sources.catalog import SOURCES

        if word not in SOURCES:
            raise ArgumentError(
                f"no such data, run or command: {word!r}; did you mean imae audit {near[0]}?"
            )

    def _is_path(self, ctx: Any, args: list[str]) -> bool:
        """Whether a word names a run or data and not a command: `imae audit run`."""
        if args[0] not in self.commands or not os.path.exists(args[0]):
            return False
        command = self.commands[args[0]]
        own = type(ctx)(command, parent=ctx, resilient_parsing=True)
        words = [word for word in args[1:] if word not in ctx.help_option_names]
        try:
            given, _, _ = command.make_parser(own).parse_args(list(words))
        except Exception:  # wrong options: the command itself says so
            return False
        is_missing = given.get(command.params[0].name) in (None, "", ())
        return is_missing and len(words) == len(args) - 1  # and no help is asked for

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the options of the default command if no command is named."""
        shown = copy.copy(self)
        shown.params = list(self.commands[_DEFAULT].params)
        shown.subcommand_metavar = "| COMMAND [ARGS]..."
        super(_Audit, shown).format_help(ctx, formatter)


audit = typer.Typer(
    cls=_Audit,
    no_args_is_help=True,
    add_completion=False,
    help="Find the rows whose labels are wrong: imae audit DATA, or imae audit RUN.\n\n"
    "DATA is trained on once, by the default method, and the run is audited; a RUN is audited as "
    "it is. Results are in RUN/audit; then review them with the commands below.",
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
        None,
        help="Pretrained network whose features are trained on, or compared for a RUN or "
        "--probabilities.",
    ),
    probabilities: Path | None = typer.Option(
        None, help="Judge DATA by these (.npy, or .csv of `imae predict`); nothing is trained."
    ),
    epochs: int | None = typer.Option(None, show_default="40", help="Passes over DATA."),
    seed: int | None = SEED,
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
        None, show_default="2000", help="Suspects that get a picture or text on the page."
    ),
) -> None:
    """Find wrong labels: how many, which rows, how sure, and what each should be.

    DATA is trained on once, by the default method, and the run is audited; a RUN is audited as it
    is, after it is resumed if it was stopped. Results are in RUN/audit.
    """
    check_path_exists(target)
    from imae.records import RunFolder

    if previews is not None:
        check_integer("--previews", previews, low=0)
    if precision is not None:  # before minutes of training
        check_interval("--precision", precision, low=0, high=1, open_low=True)
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
        with warnings_as_lines():
            asked = {**flags, "data.features": features}
            folder, found = _from_probabilities(target, probabilities, asked, settings, precision)
    else:
        with _suggesting_audit():
            path = _trained(target, flags, features, settings)
        if os.environ.get("RANK", "0") != "0":  # one of several that torchrun started
            return
        again = _words_again(target, flags, features, settings, precision)
        with warnings_as_lines(), _suggesting_another_run(path, again):
            folder, found = RunFolder(path), _from_run(path, features, precision)
    found.save(folder)
    page = write_pages(folder.path, most_previews=previews)
    _summarise(found, folder.path, page, precision)


@contextlib.contextmanager
def _suggesting_audit() -> Iterator[None]:
    """Suggests `imae audit` if training was stopped: it resumes the run, and then audits it.

    Not where the network is one's own, which only `imae train` can be told.
    """
    from imae.train import Stopped

    try:
        yield
    except Stopped as stopped:
        line = stopped.message
        if " --model " not in line:
            line = line.replace("imae train --resume", "imae audit")
        raise Stopped(line, stopped.code) from None


def _words_again(
    target: str,
    flags: Mapping[str, object],
    features: str | None,
    settings: list[str] | None,
    precision: float | None,
) -> list[object]:
    """Arguments that train on the same data once more, without the folder; empty for a RUN."""
    from imae.records import RunFolder

    if RunFolder(target).exists():
        return []
    words: list[object] = [target]
    columns = {key.removeprefix(_COLUMNS): flags[key] for key in flags if key.startswith(_COLUMNS)}
    words += column_words({key: value for key, value in columns.items() if value is not None})
    options = {
        "--root": flags["data.root"],
        "--labels": flags["data.labels"],
        "--features": features,
        "--noise": flags["noise"],
        "--epochs": flags["train.epochs"],
        "--seed": flags["seed"],
        "--precision": precision,
    }
    words += [word for pair in options.items() if pair[1] is not None for word in pair]
    return words + [word for text in settings or () for word in ("--set", text)]


@contextlib.contextmanager
def _suggesting_another_run(path: Path, words: list[object]) -> Iterator[None]:
    """Completes advice for a run that learned nothing to the command of another audit.

    Args:
        path: The run.
        words: Arguments that train on its data once more; none to leave the advice as it is.
    """
    try:
        yield
    except DataError as error:
        remedy = _REMEDY.search(str(error))
        options = (remedy and remedy["sampling"]) or _OTHER_LOSS
        if remedy is None or not words or options.split()[1] in words:
            raise
        number = 2
        while (out := path.with_name(f"{path.name}-{number}")).exists():
            number += 1
        command = command_line("imae", "audit", *words, *options.split(), "--out", out)
        raise DataError(f"{str(error)[: remedy.start()]}: {command}") from None


def _trained(
    target: str, flags: Mapping[str, object], features: str | None, settings: list[str] | None
) -> Path:
    """The folder of the finished run of this data, trained now if necessary."""
    from imae.audit.sources import ARGUMENTS, are_photos
    from imae.records import RunFolder
    from imae.records.files import check_regular
    from imae.train import build_config, resume, train

    if RunFolder(target).exists():
        check_regular(Path(target) / "audit")
        if settings or any(value is not None for value in flags.values()):
            raise ArgumentError(f"{target} is a run with its own settings; give no others")
        return resume(target, show=True).path
    # A row is judged best by a network that was not trained on it, and a validation part of the
    # data is not audited: so training rows are held out.
    chosen = ["data.own_validation=false", *(settings or ())]
    if not any(text.startswith(("method.", "method=")) for text in chosen):
        chosen += [f"method.arguments.{name}={value}" for name, value in ARGUMENTS.items()]
    given = {**flags, "data.name": target, "data.features": features}
    config = build_config(gather_settings(None, chosen, given))
    if config.out is None or not RunFolder(config.out).exists():
        is_from_scratch = config.data.features is None and config.model.init is None
        is_first = os.environ.get("RANK", "0") == "0"
        if is_first and is_from_scratch and are_photos(target, config.data.options):
            typer.echo(f"imae: {_FROM_SCRATCH}", err=True)
        return train(config, show=True).path
    keys = {key for key, value in given.items() if value is not None} - {"out"}
    keys |= {text.partition("=")[0].strip() for text in settings or ()}
    others = _other_settings(config, RunFolder(config.out).config(), keys)
    if others:
        raise ArgumentError(
            f"--out {config.out}: holds a run with other settings ({'; '.join(others)}); choose "
            f"another folder, or audit that run: {command_line('imae', 'audit', config.out)}"
        )
    return resume(config.out, show=True).path


def _other_settings(config: "Config", stored: Mapping[str, Any], keys: Set[str]) -> list[str]:
    """How the run in this folder differs: in its data or noise, or in a requested setting.

    Args:
        config: The requested settings.
        stored: Settings of the run, with all defaults filled in.
        keys: Settings that were given, by dotted name.
    """
    from imae.report.read import flatten
    from imae.train import build_config
    from imae.train.setup import with_full_paths

    found = flatten(build_config(stored).model_dump(mode="json"))
    wanted = flatten(with_full_paths(config).model_dump(mode="json"))
    others = []
    for key in dict.fromkeys((*wanted, *found)):
        one, two = (tree.get(key, "null").replace("{}", "null") for tree in (found, wanted))
        is_open = key in ("data.own_validation", "data.trusted", "data.workers")
        is_asked = key in keys or (key.startswith(("data.", "noise")) and not is_open)
        if one != two and is_asked:
            words = ["not set" if value == "null" else value for value in (one, two)]
            others.append(f"{key} is {words[0]}, here {words[1]}")
    return others


def _from_run(path: Path, features: str | None, precision: float | None) -> "Audit":
    from imae.audit.audit import audit as find_wrong
    from imae.audit.sources import compared_features
    from imae.records import RunFolder

    folder = RunFolder(path)
    found = find_wrong(folder, precision=precision)
    if features is None or folder.config()["data"].get("features") == features:
        return found
    table = compared_features(folder, features, found.row_ids)
    return find_wrong(folder, precision=precision, features=table)


def _from_probabilities(
    target: str,
    file: Path,
    flags: Mapping[str, object],
    settings: list[str] | None,
    precision: float | None,
) -> tuple[Any, "Audit"]:
    from imae.audit.audit import audit as find_wrong
    from imae.audit.calibrate import find_cap
    from imae.audit.sources import features_of_split, labelled_rows, read_probabilities
    from imae.records import RunFolder
    from imae.records.files import check_free, check_regular
    from imae.report.read import flatten
    from imae.train import build_config
    from imae.train.setup import with_full_paths

    out = flags["out"]
    if out is None:
        raise ArgumentError("--probabilities needs --out, a folder for the results")
    if RunFolder(target).exists():
        raise ArgumentError(f"{target}: is a run; --probabilities judges data, so name its data")
    folder = RunFolder(Path(str(out)))
    if folder.exists():
        raise ArgumentError(f"--out {out}: holds a run; choose another folder")
    content = gather_settings(None, settings, {**flags, "data.name": target})
    if content.get("noise") is not None:
        raise ArgumentError("noise is added in training, and --probabilities needs no training")
    unused = [key for key in flatten(content) if not key.startswith(_JUDGED)]
    if unused:
        words = {"train.epochs": "--epochs", "seed": "--seed"}.get(unused[0], unused[0])
        raise ArgumentError(f"{words} is for training, and --probabilities needs no training")
    network = content["data"].pop("features", None)
    config = with_full_paths(build_config({"data": content["data"]}))
    data = config.data.model_dump(mode="json", exclude_defaults=True)
    check_regular(folder.path / "audit")
    before = read_data_settings(folder.path)
    if before is None:
        check_free(folder.path)
    elif before[0] != data:
        raise ArgumentError(f"--out {out}: holds an audit of other data; choose another folder")
    rows, every, hashes = labelled_rows(data)
    made = folder.path / "audit" / "decisions.csv"
    if before is not None and before[1] != hashes and made.exists():
        raise ArgumentError(
            f"--out {out}: holds decisions about other rows or labels ({made}); choose another "
            "folder, or move this file away"
        )
    matrix = read_probabilities(file, rows, every)
    found = find_wrong(
        matrix,
        given=rows.labels,
        row_ids=rows.row_ids,
        class_names=rows.class_names,
        precision=precision,
        features=None if network is None else features_of_split(rows, network),
    )
    cap = find_cap(matrix)
    if cap is not None:
        typer.echo(
            f"Note: {file}: the model caps its confidence at {cap:.2f}; undone here", err=True
        )
    write_data_settings(folder.path, data, hashes)
    return folder, found


def _summarise(found: "Audit", path: Path, page: Path, precision: float | None = None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from imae.audit.cards import suspects
    from imae.audit.decisions import download_name, identity
    from imae.audit.page import is_doubtful, rate_words, review_words
    from imae.records.files import printable
    from imae.report.formats import shorten_middle

    console = Console()
    table = Table("row", "given", "suggested", "wrong")
    flagged = [row for row in found.order().tolist() if found.is_flagged[row]]
    for row in flagged[:_SHOWN]:
        if found.fits_no_class[row]:
            suggested = "no class"
        elif found.suggested[row] == found.given[row]:
            suggested = ""  # suspect, but no other class is likelier
        else:
            suggested = printable(found.class_names[found.suggested[row]])
        cells = (
            shorten_middle(printable(found.row_ids[row]), limit=_ID_WIDTH),
            printable(found.class_names[found.given[row]]),
            suggested,
            f"{found.wrong_probability[row]:.1%}",
        )
        table.add_row(*map(Text, cells))  # Text: no markup is read from names
    if flagged:
        print_table(table, console, shortened=("row", "given", "suggested"))
    number = len(flagged)
    shown = f"{min(number, _SHOWN)} of {number:,} flagged rows shown, the most suspect first"
    labels = new_labels_file()
    served = command_line("imae", "audit", "serve", path)
    checked = command_line("imae", "audit", "check", path)
    applied = [
        command_line("imae", "audit", "apply", path, *decisions, "--out", labels)
        for decisions in ([], [download_name(identity(found))])
    ]
    how = (
        f"All of them: {path / 'audit' / 'suspects.csv'}",
        f"Review them: {served}, then {applied[0]}",
        f"Or open {page}, download your decisions, then {applied[1]}",
    )
    lines = (
        *([shown] if number > _SHOWN else []),
        f"{rate_words(found)}; {review_words(found)}",
        *([f"Judge a sample of them first: {checked}"] if number and is_doubtful(found) else []),
        *([_none_flagged(found, precision)] if precision is not None and not number else []),
        *(how if len(suspects(found)) else ()),
    )
    for line in lines:
        say(line)


def _none_flagged(found: "Audit", precision: float) -> str:
    """Why no row is flagged at a precision."""
    return (
        f"No row is flagged at --precision {precision:g}: the most suspect one is wrong with a "
        f"probability of {found.wrong_probability.max():.2f}; without --precision the most suspect "
        "rows are flagged"
    )


for _command in (serve, check, apply, export):
    audit.command()(_command)
