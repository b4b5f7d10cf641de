"""`imae audit`: which labels are wrong, from one training run."""

from typing import Any

import typer

from imae.cli.review import apply, check, export, serve

_DEFAULT = "run"


class _Audit(typer.core.TyperGroup):
    """Commands of which the first is meant where none is named: `imae audit DATA`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named or not args else [_DEFAULT, *args])


audit = typer.Typer(
    cls=_Audit,
    no_args_is_help=True,
    add_completion=False,
    help="Find the rows whose labels are wrong: imae audit DATA, or imae audit RUN.",
)
for _command in (serve, check, apply, export):
    audit.command()(_command)
