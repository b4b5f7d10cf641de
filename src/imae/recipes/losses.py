"""Losses and methods as the tables name them."""

from collections.abc import Mapping
from typing import Any

from imae.recipes.recipe import Settings

TITLES: Mapping[str, str] = {
    "cce": "CCE",
    "mae": "MAE",
    "imae": "IMAE",
    "gce": "GCE",
    "sl": "SL",
    "label_smoothing": "LS",
    "bootstrap_hard": "Boot-hard",
    "bootstrap_soft": "Boot-soft",
    "forward": "Forward",
    "backward": "Backward",
    "d2l": "D2L",
    "s_adaptation": "S-adaptation",
    "masking": "Masking",
    "joint_optim": "Joint Optim.",
    "imae_stable": "IMAE, stable",
}

_CLEAN_T = 0.5
_NOISY_T = 8.0


def method(name: str, *, rate: float) -> Settings:
    """Settings of a method; IMAE has T = 8 under noise and 0.5 without, as in the paper.

    Args:
        name: Name of the method.
        rate: Part of the labels that is wrong, which co_teaching and trimmed have to be told.

    Examples:
        >>> method("imae", rate=0)
        {'method': {'name': 'imae', 'arguments': {'T': 0.5}}}
        >>> method("co_teaching", rate=0.2)
        {'method': {'name': 'co_teaching', 'arguments': {'rate': 0.2}}}
        >>> method("gce", rate=0.4)
        {'method': {'name': 'gce', 'arguments': {}}}
    """
    arguments: dict[str, Any] = {}
    if name in ("imae", "imae_stable"):
        arguments["T"] = _NOISY_T if rate > 0 else _CLEAN_T
    elif name == "co_teaching":
        arguments["rate"] = rate
    elif name == "trimmed":
        arguments["keep"] = 1 - rate
    return {"method": {"name": name, "arguments": arguments}}


def title(name: str) -> str:
    """The name of a method in a table."""
    return TITLES.get(name, name)
