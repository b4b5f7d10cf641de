"""The curves that can be asked for by name, alone or in a specification such as ``imae:T=4``."""

from imae._registry import Catalog, Entry
from imae.curves.classic import AGCE, CCE, GCE, MAE, SL, Focal, ForwardSymmetric, TruncatedGCE
from imae.curves.curve import Curve
from imae.curves.reweighted import DM, ICCE, IMAE
from imae.errors import ArgumentError

_IMAE_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"
_GCE_PAPER = "Zhang and Sabuncu, Generalized cross entropy loss, NeurIPS 2018"

CURVES: Catalog[Curve] = Catalog(
    "loss",
    (
        Entry("cce", CCE, "cross entropy: listens to what it gets wrong"),
        Entry("mae", MAE, "mean absolute error: listens to uncertain rows", "Ghosh et al., 2017"),
        Entry("imae", IMAE, "MAE with a steerable variance, as printed", _IMAE_PAPER, {"T": 8.0}),
        Entry("gce", GCE, "between CCE and MAE", _GCE_PAPER, {"q": 0.7}),
        Entry(
            "truncated_gce",
            TruncatedGCE,
            "GCE that ignores rows under a probability",
            _GCE_PAPER,
            {"q": 0.7, "k": 0.5},
        ),
        Entry(
            "sl",
            SL,
            "cross entropy plus its reverse",
            "Wang et al., Symmetric cross entropy, ICCV 2019",
            {"alpha": 0.1, "beta": 1.0, "A": -4.0},
        ),
        Entry(
            "focal",
            Focal,
            "cross entropy that turns from easy rows",
            "Lin et al., Focal loss for dense object detection, ICCV 2017",
            {"gamma": 2.0},
        ),
        Entry(
            "agce",
            AGCE,
            "asymmetric generalised cross entropy",
            "Zhou et al., Asymmetric loss functions, ICML 2021",
            {"a": 0.6, "q": 0.6},
        ),
        Entry(
            "dm",
            DM,
            "IMAE with its peak moved",
            "Wang et al., Derivative manipulation, 2019",
            {"beta": 8.0, "lam": 0.5},
        ),
        Entry("icce", ICCE, "CCE with a steerable variance", _IMAE_PAPER, {"T": 2.0}),
        Entry(
            "forward_symmetric",
            ForwardSymmetric,
            "cross entropy corrected for even noise of a known rate",
            "Patrini et al., Making deep neural networks robust to label noise, CVPR 2017",
            {"rate": 0.4, "num_classes": 10},
        ),
    ),
)


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
