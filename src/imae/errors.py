"""Errors that a user can cause, and the argument checks that raise them."""

import importlib
import math
from collections.abc import Collection
from types import ModuleType
from typing import SupportsFloat, SupportsIndex


class ImaeError(Exception):
    """Base of every error that the user, not the program, can fix."""


class ArgumentError(ImaeError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule and the value."""


class DataError(ImaeError, ValueError):
    """A data file or data set is not usable; the message names the file and, if known, the row."""


class ChangedDataError(DataError):
    """Data that can be read but is not what a run was trained on."""


class MissingExtraError(ImaeError, ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""


_LONGEST_LINE = 400  # a compiler's message may have 100,000 characters


def in_one_line(error: BaseException) -> str:
    """The kind of an error and its message, cut if it is very long.

    Examples:
        >>> in_one_line(ValueError("a long   reason"))
        'ValueError: a long reason'
    """
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."


def import_extra(module: str, *, extra: str | None) -> ModuleType:
    """The imported module, or an error with the command that installs it.

    Args:
        module: Dotted name of the module, for example ``"PIL.Image"``.
        extra: Extra of this package that installs it, for example ``"data"``; None for a package
            that no extra installs.

    Raises:
        MissingExtraError: If the module's distribution is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # the dependency is installed, but something inside it is broken
        package = module.split(".")[0]
        wanted = package if extra is None else f"'imae[{extra}]'"
        raise MissingExtraError(
            f"{package} is needed for this and not installed: pip install {wanted}"
        ) from error


def check_interval(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raises unless ``value`` is a finite number between ``low`` and ``high``.

    Raises:
        ArgumentError: If the value is outside, infinite, NaN or not a number.
    """
    if type(value) is float and low < value < high:  # as nearly always: the checks below are slow
        return
    if isinstance(value, bool | str | bytes) or not isinstance(value, SupportsFloat):
        raise ArgumentError(f"{name} must be a number, got {value!r}")
    # Whole numbers are compared as they are: a float does not have enough digits for a seed.
    number: float = value if isinstance(value, int) else _as_float(name, value)
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below and -math.inf < _as_float(name, value) < math.inf):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        ends = (each if isinstance(each, int) else f"{each:g}" for each in (low, high))
        raise ArgumentError(
            f"{name} must be in {left}{', '.join(map(str, ends))}{right}, got {value!r}"
        )


def _as_float(name: str, value: SupportsFloat) -> float:
    try:
        # Converting a tensor that requires a gradient would warn.
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
    except (TypeError, ValueError, RuntimeError):  # an array of several
        raise ArgumentError(f"{name} must be one number, got {value!r}") from None


def check_integer(name: str, value: object, *, low: int) -> None:
    """Raises unless ``value`` is an integer of at least ``low`` (``True`` is not one).

    Raises:
        ArgumentError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ArgumentError(f"{name} must be an integer, got {value!r}")
    if value.__index__() < low:
        raise ArgumentError(f"{name} must be at least {low}, got {value!r}")


def check_choice(name: str, value: object, choices: Collection[str | None]) -> None:
    """Raises unless ``value`` is one of ``choices``.

    Raises:
        ArgumentError: If it is not.
    """
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def check_not_masked(name: str, values: object) -> None:
    """Raises if values of a masked array of numpy are masked: converted, it has what is behind.

    Raises:
        DataError: If so.
    """
    import numpy as np  # help needs none

    if isinstance(values, np.ma.MaskedArray) and (masked := np.argwhere(values.mask)).size:
        raise DataError(
            f"{name}: {len(masked)} values are masked, the first in row {masked[0][0]} (counted "
            "from 0); fill them in or remove the rows"
        )
