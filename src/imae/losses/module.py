"""Curves as modules, drop-in replacements for `torch.nn.CrossEntropyLoss`."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from imae._registry import exports
from imae.curves.catalog import CURVES
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError, check_choice, check_integer, check_interval
from imae.losses.arguments import REDUCTIONS, as_class_weight, check_labels, is_plain
from imae.losses.auto import AutoT
from imae.losses.functional import NORMALIZATIONS, curve_loss
from imae.losses.margin import cap_logits, capped, is_easily_capped, is_trainable
from imae.losses.small import is_small, small_loss


class LossOptions(TypedDict, total=False):
    """Keywords that every loss module takes; see ``imae.curve_loss`` for their meaning."""

    weight: Tensor | Sequence[float] | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    normalize: str | None
    cap: float | None


class CurveLoss(nn.Module):
    """The loss of any curve, called like ``torch.nn.CrossEntropyLoss()``.

    Args:
        curve: The loss, from ``imae.curves``.
        weight: Factor of each class, shape (C); a buffer, so it moves with the module.
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: Part of the label spread evenly over all classes, in [0, 1].
        normalize: "chance" divides by the weight at p = 1 / C, "half" by that at p = 1 / 2,
            "batch" by the mean weight of the batch.
        cap: Largest probability of a class that the loss sees, in (1 / C, 1); see
            ``imae.CappedLogits`` for the model's side of it.

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
        cap: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_choice("normalize", normalize, NORMALIZATIONS)
        if cap is not None:
            check_interval("cap", cap, low=0, high=1, open_low=True, open_high=True)
        self._curve = curve
        self.register_buffer("weight", as_class_weight(weight))
        for place, tensor in enumerate(curve.tensors()):
            if isinstance(tensor, nn.Parameter):  # is trained, moved and saved with the module
                self.register_parameter(f"parameter_{place}", tensor)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.normalize = normalize
        self.cap = cap

    @property
    def curve(self) -> Curve:
        """The loss, with the parameters that the module has now."""
        return self._held_curve()

    def _held_curve(self) -> Curve:
        if not self._parameters:
            return self._curve
        held = (
            self._parameters.get(f"parameter_{place}", tensor)
            for place, tensor in enumerate(self._curve.tensors())
        )
        return self._curve.with_tensors(cast("Iterator[Tensor]", held))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        curve = self._held_curve()
        loss = self._small_loss(logits, target, curve)
        return self._loss(logits, target, curve) if loss is None else loss

    def _small_loss(self, logits: Tensor, target: Tensor, curve: Curve | AutoT) -> Tensor | None:
        """The loss of a small batch if none of the options changes the mean; else None."""
        if (
            self.reduction == "mean"
            and self._buffers["weight"] is None
            and self.label_smoothing == 0
            and self.ignore_index < 0
            and self.normalize != "batch"
            and is_small(logits, target)
            and (isinstance(curve, AutoT) or not is_trainable(curve))
        ):
            return small_loss(logits, target, curve, normalize=self.normalize, cap=self.cap)
        return None

    def _loss(self, logits: Tensor, target: Tensor, curve: Curve) -> Tensor:
        return curve_loss(
            logits,
            target,
            curve,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            normalize=self.normalize,
            cap=self.cap,
        )

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        text = f"{self.curve!r}, reduction={self.reduction!r}, normalize={self.normalize!r}"
        return text if self.cap is None else f"{text}, cap={self.cap}"


class DFTLoss(CurveLoss):
    """Half of the mean absolute error, known as DFT in the fine-tuning of language models."""

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(Scale(MAE(), 0.5), **options)


class IMAELoss(CurveLoss):
    """Improved MAE; see ``imae.curves.IMAE``.

    As printed in the paper by default. The recommended form caps the confidence, scales the
    largest weight to 1, and lets T follow the training:

        IMAELoss(T="auto", cap=0.75, normalize="half")

    Args:
        T: How much the weight varies, in [0, 100]; or "auto", see ``imae.losses.AutoT``: the
            module then has a state, updated by every call in training mode. Where
            ``torch.distributed`` runs, such a call adds up six numbers over all processes, so
            that T is the same in each: all of them must make it, as with ``SyncBatchNorm``.
        options: Those of ``imae.losses.CurveLoss``.

    Examples:
        >>> import torch
        >>> criterion = IMAELoss(T=8.0)
        >>> float(criterion(torch.zeros(1, 2), torch.tensor([0])))
        0.0
        >>> sorted(IMAELoss(T="auto", cap=0.75).state_dict())
        ['auto.T', 'auto.gained', 'auto.means', 'auto.num_steps', 'auto.peak']
    """

    def __init__(
        self, T: float | Tensor | Literal["auto"] = IMAE.T, **options: Unpack[LossOptions]
    ) -> None:
        if isinstance(T, str) and T != "auto":
            raise ArgumentError(f"T must be a number or 'auto', got {T!r}")
        super().__init__(IMAE(0.0) if isinstance(T, str) else IMAE(T), **options)
        self.auto = AutoT(1.0 if self.cap is None else self.cap) if isinstance(T, str) else None

    @property
    def curve(self) -> Curve:
        """The loss, with the T of the last call if it follows the training."""
        return self._held_curve() if self.auto is None else IMAE(self.auto.T.item())

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        auto = self.auto
        if auto is None:
            return super().forward(logits, target)
        is_alone = not (self.training and _is_distributed())
        loss = self._small_loss(logits, target, auto) if auto.T.is_cpu and is_alone else None
        if loss is not None:
            return loss
        if not is_plain(logits, target):
            return self._auto_loss(auto, logits, target)
        before = [each.clone() for each in auto.buffers()]
        try:
            return self._auto_loss(auto, logits, target)
        except Exception:  # a call that is refused leaves no trace
            for buffer, value in zip(auto.buffers(), before, strict=True):
                buffer.copy_(value)
            raise

    def _auto_loss(self, auto: AutoT, logits: Tensor, target: Tensor) -> Tensor:
        check_labels(
            logits,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
        T = self._observe(auto, logits.detach(), target)
        return self._loss(logits, target, IMAE(T.item() if T.is_cpu and is_plain(T) else T))

    def _observe(self, auto: AutoT, logits: Tensor, target: Tensor) -> Tensor:
        if logits.dim() == 1:
            logits, target = logits.unsqueeze(0), target.unsqueeze(0)
        if target.is_floating_point():
            counts = self._counts_of(target)
            return auto.observe(logits, target.argmax(1), counts, _total, limit=self._capped)
        counts = target.long() != self.ignore_index  # -100 would wrap around among bytes
        if self.weight is not None:
            counts &= (self.weight != 0)[target.long().masked_fill(~counts, 0)]
        return auto.observe(logits, target, counts, _total, limit=self._capped)

    def _capped(self, logits: Tensor) -> Tensor:
        if self.cap is None:
            return logits
        is_easy = is_plain(logits) and logits.dim() == 2 and is_easily_capped(logits)
        return capped(logits, self.cap)[0] if is_easy else cap_logits(logits, self.cap)

    def _counts_of(self, target: Tensor) -> Tensor:
        """Which rows of probabilities have a class of some weight, shape (N, ...)."""
        has_class = target != 0
        if self.weight is not None:
            has_class &= (self.weight != 0).view(1, -1, *(1,) * (target.dim() - 2))
        return has_class.any(1)


def _is_distributed() -> bool:
    """Whether other processes train with this one."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def _total(sums: Tensor) -> Tensor:
    """Sums over all processes."""
    if _is_distributed():
        torch.distributed.all_reduce(sums)
    return sums


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
            matter; any torch loss, ours or not. A module is called in evaluation mode.
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
    with _not_in_training(loss):
        weights = [_gradient_norm(loss, row.unsqueeze(0), target) for row in logits]
    return p, torch.stack(weights) if weights else torch.empty_like(p)


@contextmanager
def _not_in_training(loss: object) -> Iterator[None]:
    """Evaluation mode for a module: what it learns from calls is kept as it is."""
    modules = list(loss.modules()) if isinstance(loss, nn.Module) else []
    were_training = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, was_training in zip(modules, were_training, strict=True):
            module.training = was_training


def _gradient_norm(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor
) -> Tensor:
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(logits, target).sum(), logits)
    return gradient.abs().sum()
