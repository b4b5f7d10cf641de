"""Curves written as text, for command lines and configuration files."""

from imae.curves.base import Curve
from imae.curves.catalog import CURVES
from imae.errors import ArgumentError


def parse_curve(text: str) -> Curve:
    """The curve that a text such as ``imae``, ``imae:T=16`` or ``sl:alpha=6,beta=0.1`` names.

    Args:
        text: A name of ``imae.curves.CURVES``, then after a colon its parameters.

    Raises:
        ArgumentError: If the name or a parameter is unknown, or a value is not a number.

    Examples:
        >>> parse_curve("imae:T=16")
        IMAE(T=16.0)
    """
    if not isinstance(text, str):
        raise ArgumentError(f"a curve is named by a text such as imae:T=8, got {text!r}")
    name, _, rest = text.partition(":")
    defaults = CURVES.find(name).defaults
    arguments: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        try:
            arguments[key] = type(defaults.get(key, 0.0))(value)
        except ValueError:
            raise ArgumentError(f"{text!r}: {key} must be a number, got {value!r}") from None
        if not equals:
            raise ArgumentError(f"{text!r}: write parameters as name=value, got {part!r}")
    return CURVES.build(name, **arguments)
