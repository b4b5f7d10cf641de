"""Training on the rows of smallest loss alone, chosen anew in rounds."""

from typing import final

import torch
from torch import Tensor

from imae._checks import check_choice, check_interval
from imae.curves.spec import parse_curve
from imae.losses.bound import bound_logits
from imae.losses.functional import NORMALIZATIONS, curve_loss
from imae.losses.margin import margin, precise, weight_at_margin
from imae.methods.method import Facts, Method, Rows
from imae.methods.renewal import is_renewal


@final
class Trimmed(Method):
    """Iterative trimmed loss minimisation: choose the rows of smallest loss, train on them, repeat.

    Formula, with S the ``keep * N`` rows of smallest loss under the network in evaluation mode:

        l = phi(m) B / |S in the batch| for rows in S, 0 for others

    so that the mean over the batch is the mean over its kept rows, on all ranks together. All
    rows count during the warm-up. Every curve falls with the margin, so rows are ranked by it,
    exactly and without ties where losses round to 0. State: one byte a row.

    What differs from the publication: the authors' code trains nine times, first on all rows
    and then in eight rounds, each from new start weights and with the best network by held-out
    accuracy handed on; here the nine are parts of one run, and the network goes on as it is.
    Rows that are not kept still pass through the network, and so enter the statistics of batch
    normalisation.

    Args:
        loss: A curve as text, such as ``"cce"`` or ``"imae:T=8"``; the publication has CCE.
        keep: Part of the rows that is kept, in (0, 1]: the part with right labels, or less.
        warm_up: Part of the run before the first choice, in (0, 1].
        every: Part of the run between two choices, in (0, 1].
        normalize: "batch" divides by the mean weight of the kept rows too; None does not. With
            ``bound`` it makes IMAE stable, as in ``imae_stable``.
        bound: Largest length of a logit vector that the loss sees; None for no bound.

    Raises:
        ArgumentError: If an option is out of its range or the curve is unknown.

    Examples:
        >>> labels = torch.tensor([0, 0])
        >>> method = Trimmed(keep=0.5, warm_up=0.25)
        >>> logits = torch.tensor([[0.0, 9.0], [9.0, 0.0]])
        >>> method.start(Facts(labels, 2, num_epochs=8, seed=0, predict=lambda: logits))
        >>> method.end_epoch(1)
        >>> method.is_kept
        tensor([False,  True])

    Reference:
        Shen and Sanghavi, "Learning with bad training data via iterative trimmed loss
        minimization", ICML 2019.
    """

    is_kept: Tensor

    def __init__(
        self,
        *,
        loss: str = "cce",
        keep: float = 0.6,
        warm_up: float = 1 / 9,
        every: float = 1 / 9,
        normalize: str | None = None,
        bound: float | None = None,
    ) -> None:
        super().__init__()
        check_interval("keep", keep, low=0, high=1, open_low=True)
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True)
        check_interval("every", every, low=0, high=1, open_low=True)
        check_choice("normalize", normalize, NORMALIZATIONS)
        if bound is not None:
            check_interval("bound", bound, low=0, open_low=True, open_high=True)
        self.curve = parse_curve(loss)
        self.keep = keep
        self.warm_up = warm_up
        self.every = every
        self.normalize = normalize
        self.bound = bound

    def start(self, facts: Facts) -> None:
        """Keeps every row."""
        super().start(facts)
        self.register_buffer("is_kept", torch.ones_like(facts.labels, dtype=torch.bool))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        logits = self._bounded(rows.logits)
        losses = curve_loss(logits, rows.target, self.curve, reduction="none")
        is_kept = self.is_kept[rows.row]
        weights = torch.ones_like(losses)
        if self.normalize is not None:
            weights = weight_at_margin(margin(logits.detach(), rows.target), self.curve)
        weights = weights.masked_fill(~is_kept, 0)
        counts = rows.counts().to(weights.dtype)
        sums = torch.stack([(weights * counts).sum(), counts.sum()])
        weight, num_rows = self.facts.total(sums).unbind()
        # A batch may hold no kept row at all: it then has no loss.
        scale = num_rows / weight.masked_fill(weight == 0, 1)
        return torch.where(is_kept, losses * scale, 0)

    def end_epoch(self, epoch: int) -> None:
        """Chooses the rows anew where it is time to."""
        facts = self.facts
        if is_renewal(epoch + 1, facts.num_epochs, warm_up=self.warm_up, every=self.every):
            assert facts.predict is not None
            m = margin(self._bounded(facts.predict()), facts.labels.cpu())
            num_kept = max(1, int(self.keep * len(m)))
            kept = m.argsort(descending=True, stable=True)[:num_kept]
            self.is_kept.zero_()[kept] = True

    def _bounded(self, logits: Tensor) -> Tensor:
        logits = precise(logits)
        return logits if self.bound is None else bound_logits(logits, self.bound)

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        parts = f"keep={self.keep}, warm_up={self.warm_up:g}, every={self.every:g}"
        return f"{self.curve!r}, {parts}, normalize={self.normalize!r}, bound={self.bound!r}"
