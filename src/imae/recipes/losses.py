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
    "focal": "Focal",
    "agce": "AGCE",
    "dm": "DM",
    "icce": "ICCE",
    "forward_symmetric": "Forward, known rate",
    "label_smoothing": "LS",
    "nce_mae": "NCE+MAE",
    "nce_rce": "NCE+RCE",
    "bootstrap_hard": "Boot-hard",
    "bootstrap_soft": "Boot-soft",
    "forward": "Forward",
    "backward": "Backward",
    "d2l": "D2L",
    "s_adaptation": "S-adaptation",
    "masking": "Masking",
    "joint_optim": "Joint Optim.",
    "truncated_gce": "Truncated GCE",
    "trimmed": "Trimmed",
    "co_teaching": "Co-teaching",
    "l2rw": "L2RW",
    "elr": "ELR",
    "active_bias": "Active Bias",
    "imae_stable": "IMAE, stable",
}

_CLEAN_T = 0.5
_NOISY_T = 8.0
# The paper prints no T for CIFAR-100. These are the T of the runs that the authors published with
# their code (the numbers in its folder names); for other rates, what they have for 20 and 40%.
_T_OF_CIFAR100: Mapping[float, float] = {0.0: 6.0, 0.6: 2.0}
# What the authors of a method set, where it is not the default here: the code of Wang et al.,
# "Symmetric cross entropy", of Liu et al., "Early-learning regularization", and of Ma et al.,
# "Normalized loss functions", whose MAE is 1 - p, half of what it is here.
_FOR_10_CLASSES: Mapping[str, Mapping[str, float]] = {
    "nce_mae": {"alpha": 1.0, "beta": 0.5},
}
_FOR_100_CLASSES: Mapping[str, Mapping[str, float]] = {
    "sl": {"alpha": 6.0, "beta": 0.1},
    "elr": {"beta": 0.9, "strength": 7.0},
    "nce_mae": {"alpha": 10.0, "beta": 0.5},
    "nce_rce": {"alpha": 10.0, "beta": 0.1},
}


def method(name: str, *, rate: float, num_classes: int = 10) -> Settings:
    """Settings of a method.

    IMAE has T = 8 under noise and 0.5 without, as in the paper; for 100 classes, of which the
    paper says nothing, 6 without noise, 2 at 60% and else 8, as in the authors' code.

    Args:
        name: Name of the method.
        rate: Part of the labels that is wrong, which some methods have to be told.
        num_classes: Classes of the data.

    Examples:
        >>> method("imae", rate=0)
        {'method': {'name': 'imae', 'arguments': {'T': 0.5}}}
        >>> method("co_teaching", rate=0.2)
        {'method': {'name': 'co_teaching', 'arguments': {'rate': 0.2}}}
        >>> method("sl", rate=0.4, num_classes=100)
        {'method': {'name': 'sl', 'arguments': {'alpha': 6.0, 'beta': 0.1}}}
    """
    set_by_authors = _FOR_100_CLASSES if num_classes == 100 else _FOR_10_CLASSES
    arguments: dict[str, Any] = dict(set_by_authors.get(name, {}))
    if name in ("imae", "imae_stable"):
        of_few_classes = _NOISY_T if rate > 0 else _CLEAN_T
        is_large = num_classes == 100
        arguments["T"] = _T_OF_CIFAR100.get(rate, _NOISY_T) if is_large else of_few_classes
    elif name in ("co_teaching", "forward_symmetric"):
        arguments["rate"] = rate
    elif name == "trimmed":
        arguments["keep"] = 1 - rate
    return {"method": {"name": name, "arguments": arguments}}


def title(name: str) -> str:
    """The name of a method in a table."""
    return TITLES[name]
