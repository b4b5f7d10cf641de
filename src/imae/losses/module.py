"""Curves as modules, drop-in replacements for `torch.nn.CrossEntropyLoss`, and the T of IMAE."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypedDict, cast

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from imae._registry import exports
from imae.curves.catalog import CURVES
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError, check_choice, check_integer, check_interval
from imae.losses.arguments import REDUCTIONS, as_class_weight, is_plain, is_transformed
from imae.losses.functional import NORMALIZATIONS, curve_loss
from imae.losses.margin import cap_logits, capped, is_easily_capped, precise


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
        normalize: "chance" divides by the weight at p = 1 / C, "batch" by the mean weight of the
            batch.
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
        return self._loss(logits, target, self._held_curve())

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


# T is at most this.
_LARGEST_T = 20.0
# Running means over about this many steps; over all of them before.
_DECAY = 0.98
_WARM_UP_STEPS = 20
# Agreement this much above chance counts in full.
_FULL_AGREEMENT = 0.05
# Keeps the mean over a few rows, and over none, from being one of noise.
_PRIOR_ROWS = 0.005


class AutoT(nn.Module):
    """The T of IMAE, chosen by how sure the model is where it contradicts the given labels.

    Formula, with running means over the rows of the training batches, for C classes:

        q   = (largest probability - 1/C) / (cap - 1/C)     0 at chance, 1 at the cap
        a   = how often the most likely class is the given label, d = 1 - a
        s   = mean of q where they differ, s_a = mean of q where they agree
        r   = min(1, s / s_a)
        g   = (a - 1/C) / (1 - 1/C) / 0.05, within [0, 1]
        T   = 20 times the highest r sqrt(s d g) so far

    Where labels are wrong, the model is as sure on the rows that contradict it as on the others,
    and r is near 1 from the first epoch, at any rate of noise. Where a problem is hard, it is
    unsure exactly there: r is small, and so is T. As wrong labels are memorised d falls, hence the
    highest value so far; g keeps a model that is no better than chance from counting. The maximum
    begins after 20 steps. The running means are those of all steps, then decay by 0.98 a step.

    In evaluation mode nothing changes. The state is saved with the module. The transforms of
    ``torch.func`` change no state and so refuse a module in training mode: switch it to evaluation
    mode first.

    Args:
        cap: Largest probability that the model outputs; 1 if it has no cap.

    Examples:
        >>> auto = AutoT(cap=0.75)
        >>> float(auto.T)
        0.0
        >>> sure = torch.tensor([[2.5, 0.0, 0.0]]).repeat(8, 1)
        >>> labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])     # three are contradicted
        >>> round(float(auto.observe(sure, labels)), 1)
        13.6

    Reference:
        Ours; ``docs/losses.md`` says how it was found and what it was tested on.
    """

    T: Tensor
    means: Tensor
    num_steps: Tensor

    def __init__(self, cap: float = 1.0) -> None:
        super().__init__()
        self.cap = cap
        self.register_buffer("T", torch.zeros(()))
        self.register_buffer("means", torch.zeros(3))  # of a, q where contradicted, q where not
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(
        self,
        logits: Tensor,
        target: Tensor,
        counts: Tensor | None = None,
        total: Callable[[Tensor], Tensor] = lambda sums: sums,
    ) -> Tensor:
        """Takes in a batch of training and returns the T for it, a scalar.

        Args:
            logits: What the model outputs, shape (N, C, ...), with its cap.
            target: Given labels, shape (N, ...).
            counts: How much each row counts, shape (N, ...); None for 1.
            total: Sum of a tensor over all processes that share the batch.
        """
        if not self.training:
            # A transform of torch would wrap a copy, and its inner levels cannot take that apart.
            return self.T if is_transformed() else self.T.clone()
        num_classes = logits.shape[1]
        top, predicted = precise(logits).softmax(1).max(1)
        chance = 1 / num_classes
        sure = ((top - chance) / (self.cap - chance)).to(self.means.dtype)
        agrees = (predicted == target).to(self.means.dtype)
        counts = torch.ones_like(sure) if counts is None else counts.to(sure.dtype)
        terms = torch.stack([agrees, sure * (1 - agrees), sure * agrees, torch.ones_like(sure)])
        # A row that does not count may be anything, NaN included.
        counted = torch.where(counts > 0, terms * counts, torch.zeros_like(terms))
        sums = total(counted.flatten(1).sum(1))
        if sums.is_cpu and sums.dtype == torch.float32 and chance < 1 and is_plain(sums):
            self._follow(sums, chance)
        else:
            self._follow_tensors(sums, chance)
        return self.T.clone()

    def _follow(self, sums: Tensor, chance: float) -> None:
        """As ``_follow_tensors``, to the last bit, with numbers, which take a tenth of the time."""
        found = sums.tolist()
        if not (found[-1] > 0 and all(map(math.isfinite, found[:-1]))):
            return
        steps = int(self.num_steps) + 1
        one = np.float32(1)
        kept = min(one - one / np.float32(steps), np.float32(_DECAY))
        self.means.copy_(torch.lerp(sums[:-1] / sums[-1], self.means, torch.tensor(kept)))
        agreement, against, agreeing = map(np.float32, self.means.tolist())
        now = _rule(agreement, against, agreeing, chance)
        is_remembered = steps > _WARM_UP_STEPS + 1
        self.T.fill_(max(self.T.item(), float(now)) if is_remembered else float(now))
        self.num_steps.fill_(steps)

    def _follow_tensors(self, sums: Tensor, chance: float) -> None:
        """Takes the sums over a batch into the means, and T from them, without a look at either."""
        *parts, number = sums.unbind()
        has_rows = number > 0
        batch = torch.stack(parts) / torch.where(has_rows, number, torch.ones_like(number))
        is_usable = has_rows & batch.isfinite().all()
        steps = self.num_steps + 1
        kept = torch.clamp(1 - 1 / steps.to(batch.dtype), max=_DECAY)
        means = torch.where(is_usable, torch.lerp(batch, self.means, kept), self.means)
        now = self._rule(means, chance)
        is_remembered = steps > _WARM_UP_STEPS + 1
        T = torch.where(is_remembered, torch.maximum(self.T, now), now)
        self.T.copy_(torch.where(is_usable, T, self.T))
        self.means.copy_(means)
        self.num_steps.copy_(torch.where(is_usable, steps, self.num_steps))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves to another device, but stays in float32: half precision has no running means."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("T", "means"):
            buffer = self.get_buffer(name)
            if buffer.dtype in (torch.float16, torch.bfloat16):
                self.register_buffer(name, buffer.float())
        return self

    def _rule(self, means: Tensor, chance: float) -> Tensor:
        agreement, sure_against, sure_with = means.unbind()
        difference = 1 - agreement
        against = sure_against.clamp(min=0) / (difference + _PRIOR_ROWS)
        agreeing = sure_with.clamp(min=0) / (agreement + _PRIOR_ROWS)
        ratio = torch.where(against < agreeing, against / agreeing, torch.ones_like(against))
        gate = ((agreement - chance) / (1 - chance) / _FULL_AGREEMENT).clamp(0, 1)
        return _LARGEST_T * ratio * (against * difference * gate).sqrt()

    def extra_repr(self) -> str:
        """The cap, for ``repr``."""
        return f"cap={self.cap}"


def _rule(
    agreement: np.float32, sure_against: np.float32, sure_with: np.float32, chance: float
) -> np.float32:
    """``AutoT._rule`` for numbers, in float32 as it is there."""
    zero, one, prior = np.float32(0), np.float32(1), np.float32(_PRIOR_ROWS)
    difference = one - agreement
    against = max(sure_against, zero) / (difference + prior)
    agreeing = max(sure_with, zero) / (agreement + prior)
    ratio = against / agreeing if against < agreeing else one
    above_chance = (agreement - np.float32(chance)) / np.float32(1 - chance)
    gate = min(max(above_chance / np.float32(_FULL_AGREEMENT), zero), one)
    root = torch.tensor(against * difference * gate).sqrt()  # not numpy's: a last bit may differ
    return np.float32(_LARGEST_T) * ratio * np.float32(root.item())


class IMAELoss(CurveLoss):
    """Improved MAE; see ``imae.curves.IMAE``.

    As printed in the paper by default. The recommended form caps the confidence, scales by the
    weight at chance, and lets T follow the training:

        IMAELoss(T="auto", cap=0.75, normalize="chance")

    Args:
        T: How much the weight varies, in [0, 100]; or "auto", see ``imae.losses.AutoT``: the
            module then has a state, updated by every call in training mode.
        options: Those of ``imae.losses.CurveLoss``.

    Examples:
        >>> import torch
        >>> criterion = IMAELoss(T=8.0)
        >>> float(criterion(torch.zeros(1, 2), torch.tensor([0])))
        0.0
        >>> sorted(IMAELoss(T="auto", cap=0.75).state_dict())
        ['auto.T', 'auto.means', 'auto.num_steps']
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
        if self.auto is None:
            return self._loss(logits, target, self._held_curve())
        if not is_plain(logits, target):
            return self._auto_loss(self.auto, logits, target)
        before = [each.clone() for each in self.auto.buffers()]
        try:
            return self._auto_loss(self.auto, logits, target)
        except Exception:  # a call that is refused leaves no trace
            for buffer, value in zip(self.auto.buffers(), before, strict=True):
                buffer.copy_(value)
            raise

    def _auto_loss(self, auto: AutoT, logits: Tensor, target: Tensor) -> Tensor:
        T = self._observe(auto, logits.detach(), target)
        return self._loss(logits, target, IMAE(T.item() if T.is_cpu and is_plain(T) else T))

    def _observe(self, auto: AutoT, logits: Tensor, target: Tensor) -> Tensor:
        if logits.dim() == 1:
            logits, target = logits.unsqueeze(0), target.unsqueeze(0)
        if self.cap is not None:
            is_easy = is_plain(logits) and logits.dim() == 2 and is_easily_capped(logits)
            logits = capped(logits, self.cap)[0] if is_easy else cap_logits(logits, self.cap)
        if target.is_floating_point():
            return auto.observe(logits, target.argmax(1), self._counts_of(target))
        counts = target != self.ignore_index
        if self.weight is not None:
            counts &= (self.weight != 0)[target.long().masked_fill(~counts, 0)]
        return auto.observe(logits, target, counts)

    def _counts_of(self, target: Tensor) -> Tensor | None:
        """Which rows of probabilities have a class of some weight, shape (N, ...); None for all."""
        if self.weight is None:
            return None
        of_class = (self.weight != 0).view(1, -1, *(1,) * (target.dim() - 2))
        return ((target != 0) & of_class).any(1)


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
