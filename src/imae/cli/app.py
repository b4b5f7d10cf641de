"""The `imae` command: one module a subcommand, one clear line for a user's mistake."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from imae.errors import ArgumentError, ImaeError

if TYPE_CHECKING:
    import typer

_INTERRUPTED = 130

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
        "tune:tune",
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
        "evaluate:eval_retrieval",
        "Rank a gallery for every query by cosine similarity: mAP and CMC.",
    ),
    "eval-robust": (
        "evaluate:eval_robust",
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
        "List what has a name: losses, methods, noise, models, data, recipes, settings.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, 2 for a user's error, 130 for Ctrl-C."""
    try:
        import typer
    except ModuleNotFoundError:
        print("imae: the command line needs: pip install 'imae[cli]'", file=sys.stderr)
        return 2
    command = typer.main.get_command(build())
    given = None if arguments is None else list(arguments)
    try:
        code = command(args=given, prog_name="imae", standalone_mode=False)
    except ArgumentError as error:  # the only one that may list several problems, a line each
        return _fail(*str(error).splitlines())
    except (ImaeError, OSError) as error:
        return _fail(str(error), code=getattr(error, "code", 2))
    except (typer.Abort, KeyboardInterrupt):
        return _fail("stopped", code=_INTERRUPTED)
    except Exception as error:
        # Usage errors come from click or from typer's own copy of it, by version; both say so.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
            return 0
        return _fail(format_message())
    if code == _INTERRUPTED:  # some versions of typer turn Ctrl-C into this code, without a word
        return _fail("stopped", code=_INTERRUPTED)
    return code if isinstance(code, int) else 0


def build() -> "typer.Typer":
    """The program with a placeholder for each command, whose module is loaded when it is called.

    So help, version and shell completion answer without torch.
    """
    import typer

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
    import typer

    place, _ = COMMANDS[name]
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(f"imae.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):  # a command with parts, such as `imae data list`
        return typer.main.get_command(command)
    app = typer.Typer(add_completion=False)
    app.command(name=name)(command)
    return typer.main.get_command(app)


def _placeholder() -> None:
    raise AssertionError("a command is called by its own module")


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        import typer

        print(importlib.metadata.version("imae"))
        raise typer.Exit()


def _fail(*problems: str, code: int = 2) -> int:
    for problem in problems:
        print(f"imae: {' '.join(problem.split())}", file=sys.stderr)
    return code
