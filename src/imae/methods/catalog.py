"""The methods that can be chosen by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from imae._registry import Catalog, Entry, defaults_of, exports
from imae.curves.catalog import CURVES
from imae.curves.curve import Curve, integrate_from_zero
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError
from imae.losses.auto import AutoT
from imae.losses.general import bootstrap_loss, label_smoothing_loss
from imae.losses.margin import CappedLogits
from imae.losses.normalized import asymmetric_mse, eps_softmax_loss, nce_mae_loss, nce_rce_loss
from imae.methods.correction import BackwardCorrection, ForwardCorrection, SAdaptation
from imae.methods.masking import Masking
from imae.methods.method import ActiveNegative, CurveMethod, LossMethod, Method
from imae.methods.selection import CoTeaching, Trimmed, TruncatedGCEMethod
from imae.methods.targets import D2L, ELR, JointOptim
from imae.methods.weighting import OGC, ActiveBias, LearningToReweight

CURVE_OPTIONS: Mapping[str, Any] = defaults_of(CurveMethod)

_REED = "Reed et al., Training deep neural networks on noisy labels with bootstrapping, 2015"
_MA = "Ma et al., Normalized loss functions for deep learning with noisy labels, ICML 2020"
_WANG_JAL = "Wang et al., Joint asymmetric loss for learning with noisy labels, ICCV 2025"
_PATRINI = "Patrini et al., Making deep neural networks robust to label noise, CVPR 2017"
_IMAE = "Wang et al., IMAE for Noise-Robust Learning, 2023; the two options are ours"


def _entry(
    name: str,
    build: Callable[..., Method],
    title: str,
    summary: str,
    reference: str,
    **defaults: Any,
) -> Entry[Method]:
    """An entry with the defaults of ``build``, except for those given."""
    return Entry(name, build, summary, reference, {**defaults_of(build), **defaults}, title)


def _curve_entry(
    name: str, curve: str, title: str, summary: str, reference: str, **defaults: Any
) -> Entry[Method]:
    def build(**arguments: Any) -> Method:
        options = {option: arguments.pop(option) for option in CURVE_OPTIONS}
        if curve == IMAE.name and arguments == {"T": "auto"}:
            cap = options["cap"]
            return CurveMethod(AutoT(1.0 if cap is None else cap), **options)
        if curve == IMAE.name and isinstance(T := arguments.get("T"), str):
            raise ArgumentError(f"T must be a number or 'auto', got {T!r}")
        return CurveMethod(CURVES.build(curve, **arguments), **options)

    defaults = {**CURVES.find(curve).defaults, **CURVE_OPTIONS, **defaults}
    return Entry(name, build, summary, reference, defaults, title)


def _loss_entry(
    name: str,
    loss: Callable[..., Tensor],
    title: str,
    summary: str,
    reference: str,
    **defaults: Any,
) -> Entry[Method]:
    """An entry of a loss function; its own parameters are those that other losses do not have."""

    def build(**arguments: Any) -> Method:
        built = partial(loss, **arguments)
        # A wrong argument is refused here, before a run begins.
        built(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), reduction="none")
        return LossMethod(built)

    fixed = {
        "weight",
        "ignore_index",
        "reduction",
        *(loss.keywords if isinstance(loss, partial) else ()),
    }
    own = {key: value for key, value in defaults_of(loss).items() if key not in fixed}
    return Entry(name, build, summary, reference, {**own, **defaults}, title)


# Not beside the other curves, which have no such constant: tests/losses/test_margin.py.
_AUTHORS_CONSTANT = 5e-7


@final
@dataclass(frozen=True)
class AuthorsIMAE(Curve):
    """IMAE as in the authors' code, which divides by 1 - p and adds a constant against 0 / 0.

    Formula, with e = 5e-7:

        phi(m)  = -1/2 times the integral of w(sigmoid(t)) from 0 to m
        phi'(m) = -exp(T p (1 - p)) (1 - p) / (1 - p + e) / 2
        w(p)    = exp(T p (1 - p)) (1 - p) / (1 - p + e)

    It is IMAE until 1 - p comes near e, at a margin of about 14: beyond it rows stop pushing their
    logits. Here 1 - p is exact; in their code it rounds to 0 at a margin of 17.

    Args:
        T: The parameter of IMAE, in [0, 100].

    Examples:
        >>> AuthorsIMAE(T=8.0).weight(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1.0000, 7.3890, 0.0000])

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, and the code published with it.
    """

    T: float = 8.0
    name: ClassVar[str] = "imae_authors"

    def __post_init__(self) -> None:
        IMAE(self.T)  # checks it

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        return integrate_from_zero(self.slope, m)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        rest = torch.sigmoid(-m)
        return IMAE(self.T).slope(m) * rest / (rest + _AUTHORS_CONSTANT)


def _imae_authors(T: float = IMAE.T) -> Method:  # type: ignore[assignment]
    return CurveMethod(AuthorsIMAE(T), normalize="batch")


def _with_cap(entry: Entry[Method]) -> Entry[Method]:
    """The entry, with an option ``cap`` if it has none: every model can be capped."""
    if "cap" in entry.defaults:
        return entry

    def build(*, cap: float | None, **arguments: Any) -> Method:
        method = entry.build(**arguments)
        method.output_step = None if cap is None else CappedLogits(cap)
        return method

    return replace(entry, build=build, defaults={**entry.defaults, "cap": None})


_ENTRIES = (
    _curve_entry(
        "imae_capped",
        IMAE.name,
        "IMAE, capped",
        "IMAE with the confidence capped and T chosen in training: recommended",
        "Wang et al., IMAE for Noise-Robust Learning, 2023; the cap and the T are ours",
        T="auto",
        normalize="half",
        cap=0.75,
    ),
    _curve_entry(
        "imae_stable",
        IMAE.name,
        "IMAE, stable",
        "IMAE made stable: the batch's mean weight is 1, the logits are bounded",
        _IMAE,
        normalize="batch",
        bound=5.0,
    ),
    *(
        _curve_entry(curve.name, curve.name, curve.title, curve.summary, curve.reference)
        for curve in CURVES
        if curve.name != "truncated_gce"  # as a method it prunes: see below
    ),
    _loss_entry(
        "label_smoothing",
        label_smoothing_loss,
        "LS",
        "cross entropy with a part of the label spread over all classes",
        "Szegedy et al., Rethinking the Inception architecture, CVPR 2016",
    ),
    _loss_entry(
        "bootstrap_soft",
        partial(bootstrap_loss, hard=False),
        "Boot-soft",
        "cross entropy against a mixture of label and prediction",
        _REED,
    ),
    _loss_entry(
        "bootstrap_hard",
        partial(bootstrap_loss, hard=True),
        "Boot-hard",
        "cross entropy against a mixture of label and most likely class",
        _REED,
        beta=0.8,
    ),
    _loss_entry("nce_mae", nce_mae_loss, "NCE+MAE", "normalised cross entropy with MAE", _MA),
    _loss_entry(
        "nce_rce",
        nce_rce_loss,
        "NCE+RCE",
        "normalised cross entropy with reverse cross entropy",
        _MA,
    ),
    _loss_entry(
        "amse",
        partial(asymmetric_mse, alpha=0.0),
        "AMSE",
        "squared distance from a multiple of the one-hot label",
        _WANG_JAL,
    ),
    _loss_entry(
        "jal",
        asymmetric_mse,
        "JAL-CE",
        "normalised cross entropy with an asymmetric squared error",
        _WANG_JAL,
        alpha=1.0,
    ),
    _loss_entry(
        "eps_softmax",
        eps_softmax_loss,
        "CE-eps+MAE",
        "cross entropy of predictions pushed to one-hot, plus MAE",
        "Wang et al., Epsilon-softmax, NeurIPS 2024",
    ),
    _entry(
        "anl",
        ActiveNegative,
        "ANL-CE",
        "normalised cross entropy with its negative, and small weights",
        "Ye et al., Active negative loss functions, NeurIPS 2023",
    ),
    _entry(
        "ogc",
        OGC,
        "OGC",
        "cross entropy whose gradient is clipped as wrong rows weigh too much",
        "Ye et al., Optimized gradient clipping for noisy label learning, AAAI 2025",
    ),
    _entry(
        "imae_authors",
        _imae_authors,
        "IMAE, authors' code",
        "IMAE as in the authors' code: stops at p = 1, summed weight 1",
        "Wang et al., IMAE for Noise-Robust Learning, 2023, and its code",
    ),
    _entry(
        "forward",
        ForwardCorrection,
        "Forward",
        "cross entropy of the given label after a transition matrix",
        _PATRINI,
    ),
    _entry(
        "backward",
        BackwardCorrection,
        "Backward",
        "cross entropy made unbiased by the inverse of a transition matrix",
        _PATRINI,
    ),
    _entry(
        "s_adaptation",
        SAdaptation,
        "S-adaptation",
        "a layer after the network that learns how labels go wrong",
        "Goldberger and Ben-Reuven, Training deep neural-networks using a noise adaptation "
        "layer, ICLR 2017",
    ),
    _entry(
        "masking",
        Masking,
        "Masking",
        "a transition matrix learned under a structure that is known beforehand",
        "Han et al., Masking: a new perspective of noisy supervision, NeurIPS 2018",
    ),
    _entry(
        "truncated_gce",
        TruncatedGCEMethod,
        "Truncated GCE",
        "GCE on the rows that an alternating search has not pruned",
        "Zhang and Sabuncu, Generalized cross entropy loss, NeurIPS 2018",
    ),
    _entry(
        "trimmed",
        Trimmed,
        "Trimmed",
        "training on the rows of smallest loss, chosen again in rounds",
        "Shen and Sanghavi, Iterative trimmed loss minimization, ICML 2019",
    ),
    _entry(
        "co_teaching",
        CoTeaching,
        "Co-teaching",
        "two networks that choose rows of small loss for each other",
        "Han et al., Co-teaching, NeurIPS 2018",
    ),
    _entry(
        "l2rw",
        LearningToReweight,
        "L2RW",
        "rows weighted by how much they help rows that are trusted",
        "Ren et al., Learning to reweight examples, ICML 2018",
    ),
    _entry(
        "joint_optim",
        JointOptim,
        "Joint Optim.",
        "labels replaced by averaged predictions, then learned by a new network",
        "Tanaka et al., Joint optimization framework for noisy labels, CVPR 2018",
    ),
    _entry(
        "elr",
        ELR,
        "ELR",
        "cross entropy held to a moving average of each row's predictions",
        "Liu et al., Early-learning regularization, NeurIPS 2020",
    ),
    _entry(
        "d2l",
        D2L,
        "D2L",
        "labels mixed with predictions once the features' dimensionality grows",
        "Ma et al., Dimensionality-driven learning with noisy labels, ICML 2018",
    ),
    _entry(
        "active_bias",
        ActiveBias,
        "Active Bias",
        "cross entropy weighted by how uncertain past predictions of a row are",
        "Chang et al., Active bias, NeurIPS 2017",
    ),
)

METHODS: Catalog[Method] = Catalog("method", tuple(map(_with_cap, _ENTRIES)))

# ``imae.methods`` shows the class of every entry that has one: ``imae.methods.ELR``.
__getattr__, __dir__ = exports(
    "imae.methods",
    {entry.build.__name__: entry.build for entry in _ENTRIES if inspect.isclass(entry.build)},
)
