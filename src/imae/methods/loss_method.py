"""Losses as methods, with a window, normalisation, a cap on the confidence or a penalty."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from imae.curves.curve import Curve, Scale, Window, integrate_from_zero
from imae.curves.reweighted import IMAE
from imae.errors import ArgumentError, check_choice, check_interval
from imae.losses.auto import AutoT
from imae.losses.functional import NORMALIZATIONS
from imae.losses.limits import BoundedLogits, CappedLogits, LogitLimit
from imae.losses.margin import batch_weight, chance_weight, value_at_margin, weight_at_margin
from imae.losses.normalized import active_negative_loss
from imae.methods.method import Facts, Method, Rows

_AUTHORS_CONSTANT = 5e-7


@final
class CurveMethod(Method):
    """Training on the loss of a curve.

    Args:
        curve: The loss; or ``imae.losses.AutoT`` for IMAE whose T follows the training.
        window_low: Rows whose margin is smaller do not count; None for no such edge.
        window_high: Rows whose margin is larger do not count; None for no such edge.
        normalize: "chance" divides by the weight at p = 1 / C, a constant; "batch" by the mean
            weight of the batch, over all ranks; None does not divide.
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

    def output(self) -> LogitLimit | None:
        """The cap or the bound."""
        return self.output_step

    def shown(self) -> dict[str, float]:
        """T, if it follows the training."""
        return {} if self.auto is None else {"T": float(self.auto.T)}

    def start(self, facts: Facts) -> None:
        """Checks that the cap can be met with this number of classes."""
        super().start(facts)
        check_output_step(self.output_step, facts.num_classes)

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        if self.auto is not None:
            T = self.auto.observe(rows.logits, rows.target, rows.counts(), self.total)
            self.curve = self._shaped(IMAE(T))
        losses = value_at_margin(rows.margin, self.curve)
        if self.normalize is None:
            return losses
        if self.normalize == "chance":
            return losses / chance_weight(self.curve, rows.logits)
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


def check_output_step(step: LogitLimit | None, num_classes: int) -> None:
    """Raises if the cap of a step cannot be met with so many classes.

    Raises:
        ArgumentError: If so.
    """
    if isinstance(step, CappedLogits):
        step(torch.zeros(1, num_classes))


@final
class LossMethod(Method):
    """Training on a loss that is given as a function.

    Args:
        loss: Called as ``loss(logits, target, reduction="none")``; gives a loss for each row.

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
