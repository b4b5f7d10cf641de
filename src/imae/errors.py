"""Errors that a user can cause, and imports of optional packages."""

import importlib
from types import ModuleType


class ImaeError(Exception):
    """Base of every error that the user, not the program, can fix."""


class ArgumentError(ImaeError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule and the value."""


class DataError(ImaeError, ValueError):
    """A data file or data set is not usable; the message names the file and, if known, the row."""


class MissingExtraError(ImaeError, ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""


def import_extra(module: str, *, extra: str | None) -> ModuleType:
    """The imported module, or an error that names the command which installs it.

    Args:
        module: Dotted name of the module, for example ``"PIL.Image"``.
        extra: Extra of this package that brings it, for example ``"data"``; None for a package
            that no extra installs.

    Raises:
        MissingExtraError: If the module's distribution is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # the dependency is there, and something inside it is broken
        package = module.split(".")[0]
        wanted = package if extra is None else f"'imae[{extra}]'"
        raise MissingExtraError(
            f"{package} is needed for this and not installed: pip install {wanted}"
        ) from error
