"""Importing optional dependencies where they are used."""

import importlib
from types import ModuleType

from imae.errors import MissingExtraError


def import_extra(module: str, *, extra: str) -> ModuleType:
    """The imported module, or an error that names the command which installs it.

    Args:
        module: Dotted name of the module, for example ``"PIL.Image"``.
        extra: Extra of this package that brings it, for example ``"data"``.

    Raises:
        MissingExtraError: If the module's distribution is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # the dependency is there, and something inside it is broken
        package = module.split(".")[0]
        raise MissingExtraError(
            f"{package} is needed for this and not installed: pip install 'imae[{extra}]'"
        ) from error
