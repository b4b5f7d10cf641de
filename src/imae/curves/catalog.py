"""The curves that can be built by name, or from a specification such as ``imae:T=4``."""

from imae._registry import Catalog, Entry, defaults_of, exports
from imae.curves.classic import CCE, MAE, SL, Focal, ForwardSymmetric
from imae.curves.curve import Curve
from imae.curves.gce import AGCE, GCE, TruncatedGCE
from imae.curves.reweighted import DM, ICCE, IMAE, SharpGCE
from imae.errors import ArgumentError

_IMAE_PAPER = "Wang et al., IMAE for Noise-Robust Learning, 2023"
_GCE_PAPER = "Zhang and Sabuncu, Generalized cross entropy loss, NeurIPS 2018"


def _entry(curve: type[Curve], title: str, summary: str, reference: str = "") -> Entry[Curve]:
    return Entry(curve.name, curve, summary, reference, defaults_of(curve), title)


CURVES: Catalog[Curve] = Catalog(
    "loss",
    (
        _entry(CCE, "CCE", "cross entropy: emphasises what it gets wrong"),
        _entry(
            MAE, "MAE", "mean absolute error: emphasises uncertain rows", "Ghosh et al., AAAI 2017"
        ),
        _entry(IMAE, "IMAE", "MAE with an adjustable variance, as printed", _IMAE_PAPER),
        _entry(GCE, "GCE", "between CCE and MAE", _GCE_PAPER),
        _entry(
            TruncatedGCE, "Truncated GCE", "GCE that ignores rows under a probability", _GCE_PAPER
        ),
        _entry(
            SL,
            "SL",
            "cross entropy plus its reverse",
            "Wang et al., Symmetric cross entropy, ICCV 2019",
        ),
        _entry(
            Focal,
            "Focal",
            "cross entropy that plays down easy rows",
            "Lin et al., Focal loss for dense object detection, ICCV 2017",
        ),
        _entry(
            AGCE,
            "AGCE",
            "asymmetric generalised cross entropy",
            "Zhou et al., Asymmetric loss functions, ICML 2021",
        ),
        _entry(
            DM,
            "DM",
            "IMAE with a movable peak",
            "Wang et al., Derivative manipulation, 2019",
        ),
        _entry(SharpGCE, "Sharp GCE", "GCE with an adjustable variance; a bounded IMAE"),
        _entry(ICCE, "ICCE", "CCE with an adjustable variance", _IMAE_PAPER),
        _entry(
            ForwardSymmetric,
            "Forward, known rate",
            "cross entropy corrected for even noise of a known rate",
            "Patrini et al., Making deep neural networks robust to label noise, CVPR 2017",
        ),
    ),
)

# ``imae.curves`` shows the class of every entry: ``imae.curves.GCE``.
__getattr__, __dir__ = exports(
    "imae.curves", {entry.build.__name__: entry.build for entry in CURVES}
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
