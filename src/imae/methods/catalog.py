"""The methods that can be asked for by name."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from imae._registry import Catalog, Entry
from imae.curves.catalog import CURVES
from imae.curves.classic import MAE
from imae.curves.combinators import Scale
from imae.losses.general import (
    bootstrap_loss,
    label_smoothing_loss,
    normalized_cross_entropy,
    reverse_cross_entropy,
)
from imae.methods.curve_method import CurveMethod
from imae.methods.loss_method import LossMethod
from imae.methods.method import Method

CURVE_OPTIONS: Mapping[str, Any] = {
    "window_low": None,
    "window_high": None,
    "normalize": None,
    "bound": None,
}

_REED = "Reed et al., Training deep neural networks on noisy labels with bootstrapping, 2015"
_MA = "Ma et al., Normalized loss functions for deep learning with noisy labels, ICML 2020"
_SZEGEDY = "Szegedy et al., Rethinking the Inception architecture, CVPR 2016"
_IMAE = "Wang et al., IMAE for Noise-Robust Learning, 2023; the two options are ours"


def _curve_method(name: str, /, **arguments: Any) -> Method:
    options = {option: arguments.pop(option) for option in CURVE_OPTIONS}
    return CurveMethod(CURVES.build(name, **arguments), **options)


def _label_smoothing(smoothing: float) -> Method:
    return LossMethod(partial(label_smoothing_loss, smoothing=smoothing))


def _bootstrap(beta: float, *, hard: bool) -> Method:
    return LossMethod(partial(bootstrap_loss, beta=beta, hard=hard))


def _nce_mae(alpha: float, beta: float) -> Method:
    passive = Scale(MAE(), beta)
    return LossMethod(partial(normalized_cross_entropy, scale=alpha, passive=passive))


def _nce_rce(alpha: float, beta: float, A: float) -> Method:  # noqa: N803
    passive = reverse_cross_entropy(A=A, factor=beta)
    return LossMethod(partial(normalized_cross_entropy, scale=alpha, passive=passive))


METHODS: Catalog[Method] = Catalog(
    "method",
    (
        Entry(
            "imae_stable",
            partial(_curve_method, "imae"),
            "IMAE made stable: the batch's mean weight is 1, the logits are bounded",
            _IMAE,
            {"T": 8.0, **CURVE_OPTIONS, "normalize": "batch", "bound": 5.0},
        ),
        *(
            Entry[Method](
                curve.name,
                partial(_curve_method, curve.name),
                curve.summary,
                curve.reference,
                {**curve.defaults, **CURVE_OPTIONS},
            )
            for curve in CURVES
        ),
        Entry(
            "label_smoothing",
            _label_smoothing,
            "cross entropy with a part of the label spread over all classes",
            _SZEGEDY,
            {"smoothing": 0.1},
        ),
        Entry(
            "bootstrap_soft",
            partial(_bootstrap, hard=False),
            "cross entropy against label and prediction mixed",
            _REED,
            {"beta": 0.95},
        ),
        Entry(
            "bootstrap_hard",
            partial(_bootstrap, hard=True),
            "cross entropy against label and most likely class mixed",
            _REED,
            {"beta": 0.8},
        ),
        Entry(
            "nce_mae",
            _nce_mae,
            "normalised cross entropy with MAE",
            _MA,
            {"alpha": 1.0, "beta": 1.0},
        ),
        Entry(
            "nce_rce",
            _nce_rce,
            "normalised cross entropy with reverse cross entropy",
            _MA,
            {"alpha": 1.0, "beta": 1.0, "A": -4.0},
        ),
    ),
)
