"""The `imae` command: one module a subcommand, one clear line for a user's mistake."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imae.errors import ImaeError

if TYPE_CHECKING:
    import typer


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0, 2 for a user's error, 130 for Ctrl-C."""
    try:
        import click
        import typer
    except ModuleNotFoundError:
        print("imae: the command line needs: pip install 'imae[cli]'", file=sys.stderr)
        return 2
    given = None if arguments is None else list(arguments)
    try:
        code = typer.main.get_command(_build())(
            args=given, prog_name="imae", standalone_mode=False
        )
    except (ImaeError, OSError) as error:
        return _fail(str(error))
    except click.ClickException as error:
        return _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", code=130)
    return code if isinstance(code, int) else 0


def _build() -> "typer.Typer":
    import typer

    from imae.cli import curves

    app = typer.Typer(
        help="Train on labels you cannot trust, and find the ones that are wrong.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (curves,):
        command.register(app)
    return app


def _fail(message: str, *, code: int = 2) -> int:
    print(f"imae: {' '.join(message.split())}", file=sys.stderr)
    return code
