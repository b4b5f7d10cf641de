"""The `imae` command, and what its subcommands share: options, progress bars, tables."""

import functools
import importlib
import itertools
import os
import shlex
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from imae.cli import INTERRUPTED
from imae.errors import ArgumentError, DataError, ImaeError

# Name of each command: where it is defined, and the first line of its help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": (
        "compare:demo",
        "Train four losses on handwritten digits of which 40% have a wrong label.",
    ),
    "train": ("train:train", "Train on DATA, whose labels may be wrong."),
    "compare": (
        "compare:compare",
        "Train several losses on DATA with one recipe, and compare them over several seeds.",
    ),
    "tune": (
        "train:tune",
        "Choose T, the cap and, if asked, the learning rate and the loss by a search.",
    ),
    "audit": (
        "audit:audit",
        "Find the rows whose labels are wrong: imae audit DATA, or imae audit RUN.",
    ),
    "report": ("compare:report", "Compare runs: print their table and write one offline page."),
    "reproduce": (
        "compare:reproduce",
        "Run a table or figure of the paper, and show its numbers beside the measured ones.",
    ),
    "predict": (
        "predict:predict",
        "Predict the class of every row of DATA, with the probability of each class.",
    ),
    "export": ("predict:export", "Write the network of a run for use without imae."),
    "eval-retrieval": (
        "predict:eval_retrieval",
        "Rank a gallery for every query by cosine similarity: mAP and CMC.",
    ),
    "eval-robust": (
        "predict:eval_robust",
        "Perturb the test images of a run to mislead its network, and measure the accuracy.",
    ),
    "curves": (
        "data:curves",
        "Show which examples each loss weights most: a table, and the paper's figures.",
    ),
    "noise": ("data:noise", "Write the labels of DATA with noise of a known kind."),
    "data": ("data:data", "List, fetch and verify named data sets."),
    "list": (
        "data:list_entries",
        "List losses, methods, noise, models, data, recipes or settings by name.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, 2 for a user's error, 130 for Ctrl-C."""
    command = typer.main.get_command(build())
    given = None if arguments is None else list(arguments)
    try:
        code = command(args=given, prog_name="imae", standalone_mode=False)
    except ArgumentError as error:  # the only one that may list several problems, a line each
        return _fail(*str(error).splitlines())
    except (ImaeError, OSError) as error:
        line = str(error)
        if not isinstance(error, ImaeError) and error.filename and error.strerror:
            line = f"{error.filename}: {error.strerror}"
        return _fail(line, code=getattr(error, "code", 2))
    except (typer.Abort, KeyboardInterrupt):
        return _fail("stopped", code=INTERRUPTED)
    except Exception as error:
        # Usage errors come from click or from typer's own copy of it, by version; both say so.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
            return 0
        return _fail(format_message())
    if code == INTERRUPTED:  # some versions of typer turn Ctrl-C into this code, without a word
        return _fail("stopped", code=INTERRUPTED)
    return code if isinstance(code, int) else 0


def build() -> typer.Typer:
    """The program with a placeholder for each command, whose module is loaded when it is called.

    So help, version and shell completion answer without torch.
    """

    class Commands(typer.core.TyperGroup):
        """Listings show the placeholders; a command that is called is replaced by the real one."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, placeholder, rest = super().resolve_command(ctx, args)
            return name, placeholder and load_command(str(name)), rest

    app = typer.Typer(
        help="Train on labels you cannot trust, and find the ones that are wrong.",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def about(
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ) -> None:
        del version  # its callback has done the work

    for name, (_, summary) in COMMANDS.items():
        app.command(name=name, help=summary)(_placeholder)
    return app


def load_command(name: str) -> Any:
    """The command of this name, with its options, from the module that defines it."""
    place, _ = COMMANDS[name]
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(f"imae.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):  # a command with parts, such as `imae data list`
        built = typer.main.get_command(command)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name=name)(command)
        built = typer.main.get_command(app)
    for part in (built, *getattr(built, "commands", {}).values()):
        part.help = _paragraphs(part.help or "")
        for each in part.params:
            if each.param_type_name == "argument" and each.metavar is None:
                each.metavar = each.name.upper()  # as the help calls it
    return built


def _paragraphs(text: str) -> str:
    """The text with its paragraphs in one line each, which a terminal breaks by its own width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _placeholder() -> None:
    raise AssertionError("a command is called by its own module")


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        print(importlib.metadata.version("imae"))
        raise typer.Exit()


def _fail(*problems: str, code: int = 2) -> int:
    for problem in problems:
        print(f"imae: {' '.join(problem.split())}", file=sys.stderr)
    return code


NOISE = typer.Option(None, "--noise", help="Noise to add, such as symmetric:0.4.")
ROOT = typer.Option(None, "--root", help="Folder that holds a named data set.")
MODEL = typer.Option(None, "--model", show_default="one that suits the data", help="Network.")
SEED = typer.Option(None, "--seed", show_default="123", help="Random seed.")
EPOCHS = typer.Option(None, "--epochs", show_default="40", help="Passes over the data.")
STEPS = typer.Option(None, "--steps", help="Optimiser steps, instead of epochs.")
LR = typer.Option(None, "--lr", show_default="0.05", help="Learning rate.")
FEATURES = typer.Option(
    None,
    "--features",
    help="Pretrained network, or wordllama for texts, whose features replace the rows.",
)
LABELS = typer.Option(
    None, "--labels", help="File of given labels by row id, in place of those in DATA."
)
LABEL_COLUMN = typer.Option(
    None, "--label-column", help="Column of the labels, for a table.", rich_help_panel="Data"
)
ID_COLUMN = typer.Option(
    None, "--id-column", help="Column of the row ids, for a table.", rich_help_panel="Data"
)
DROP = typer.Option(
    None,
    "--drop",
    metavar="COLUMN",
    help="Column of a table that is not used; may be repeated.",
    rich_help_panel="Data",
)


def column_options(
    label_column: str | None, id_column: str | None, drop: list[str] | None
) -> dict[str, Any]:
    """Options of ``imae.data.load`` that say what the columns of a table are."""
    options = {"label_column": label_column, "id_column": id_column, "drop": drop or None}
    return {name: value for name, value in options.items() if value is not None}


def data_flags(
    label_column: str | None, id_column: str | None, drop: list[str] | None
) -> dict[str, object]:
    """The same as settings of a run."""
    given = column_options(label_column, id_column, drop)
    return {f"data.options.{name}": value for name, value in given.items()}


def column_words(options: Mapping[str, Any]) -> list[str]:
    """Command line options that are equivalent to options of ``imae.data.load``."""
    words: list[str] = []
    for name, value in options.items():
        if name in ("label_column", "id_column", "drop"):
            for column in [value] if isinstance(value, str) else value:
                words += [f"--{name.replace('_', '-')}", column]
        else:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            words += ["--set", f"data.options.{name}={text}"]
    return words


OVERWRITE = typer.Option(False, "--overwrite", help="Replace files that exist.")


_SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".npy")


def check_path_exists(data: str | None) -> None:
    """Raises at once if data that can only be a path does not exist, before torch is loaded.

    Raises:
        DataError: If so.
    """
    if data is None or os.path.lexists(data):
        return
    if os.sep in data or data.lower().endswith(_SUFFIXES):
        raise DataError(f"{data}: no such file or folder")


def refuse_overwriting(data: str, out: Path) -> None:
    """Raises if the output would replace the data.

    Raises:
        ArgumentError: If both are the same file.
    """
    from imae.data.sources.catalog import SOURCES

    if (
        data not in SOURCES
        and os.path.exists(data)
        and out.exists()
        and os.path.samefile(data, out)
    ):
        raise ArgumentError(f"--out {out}: is the data itself; choose another file")


def gather_settings(
    config: Path | None, settings: Sequence[str] | None, flags: Mapping[str, object]
) -> dict[str, Any]:
    """The settings of a file, then those of ``--set``, then those of other options.

    Args:
        config: File of settings, if there is one.
        settings: Texts such as ``optimizer.lr=0.1``.
        flags: Options by the setting that they set; None for those not given.

    Raises:
        ArgumentError: If the file cannot be read, or a text has another form.
    """
    from imae.train import read_config_file, with_settings, with_values

    content = {} if config is None else read_config_file(config)
    budget = content.get("train")
    # A budget on the command line replaces the other kind of budget in the file.
    for key, other in (("epochs", "steps"), ("steps", "epochs")):
        is_replaced = flags.get(f"train.{key}") is not None and flags.get(f"train.{other}") is None
        if is_replaced and isinstance(budget, dict):
            budget.pop(other, None)
    return with_values(with_settings(content, settings or ()), flags)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, which appears with the first report; a line now and then in a log."""
    if not sys.stderr.isatty():
        from imae.data.extract import ProgressLog

        yield ProgressLog(name)
        return
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(name, total=None)

    def show(done: int, total: int) -> None:
        bar.start()  # not before: features of a frozen network have a bar of their own
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


_NARROWEST = 8  # characters of a cell that was shortened


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints each warning of the block as one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for line in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"Note: {line}", err=True)


def print_table(
    table: Table, console: Console | None = None, *, shortened: Sequence[str] = ()
) -> None:
    """Prints a table in which no word is broken.

    Columns share the width that is left by their longest words so that the table has few lines.
    If even these do not fit, words in the columns that may be shortened lose their middle; then
    columns are left out from the right, and named below the table.

    Args:
        table: The table.
        console: Where to print it; by default the standard output.
        shortened: Headers of columns whose words may be shortened, such as names that a user chose.
    """
    console = console or Console()
    spans = [_span(console, column) for column in table.columns]
    names = [place for place, each in enumerate(table.columns) if each.header in shortened]
    if names:
        fixed = sum(low for place, (low, _) in enumerate(spans) if place not in names)
        limit = max(spans[place][0] for place in names)
        while limit > _NARROWEST and fixed + sum(
            min(spans[place][0], limit) for place in names
        ) > _room(console, spans):
            limit -= 1
        for place in names:
            if spans[place][0] > limit:
                _shorten(table.columns[place], limit)
                spans[place] = _span(console, table.columns[place])
    left_out: list[str] = []
    while len(spans) > 2 and sum(low for low, _ in spans) > _room(console, spans):
        spans.pop()
        left_out.insert(0, str(table.columns.pop().header))
    spare = _room(console, spans) - sum(low for low, _ in spans)
    wanted = sum(high - low for low, high in spans)
    if 0 <= spare < wanted:
        widths = [low + (high - low) * spare // wanted for low, high in spans]
        cells = [
            [console.render_str(cell).plain if isinstance(cell, str) else str(cell) for cell in row]
            for row in zip(*(column.cells for column in table.columns), strict=True)
        ]
        for column, width in zip(table.columns, _fewest_lines(cells, widths, spans), strict=True):
            column.width = width
    console.print(table)
    if left_out:
        line = f"left out for lack of width: {', '.join(left_out)}"
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _fewest_lines(
    cells: Sequence[Sequence[str]], widths: Sequence[int], spans: Sequence[tuple[int, int]]
) -> list[int]:
    """The widths after room has moved between columns as long as that saves lines."""

    @functools.cache
    def lines(text: str, width: int) -> int:
        parts = [textwrap.wrap(each, width, break_on_hyphens=False) for each in text.split("\n")]
        return sum(max(1, len(part)) for part in parts)

    def height(tried: Sequence[int]) -> int:
        return sum(max(map(lines, row, tried)) for row in cells)

    best = list(widths)
    while True:
        moved = [best]
        for giver, taker in itertools.permutations(range(len(best)), 2):
            most = min(best[giver] - spans[giver][0], spans[taker][1] - best[taker])
            for part in range(1, most + 1):
                tried = list(best)
                tried[giver] -= part
                tried[taker] += part
                moved.append(tried)
        better = min(moved, key=height)  # the first of equals: it moves least
        if better is best:
            return best
        best = better


def _shorten(column: Column, limit: int) -> None:
    """Removes the middle of the words of a column that are longer than the limit."""
    from imae.report.formats import shorten_middle

    column._cells[:] = [
        Text(" ".join(shorten_middle(word, limit=limit) for word in str(cell).split(" ")))
        for cell in column.cells
    ]


def _room(console: Console, spans: Sequence[tuple[int, int]]) -> int:
    return console.width - 3 * len(spans) - 1  # lines between columns, and a space on each side


def _span(console: Console, column: Column) -> tuple[int, int]:
    """Width of the longest word and of the longest cell of a column."""
    cells = [column.header, *column.cells]
    found = [Measurement.get(console, console.options, cell) for cell in cells]
    high = max(each.maximum for each in found)
    return high if column.no_wrap else max(each.minimum for each in found), high


def say(sentence: str) -> None:
    """Prints a sentence: on a terminal broken between words, in a log one line.

    A sentence with a command stays in one line too, so that the command can be copied.
    """
    console = Console()
    console.print(Text(sentence), soft_wrap="imae " in sentence or not console.is_terminal)


def command_line(*words: object) -> str:
    """The words as one line for a shell, quoted where necessary, and printable on a terminal.

    Examples:
        >>> command_line("imae", "train", "my photos")
        "imae train 'my photos'"
    """
    from imae.records.files import printable

    return " ".join(shlex.quote(printable(word)) for word in words)


def say_next(*words: object) -> None:
    """Prints the suggested next command to stderr."""
    typer.echo(f"next: {command_line(*words)}", err=True)
