"""What keeps IMAE stable: limits on logits, and a T that follows the training."""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from imae.errors import check_interval
from imae.losses.margin import precise


def cap_logits(logits: Tensor, cap: float) -> Tensor:
    """Logits centred and rescaled so that no class has a probability above ``cap``.

    Formula, for C classes, with z' the logits less their mean:

        z' min(1, b / ||z'||_2)
        b = (log(cap / (1 - cap)) + log(C - 1)) sqrt((C - 1) / C)

    Among the vectors of norm b, the one that is concentrated on a class gives it the largest
    margin, ``b sqrt(C / (C - 1)) - log(C - 1)``, and b is chosen so that this is the margin of
    ``cap``. Directions are kept: single logits are never cut. Below the cap the softmax does not
    change. A row at the cap can still turn, but no loss can make it longer: logits stay bounded
    whatever the weight at p = 1 is, and every probability stays above a positive number.

    A class with logit -inf stays impossible, and C is the number of the other classes.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        cap: Largest probability, in (1 / C, 1).

    Returns:
        Same shape and dtype; NaN where a row has NaN or +inf.

    Raises:
        ArgumentError: If ``cap`` is not in (1 / C, 1).

    Examples:
        >>> cap_logits(torch.tensor([[60.0, 0.0, 0.0]]), cap=0.75).softmax(1)
        tensor([[0.7500, 0.1250, 0.1250]])
    """
    dim = min(1, logits.dim() - 1)
    check_interval("cap", cap, low=1 / logits.shape[dim], high=1, open_low=True, open_high=True)
    wide = precise(logits)
    is_impossible = wide == -math.inf
    number = (~is_impossible).sum(dim, keepdim=True)
    # At a count of one, where the formula is not finite, the centred vector is 0.
    rivals = (number - 1).clamp(min=1).to(wide.dtype)
    margin = math.log(cap) - math.log1p(-cap) + rivals.log()
    norm = (margin * (rivals / (rivals + 1)).sqrt()).clamp(min=0)
    unit, largest = _scaled(wide.masked_fill(is_impossible, 0), dim)
    unit = (unit - unit.sum(dim, keepdim=True) / number).masked_fill(is_impossible, 0)
    capped = _shortened(unit, largest, norm, dim, otherwise=unit * largest)
    capped = capped.masked_fill(is_impossible, -math.inf)
    return capped.to(logits.dtype)


def bound_logits(logits: Tensor, norm: float) -> Tensor:
    """Logits rescaled so that no vector of them is longer than ``norm``.

    Formula:

        z min(1, norm / ||z||_2)

    Directions are kept: single logits are never cut. A vector within the bound passes unchanged,
    gradient included. What probability the norm allows depends on the number of classes:
    ``cap_logits`` takes the probability instead. A logit of -inf stays, and is not counted.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        norm: Largest length allowed, positive.

    Returns:
        Same shape and dtype; NaN where a row has NaN or +inf.

    Raises:
        ArgumentError: If ``norm`` is not positive.

    Examples:
        >>> bound_logits(torch.tensor([[6.0, 8.0], [0.3, 0.4]]), norm=5.0)
        tensor([[3.0000, 4.0000], [0.3000, 0.4000]])
    """
    check_interval("norm", norm, low=0, open_low=True)
    dim = min(1, logits.dim() - 1)
    wide = precise(logits)
    is_impossible = wide == -math.inf
    unit, largest = _scaled(wide.masked_fill(is_impossible, 0), dim)
    bounded = _shortened(unit, largest, wide.new_tensor(norm), dim, otherwise=wide)
    return bounded.masked_fill(is_impossible, -math.inf).to(logits.dtype)


def _scaled(vector: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """A vector divided by its largest entry, so that its square is finite; and that entry."""
    largest = vector.detach().abs().amax(dim, keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)  # else a vector of zeros would have no gradient
    return vector / largest, largest


def _shortened(unit: Tensor, scale: Tensor, norm: Tensor, dim: int, *, otherwise: Tensor) -> Tensor:
    """The vector of this norm in a direction where ``unit * scale`` is longer."""
    length = torch.linalg.vector_norm(unit, dim=dim, keepdim=True)
    is_long = scale * length.detach() > norm
    shortened = unit * (norm / length.masked_fill(~is_long, 1))
    return torch.where(is_long | scale.isinf(), shortened, otherwise)


class LogitLimit(nn.Module):
    """What the last steps share: a name and a limit, for files that describe a model."""

    name: ClassVar[str]

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def extra_repr(self) -> str:
        """The limit, for ``repr``."""
        return f"{self.name}={self.limit}"


class CappedLogits(LogitLimit):
    """The last step of a model whose confidence is capped; see ``imae.cap_logits``.

    A cap belongs to the model and not only to its loss: put this step after the last layer, and
    predictions have the probabilities that the loss has seen.

    Args:
        cap: Largest probability of a class, in (0, 1), above 1 / C.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 10), CappedLogits(0.75))
        >>> bool(model(100 * torch.randn(8, 4)).softmax(1).max() < 0.7501)
        True
    """

    name = "cap"

    def __init__(self, cap: float) -> None:
        check_interval("cap", cap, low=0, high=1, open_low=True, open_high=True)
        super().__init__(cap)

    def forward(self, logits: Tensor) -> Tensor:
        """Capped logits, shape of ``logits``."""
        return cap_logits(logits, self.limit)


class BoundedLogits(LogitLimit):
    """The last step of a model whose logits have a bounded norm; see ``imae.bound_logits``.

    Args:
        norm: Largest length of a logit vector, positive.

    Examples:
        >>> BoundedLogits(5.0)(torch.tensor([[6.0, 8.0]]))
        tensor([[3., 4.]])
    """

    name = "bound"

    def __init__(self, norm: float) -> None:
        check_interval("bound", norm, low=0, open_low=True, open_high=True)
        super().__init__(norm)

    def forward(self, logits: Tensor) -> Tensor:
        """Bounded logits, shape of ``logits``."""
        return bound_logits(logits, self.limit)


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

    In evaluation mode nothing changes. The state is saved with the module.

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
            return self.T.clone()
        num_classes = logits.shape[1]
        top, predicted = precise(logits).softmax(1).max(1)
        chance = 1 / num_classes
        sure = ((top - chance) / (self.cap - chance)).to(self.means.dtype)
        agrees = (predicted == target).to(self.means.dtype)
        counts = torch.ones_like(sure) if counts is None else counts.to(sure.dtype)
        terms = torch.stack([agrees, sure * (1 - agrees), sure * agrees, torch.ones_like(sure)])
        # A row that does not count may be anything, NaN included.
        counted = torch.where(counts > 0, terms * counts, torch.zeros_like(terms))
        *sums, number = total(counted.flatten(1).sum(1)).unbind()
        has_rows = number > 0
        batch = torch.stack(sums) / torch.where(has_rows, number, torch.ones_like(number))
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
        return self.T.clone()

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
