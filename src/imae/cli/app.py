"""The `imae` command: one module a subcommand, one clear line for a user's mistake."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imae.errors import ArgumentError, ImaeError

if TYPE_CHECKING:
    import typer

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, 2 for a user's error, 130 for Ctrl-C."""
    try:
        import typer
    except ModuleNotFoundError:
        print("imae: the command line needs: pip install 'imae[cli]'", file=sys.stderr)
        return 2
    command = typer.main.get_command(_build())
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


def _build() -> "typer.Typer":
    import typer

    from imae.cli import audit, compare, curves, data, predict, report, reproduce, train
    from imae.cli import list as list_command

    app = typer.Typer(
        help="Train on labels you cannot trust, and find the ones that are wrong.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def about(
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ) -> None:
        del version  # its callback has done the work

    compare.register_demo(app)
    train.register(app)
    compare.register(app)
    audit.register(app)
    report.register(app)
    reproduce.register(app)
    predict.register(app)
    predict.register_export(app)
    curves.register(app)
    data.register_noise(app)
    data.register(app)
    list_command.register(app)
    return app


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
