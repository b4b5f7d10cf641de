"""What a training run optimises, and the state it needs: the interface, and losses as methods."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from imae.curves.curve import Curve, Scale, Window
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError, check_choice, check_interval
from imae.losses.auto import AutoT
from imae.losses.functional import NORMALIZATIONS
from imae.losses.margin import (
    CONSTANT_SCALES,
    BoundedLogits,
    CappedLogits,
    LogitLimit,
    batch_weight,
    constant_weight,
    margin,
    precise,
    value_at_margin,
    weight_at_margin,
)
from imae.losses.normalized import active_negative_loss


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch as a method sees it.

    Args:
        logits: Unnormalised scores that the model outputs, shape (B, C).
        target: Given labels, shape (B,).
        row: Positions in the training split, shape (B,): the key of a memory.
        inputs: What the network saw, shape (B, ...).
        features: Input of the last layer, shape (B, E), if the method needs it.
        other_logits: Scores of the second and further networks, if the method needs them.
        weight: How much each row counts in the mean over the batch, shape (B,), if known.
    """

    logits: Tensor
    target: Tensor
    row: Tensor
    inputs: Tensor | None = None
    features: Tensor | None = None
    other_logits: tuple[Tensor, ...] = ()
    weight: Tensor | None = None

    @cached_property
    def margin(self) -> Tensor:
        """Margin of the given label, shape (B,), float32 or more; computed once for all users."""
        return margin(precise(self.logits), self.target)

    def counts(self) -> Tensor:
        """How much each row counts, shape (B,), float32; 1 if the data has no weights."""
        if self.weight is None:
            return torch.ones_like(self.target, dtype=torch.float32)
        return self.weight.float()


@dataclass(frozen=True, eq=False)
class Restart:
    """A run in two stages: from some epoch on, new networks are trained.

    Args:
        epoch: First epoch of the second stage, counted from 0; the networks get new initial
            weights, the optimiser is reset, and the schedule of the learning rate starts again.
        is_rate_constant: Whether the first stage keeps its initial learning rate; otherwise it
            goes through the whole schedule, as the second does.
    """

    epoch: int
    is_rate_constant: bool = False


@dataclass(frozen=True, eq=False)
class TrustedRows:
    """Rows whose labels are known to be right, for methods that learn from some.

    Args:
        inputs: Their inputs of the network, without augmentation, shape (M, ...).
        labels: Their true labels, shape (M,).
    """

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Facts:
    """What a method knows about the run before its first step.

    Args:
        labels: Given labels of all training rows, shape (N,).
        num_classes: Number of classes C.
        num_epochs: Epochs that will be trained.
        seed: Seed of the run; draws of a method follow from it, their purpose and the epoch.
        networks: The networks, as they are being trained.
        predict: Logits of all training rows, shape (N, C), by the current network; one
            pass over the data for each call, in evaluation mode. All ranks must call it.
        features: Input of the last layer for some training rows, shape (M, E), given their
            positions (M,), by the current network, in evaluation mode; the same on all ranks.
        total: Sum of a tensor over all ranks; the tensor itself if there is one.
        gather: Concatenated rows of all ranks, shape (B1 + B2 + ..., ...), the same on all
            ranks.
        transition: Chance of each given label for each true label, shape (C, C), if known.
        trusted: Rows with labels known to be right, if the run has them.
        weights: How much each training row counts, shape (N,); None if all count 1.
    """

    labels: Tensor
    num_classes: int
    num_epochs: int
    seed: int
    networks: tuple[nn.Module, ...] = ()
    predict: Callable[[], Tensor] | None = field(default=None, repr=False)
    features: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)
    total: Callable[[Tensor], Tensor] = field(default=lambda tensor: tensor, repr=False)
    gather: Callable[[Tensor], Tensor] = field(default=lambda tensor: tensor, repr=False)
    transition: Tensor | None = None
    trusted: TrustedRows | None = None
    weights: Tensor | None = None

    @cached_property
    def counted(self) -> Tensor:
        """Positions of the rows that count, shape (M,), on the CPU; all if none does.

        A row of weight 0 is only predicted, and must not affect what a method learns.
        """
        if self.weights is None or not bool((self.weights > 0).any()):
            return torch.arange(len(self.labels))
        return self.weights.cpu().nonzero().squeeze(1)

    def of_counted(self, rows: Tensor) -> Tensor:
        """Values of the rows that count, shape (M, ...), from those of all rows, (N, ...)."""
        return rows if self.weights is None else rows[self.counted.to(rows.device)]

    @cached_property
    def counts(self) -> Tensor:
        """How much each of the rows ``counted`` counts, shape (M,), on the CPU; 1 if none does."""
        if self.weights is None or not bool((self.weights > 0).any()):
            return torch.ones(len(self.labels))
        return self.weights.cpu()[self.counted]


class Method(nn.Module, ABC):
    """A loss with the state it needs; a plain loss is a method without state.

    The loop calls ``start`` once, then for each epoch ``start_epoch``, the method itself for each
    batch, and ``end_epoch``. What a method learns is held in parameters (which are optimised
    with the network), buffers, or ``get_extra_state``, and is saved with every checkpoint; a
    resumed run calls ``start`` again before it is restored.

    A leaf class may set ``needs_features``, ``needs_trusted``, ``works_on_weights`` if it reads or
    changes the weights of the networks itself, and ``num_networks`` for more than one network.
    """

    needs_features: bool = False
    needs_trusted: ClassVar[bool] = False
    works_on_weights: ClassVar[bool] = False
    num_networks: ClassVar[int] = 1
    learning_rate: float = 0.0  # of the step that is taken; the loop sets it

    def __init__(self) -> None:
        super().__init__()
        self.output_step: LogitLimit | None = None

    def total(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over all ranks; the tensor itself before ``start``."""
        return self.facts.total(tensor) if hasattr(self, "facts") else tensor

    @abstractmethod
    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row of the batch, shape (B,)."""

    def output(self) -> LogitLimit | None:
        """The last step of the model, from logits to logits, if the method has one.

        A cap on the confidence is such a step. It belongs to the network: ``Rows.logits`` have
        passed it, and so have evaluation, predictions and exports.
        """
        return self.output_step

    def shown(self) -> dict[str, float]:
        """Numbers of its own for each row of the history, such as a T that follows the training."""
        return {}

    def start(self, facts: Facts) -> None:
        """Prepares for a run, for example by creating a memory of the right size.

        Raises:
            ArgumentError: If a cap cannot be met with this number of classes.
        """
        self.facts = facts
        if isinstance(self.output_step, CappedLogits):
            self.output_step(torch.zeros(1, facts.num_classes))

    def restart(self) -> Restart | None:
        """When new networks are trained, if ever; called once, after ``start``."""
        return None

    @property
    def has_stages(self) -> bool:
        """Whether the length of a run decides what is trained when, so that it must not change."""
        return self.restart() is not None

    def start_epoch(self, epoch: int) -> None:
        """Called before an epoch, from 0, and on a resume within it: it must not count calls."""

    def end_epoch(self, epoch: int) -> None:
        """Called after the last step of an epoch, from 0; not for one that is cut short."""

    def see_held_out(self, num_likelier: Tensor) -> None:
        """Called after ``end_epoch``, on all ranks, if rows are held out.

        Args:
            num_likelier: How many classes are likelier than the given label, shape (M,).
        """

    def share(self) -> None:
        """Makes the state the same on all ranks: before every checkpoint and epoch end."""


def first_stage(part: float, num_epochs: int) -> int:
    """Epochs of the first stage: its part of the run, but at least one epoch for each stage.

    Args:
        part: Part of the run, in (0, 1).
        num_epochs: Epochs of the whole run.

    Examples:
        >>> first_stage(0.25, 40), first_stage(0.01, 40), first_stage(0.99, 10), first_stage(0.5, 1)
        (10, 1, 9, 1)
    """
    return min(max(1, round(part * num_epochs)), max(1, num_epochs - 1))


def is_selection_due(epoch: int, num_epochs: int, *, warm_up: float, every: float) -> bool:
    """Whether rows are selected again before this epoch, counted from 0.

    The first selection comes after ``warm_up * num_epochs`` epochs, further ones ``every *
    num_epochs`` epochs apart, each rounded to whole epochs and at least one; none comes after the
    last epoch, when training has ended.

    Args:
        epoch: The next epoch.
        num_epochs: Epochs of the whole run.
        warm_up: Fraction of the run before the first selection, in (0, 1].
        every: Fraction of the run between two selections, in (0, 1].

    Examples:
        >>> [epoch for epoch in range(12) if is_selection_due(epoch, 12, warm_up=0.5, every=0.25)]
        [6, 9]
    """
    first = max(1, round(warm_up * num_epochs))
    apart = max(1, round(every * num_epochs))
    return first <= epoch < num_epochs and (epoch - first) % apart == 0


class RowMemory(nn.Module):
    """Numbers that a method keeps for every training row; saved with the method that holds it.

    A row may be seen by different processes in different epochs, so a method calls
    ``share`` from its own ``share``: the loop does that before checkpoints and at epoch ends.

    Args:
        start: Values before the first step, shape (N, ...).

    Examples:
        >>> memory = RowMemory(torch.zeros(3))
        >>> memory.write(torch.tensor([2]), torch.tensor([5.0]))
        >>> memory.values
        tensor([0., 0., 5.])
    """

    values: Tensor
    is_fresh: Tensor

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", start.clone())
        fresh = torch.zeros(len(start), dtype=torch.bool, device=start.device)
        self.register_buffer("is_fresh", fresh, persistent=False)

    def read(self, row: Tensor) -> Tensor:
        """Values of these rows, shape (B, ...), for positions (B,)."""
        return self.values[row]

    def write(self, row: Tensor, values: Tensor) -> None:
        """Stores new values (B, ...) of these rows (B,), detached from the graph."""
        self.values[row] = values.detach().to(self.values.dtype)
        self.is_fresh[row] = True

    def share(self, total: Callable[[Tensor], Tensor]) -> None:
        """Gives all ranks what each has written since the last call; all must call it.

        Args:
            total: Sum of a tensor over all ranks, as in ``Facts``.
        """
        shape = (-1,) + (1,) * (self.values.dim() - 1)
        # No two ranks train on the same row in an epoch, so a sum is what its only writer wrote.
        is_written = total(self.is_fresh.to(torch.int32)).view(shape) > 0
        mine = torch.where(self.is_fresh.view(shape), self.values, torch.zeros_like(self.values))
        self.values.copy_(torch.where(is_written, total(mine), self.values))
        self.is_fresh.zero_()


@final
class CurveMethod(Method):
    """Training on the loss of a curve.

    Args:
        curve: The loss; or ``imae.losses.AutoT`` for IMAE whose T follows the training.
        window_low: Rows whose margin is smaller do not count; None for no such edge.
        window_high: Rows whose margin is larger do not count; None for no such edge.
        normalize: "chance" divides by the weight at p = 1 / C and "half" by that at p = 1 / 2,
            constants; "batch" by the mean weight of the batch, over all ranks; None does not
            divide.
        bound: Largest length of a logit vector that the model outputs; None for no bound.
        cap: Largest probability that the model outputs, in (1 / C, 1); None for no cap.
        factor: Constant that the loss is multiplied by.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> import torch
        >>> from imae.curves import CCE
        >>> rows = Rows(torch.zeros(2, 4), torch.tensor([0, 1]), torch.tensor([5, 7]))
        >>> CurveMethod(CCE())(rows)
        tensor([1.3863, 1.3863])
    """

    def __init__(
        self,
        curve: Curve | AutoT,
        *,
        window_low: float | None = None,
        window_high: float | None = None,
        normalize: str | None = None,
        bound: float | None = None,
        cap: float | None = None,
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("normalize", normalize, NORMALIZATIONS)
        check_interval("factor", factor, low=0, open_low=True, open_high=True)
        self.output_step = output_step(cap=cap, bound=bound)
        self._window = (
            -math.inf if window_low is None else window_low,
            math.inf if window_high is None else window_high,
        )
        self._factor = factor
        self.auto = curve if isinstance(curve, AutoT) else None
        self.curve = self._shaped(IMAE(0.0) if isinstance(curve, AutoT) else curve)
        self.normalize = normalize

    def see_held_out(self, num_likelier: Tensor) -> None:
        """T, if it follows the training, rises where labels are memorised."""
        if self.auto is not None:
            self.auto.observe_unseen(num_likelier, self.facts.num_classes)

    def shown(self) -> dict[str, float]:
        """T, if it follows the training."""
        return {} if self.auto is None else {"T": float(self.auto.T)}

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        if self.auto is not None:
            T = self.auto.observe(rows.logits, rows.target, rows.counts(), self.total)
            self.curve = self._shaped(IMAE(T))
        losses = value_at_margin(rows.margin, self.curve)
        if self.normalize is None:
            return losses
        if self.normalize in CONSTANT_SCALES:
            return losses / constant_weight(self.curve, rows.logits, self.normalize)
        weights = weight_at_margin(rows.margin, self.curve)
        return losses / batch_weight(weights, rows.counts(), self.total)

    def _shaped(self, curve: Curve) -> Curve:
        low, high = self._window
        if (low, high) != (-math.inf, math.inf):
            curve = Window(curve, low=low, high=high)
        return curve if self._factor == 1 else Scale(curve, self._factor)

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        return f"{self.curve!r}, normalize={self.normalize!r}"


def output_step(*, cap: float | None, bound: float | None) -> LogitLimit | None:
    """The last step of a model: a cap on its confidence, or a bound on its logits.

    Raises:
        ArgumentError: If both are given, or one is out of its range.

    Examples:
        >>> output_step(cap=0.75, bound=None)
        CappedLogits(cap=0.75)
    """
    if cap is not None and bound is not None:
        raise ArgumentError("give a cap or a bound, not both: each of them limits the logits")
    if cap is not None:
        return CappedLogits(cap)
    return None if bound is None else BoundedLogits(bound)


@final
class LossMethod(Method):
    """Training on a loss that is given as a function.

    Args:
        loss: Called as ``loss(logits, target, reduction="none")``; returns a loss for each row.

    Examples:
        >>> import torch
        >>> from imae.losses import label_smoothing_loss
        >>> rows = Rows(torch.zeros(1, 4), torch.tensor([0]), torch.tensor([0]))
        >>> LossMethod(label_smoothing_loss)(rows)
        tensor([1.3863])
    """

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        return self.loss(rows.logits, rows.target, reduction="none")


@final
class ActiveNegative(Method):
    """ANL-CE with its penalty: the loss of every row, plus the absolute values of all weights.

    Formula, with w the parameters of the network:

        imae.losses.active_negative_loss + delta sum_i |w_i|

    The penalty keeps the robust part from overfitting. As published it is used in place of weight
    decay, which the authors set to 0 (``optimizer.weight_decay=0``). Defaults are those of their
    code for CIFAR-10; for CIFAR-100 alpha = 10, beta = 1, delta = 5e-7. No state.

    Args:
        alpha: Factor of the normalised cross entropy, not negative.
        beta: Factor of the normalised negative cross entropy, not negative.
        delta: Factor of the penalty, not negative.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> rows = Rows(torch.zeros(1, 4), torch.tensor([0]), torch.tensor([0]))
        >>> ActiveNegative(alpha=1.0, beta=1.0)(rows)
        tensor([1.])

    Reference:
        Ye et al., "Active negative loss functions for learning with noisy labels", NeurIPS 2023.
    """

    works_on_weights: ClassVar[bool] = True

    def __init__(self, *, alpha: float = 5.0, beta: float = 5.0, delta: float = 5e-5) -> None:
        super().__init__()
        check_interval("alpha", alpha, low=0)
        check_interval("beta", beta, low=0)
        check_interval("delta", delta, low=0)
        self.alpha = alpha
        self.beta = beta
        self.delta = delta

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); each has the whole penalty, so that their mean has it."""
        losses = active_negative_loss(
            rows.logits, rows.target, alpha=self.alpha, beta=self.beta, reduction="none"
        )
        if self.delta == 0 or not hasattr(self, "facts"):
            return losses
        parameters = self.facts.networks[0].parameters()
        sizes = [each.abs().sum() for each in parameters if each.requires_grad]
        return losses + self.delta * torch.stack(sizes).sum() if sizes else losses

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"alpha={self.alpha}, beta={self.beta}, delta={self.delta}"
