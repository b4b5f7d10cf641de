"""Curves as modules, drop-in replacements for `torch.nn.CrossEntropyLoss`."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from imae._checks import check_choice, check_integer
from imae._registry import exports
from imae.curves.catalog import CURVES
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError
from imae.losses.arguments import REDUCTIONS, as_class_weight
from imae.losses.functional import NORMALIZATIONS, curve_loss


class LossOptions(TypedDict, total=False):
    """Keywords that every loss module takes; see ``imae.curve_loss`` for their meaning."""

    weight: Tensor | Sequence[float] | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    normalize: str | None


class CurveLoss(nn.Module):
    """The loss of any curve, called like ``torch.nn.CrossEntropyLoss()``.

    Args:
        curve: The loss, from ``imae.curves``.
        weight: Factor of each class, shape (C); a buffer, so it moves with the module.
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: Part of the label spread evenly over all classes, in [0, 1].
        normalize: "batch" divides by the batch's mean weight; None leaves it.

    Examples:
        >>> import torch
        >>> from imae.curves import IMAE, Window
        >>> criterion = CurveLoss(Window(IMAE(T=8.0), high=16.0), normalize="batch")
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
        >>> criterion(logits, torch.tensor([0, 1])).backward()
        >>> logits.grad.abs().sum(1).mean() * 2         # the mean weight
        tensor(1.)
    """

    weight: Tensor | None

    def __init__(
        self,
        curve: Curve,
        *,
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        normalize: str | None = None,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_choice("normalize", normalize, NORMALIZATIONS)
        self.curve = curve
        self.register_buffer("weight", as_class_weight(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.normalize = normalize

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        return curve_loss(
            logits,
            target,
            self.curve,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            normalize=self.normalize,
        )

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        return f"{self.curve!r}, reduction={self.reduction!r}, normalize={self.normalize!r}"


class DFTLoss(CurveLoss):
    """Half of the mean absolute error, known as DFT in the fine-tuning of language models."""

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(Scale(MAE(), 0.5), **options)


class IMAELoss(CurveLoss):
    """Improved MAE as printed in the paper; see ``imae.curves.IMAE``.

    Examples:
        >>> import torch
        >>> criterion = IMAELoss(T=8.0)
        >>> float(criterion(torch.zeros(1, 2), torch.tensor([0])))
        0.0
    """

    def __init__(self, T: float | Tensor = IMAE.T, **options: Unpack[LossOptions]) -> None:
        super().__init__(IMAE(T), **options)


def _module_of(curve: Callable[..., Curve], title: str) -> type[CurveLoss]:
    """The class ``<Curve>Loss``: the parameters of the curve, then the options of all losses."""
    own = inspect.signature(curve).parameters

    def start(self: CurveLoss, *arguments: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in own if name in options}
        CurveLoss.__init__(self, curve(*arguments, **given), **options)

    shared = list(inspect.signature(CurveLoss).parameters.values())[1:]
    return type(
        f"{curve.__name__}Loss",
        (CurveLoss,),
        {
            "__doc__": f"{title} as a module; see ``imae.curves.{curve.__name__}``.",
            "__module__": __name__,
            "__init__": start,
            "__signature__": inspect.Signature([*own.values(), *shared]),
        },
    )


_MODULES = {
    f"{entry.build.__name__}Loss": _module_of(entry.build, entry.title)
    for entry in CURVES
    if entry.build is not IMAE
}
# ``imae.losses`` shows a module for every curve of the catalog: ``imae.losses.GCELoss``.
__getattr__, __dir__ = exports("imae.losses", _MODULES)


def weight_curve(
    loss: Callable[[Tensor, Tensor], Tensor],
    p: Tensor | None = None,
    *,
    num_classes: int = 10,
) -> tuple[Tensor, Tensor]:
    """The weight that a loss gives to an example, as a function of its label's probability.

    Formula:

        w(p) = ||dL/dz||_1 at logits z whose softmax is p at the label and even elsewhere

    For a loss that depends only on the label's probability this is its whole weight curve; for
    others it is the curve along evenly spread remaining probabilities.

    Args:
        loss: Called as ``loss(logits, target)`` on one row at a time, so its reduction does not
            matter; any torch loss, ours or not.
        p: Probabilities, shape (K,), strictly between 0 and 1; 99 even steps by default.
        num_classes: Number of classes, at least 2.

    Returns:
        The probabilities and the weights, both of shape (K,), float64.

    Raises:
        ArgumentError: If a probability is not strictly between 0 and 1.

    Examples:
        >>> import torch.nn.functional as F
        >>> p, w = weight_curve(F.cross_entropy, torch.tensor([0.25, 0.5]))
        >>> w                                           # 2 (1 - p)
        tensor([1.5000, 1.0000], dtype=torch.float64)

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 3.
    """
    check_integer("num_classes", num_classes, low=2)
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64) if p is None else p.double()
    if p.dim() != 1 or not bool(((p > 0) & (p < 1)).all()):
        raise ArgumentError(f"p must be a vector of numbers strictly between 0 and 1, got {p}")
    logits = torch.log((1 - p) / (num_classes - 1)).unsqueeze(1).repeat(1, num_classes)
    logits[:, 0] = p.log()
    target = torch.zeros(1, dtype=torch.int64)
    weights = [_gradient_norm(loss, row.unsqueeze(0), target) for row in logits]
    return p, torch.stack(weights) if weights else torch.empty_like(p)


def _gradient_norm(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor
) -> Tensor:
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(logits, target).sum(), logits)
    return gradient.abs().sum()
