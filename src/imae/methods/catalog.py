"""The methods that can be asked for by name."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from imae._checks import check_interval
from imae._registry import Catalog, Entry
from imae.curves.catalog import CURVES
from imae.curves.classic import MAE
from imae.curves.curve import Scale
from imae.losses.general import (
    bootstrap_loss,
    label_smoothing_loss,
    normalized_cross_entropy,
    reverse_cross_entropy,
)
from imae.methods.active_bias import ActiveBias
from imae.methods.co_teaching import CoTeaching
from imae.methods.correction import BackwardCorrection, ForwardCorrection
from imae.methods.d2l import D2L
from imae.methods.elr import ELR
from imae.methods.joint_optim import JointOptim
from imae.methods.l2rw import LearningToReweight
from imae.methods.loss_method import CurveMethod, LossMethod
from imae.methods.masking import Masking
from imae.methods.method import Method
from imae.methods.pruning import Trimmed, TruncatedGCEMethod
from imae.methods.s_adaptation import SAdaptation

CURVE_OPTIONS: Mapping[str, Any] = {
    "window_low": None,
    "window_high": None,
    "normalize": None,
    "bound": None,
}

_REED = "Reed et al., Training deep neural networks on noisy labels with bootstrapping, 2015"
_MA = "Ma et al., Normalized loss functions for deep learning with noisy labels, ICML 2020"
_SZEGEDY = "Szegedy et al., Rethinking the Inception architecture, CVPR 2016"
_PATRINI = "Patrini et al., Making deep neural networks robust to label noise, CVPR 2017"
_GOLDBERGER = (
    "Goldberger and Ben-Reuven, Training deep neural-networks using a noise adaptation layer, "
    "ICLR 2017"
)
_HAN_MASKING = "Han et al., Masking: a new perspective of noisy supervision, NeurIPS 2018"
_IMAE = "Wang et al., IMAE for Noise-Robust Learning, 2023; the two options are ours"


def _curve_method(name: str, /, **arguments: Any) -> Method:
    options = {option: arguments.pop(option) for option in CURVE_OPTIONS}
    return CurveMethod(CURVES.build(name, **arguments), **options)


# What a loss checks on its first call is checked here too, before a run begins.


def _label_smoothing(smoothing: float) -> Method:
    check_interval("smoothing", smoothing, low=0, high=1)
    return LossMethod(partial(label_smoothing_loss, smoothing=smoothing))


def _bootstrap(beta: float, *, hard: bool) -> Method:
    check_interval("beta", beta, low=0, high=1)
    return LossMethod(partial(bootstrap_loss, beta=beta, hard=hard))


def _nce_mae(alpha: float, beta: float) -> Method:
    check_interval("alpha", alpha, low=0)
    passive = Scale(MAE(), beta)
    return LossMethod(partial(normalized_cross_entropy, scale=alpha, passive=passive))


def _nce_rce(alpha: float, beta: float, A: float) -> Method:  # noqa: N803
    check_interval("alpha", alpha, low=0)
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
            if curve.name != "truncated_gce"  # as a method it prunes, and stands below
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
        Entry(
            "forward",
            ForwardCorrection,
            "cross entropy of the given label after a transition matrix",
            _PATRINI,
            {"matrix": "estimate", "warm_up": 0.5, "quantile": None},
        ),
        Entry(
            "backward",
            BackwardCorrection,
            "cross entropy made unbiased by the inverse of a transition matrix",
            _PATRINI,
            {"matrix": "estimate", "warm_up": 0.5, "quantile": None},
        ),
        Entry(
            "s_adaptation",
            SAdaptation,
            "a layer after the network that learns how labels go wrong",
            _GOLDBERGER,
            {"variant": "simple", "warm_up": 0.25},
        ),
        Entry(
            "masking",
            Masking,
            "a transition matrix learned under a structure that is known beforehand",
            _HAN_MASKING,
            {
                "structure": "open",
                "columns": None,
                "groups": None,
                "warm_up": 0.25,
                "threshold": 0.05,
                "rate": 1.5,
            },
        ),
        Entry(
            "truncated_gce",
            TruncatedGCEMethod,
            "GCE on the rows that an alternating search has not pruned",
            "Zhang and Sabuncu, Generalized cross entropy loss, NeurIPS 2018",
            {"q": 0.7, "k": 0.5, "warm_up": 0.7, "every": 1 / 12},
        ),
        Entry(
            "trimmed",
            Trimmed,
            "training on the rows of smallest loss, chosen anew in rounds",
            "Shen and Sanghavi, Iterative trimmed loss minimization, ICML 2019",
            {
                "loss": "cce",
                "keep": 0.6,
                "warm_up": 1 / 9,
                "every": 1 / 9,
                "normalize": None,
                "bound": None,
            },
        ),
        Entry(
            "co_teaching",
            CoTeaching,
            "two networks that choose rows of small loss for each other",
            "Han et al., Co-teaching, NeurIPS 2018",
            {"rate": 0.4, "gradual": 0.25, "exponent": 1.0},
        ),
        Entry(
            "l2rw",
            LearningToReweight,
            "rows weighted by how far they help rows that are trusted",
            "Ren et al., Learning to reweight examples, ICML 2018",
            {"batch_size": 100},
        ),
        Entry(
            "joint_optim",
            JointOptim,
            "labels replaced by averaged predictions, then learned by a new network",
            "Tanaka et al., Joint optimization framework for noisy labels, CVPR 2018",
            {
                "alpha": 1.0,
                "beta": 0.5,
                "first_stage": 0.625,
                "update_from": 0.21875,
                "average_over": 0.03125,
                "targets": "soft",
            },
        ),
        Entry(
            "elr",
            ELR,
            "cross entropy held to a moving average of each row's predictions",
            "Liu et al., Early-learning regularization, NeurIPS 2020",
            {"beta": 0.7, "strength": 3.0},
        ),
        Entry(
            "d2l",
            D2L,
            "labels mixed with predictions once the features' dimensionality grows",
            "Ma et al., Dimensionality-driven learning with noisy labels, ICML 2018",
            {"neighbours": 20, "warm_up": 0.1, "window": 5},
        ),
        Entry(
            "active_bias",
            ActiveBias,
            "cross entropy weighted by how uncertain past predictions of a row are",
            "Chang et al., Active bias, NeurIPS 2017",
            {"uncertainty": "variance", "warm_up": 0.15, "smoothness": None},
        ),
    ),
)
