"""Generalised cross entropy on the rows that an alternating search has not pruned."""

import math
from typing import final

import torch
from torch import Tensor

from imae._checks import check_interval
from imae.curves.classic import GCE
from imae.losses.functional import curve_loss
from imae.losses.margin import margin, precise
from imae.methods.method import Facts, Method, Rows
from imae.methods.renewal import is_renewal


@final
class TruncatedGCEMethod(Method):
    """Training on truncated GCE by alternating search: fit the kept rows, then choose them anew.

    Formula, with p the probability of the label and v in {0, 1} a memory of every row:

        l = v (1 - p^q) / q + (1 - v) (1 - k^q) / q
        v = 1 if p > k else 0, for all rows by the network in evaluation mode

    With v held fixed a pruned row sends no gradient; chosen with the network held fixed, v makes
    the loss smallest, so that both steps lower the same sum. All rows count during the warm-up.
    The batch is averaged over all its rows, pruned ones included. State: one byte a row.

    What differs from the publication: rows are chosen by the network as it is; the code in
    common use takes the best network so far by test accuracy, which no run should look at. The
    40 of 120 epochs before the first pruning and the 10 between two are parts of the run, and the
    first part is longer: in a short run whole classes are not learned by a third of it, and a
    class that is pruned as a whole hardly comes back. A search that would prune every row changes
    nothing, because nothing would be left to learn from. The search ends with the run, as in
    their experiments.

    Args:
        q: Position between CCE and MAE, in (0, 1].
        k: Probability at which a row is pruned, in (0, 1).
        warm_up: Part of the run before the first pruning, in (0, 1]; published: 1/3.
        every: Part of the run between two prunings, in (0, 1].

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> labels = torch.tensor([0, 0])
        >>> method = TruncatedGCEMethod(warm_up=0.25)
        >>> logits = torch.tensor([[0.0, 9.0], [9.0, 0.0]])
        >>> method.start(Facts(labels, 2, num_epochs=12, seed=0, predict=lambda: logits))
        >>> method.end_epoch(2)
        >>> method.is_kept
        tensor([False,  True])

    Reference:
        Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with
        noisy labels", NeurIPS 2018, Eq. (8) and Algorithm 1.
    """

    is_kept: Tensor

    def __init__(
        self, *, q: float = 0.7, k: float = 0.5, warm_up: float = 0.7, every: float = 1 / 12
    ) -> None:
        super().__init__()
        check_interval("k", k, low=0, high=1, open_low=True, open_high=True)
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True)
        check_interval("every", every, low=0, high=1, open_low=True)
        self.curve = GCE(q)
        self.k = k
        self.warm_up = warm_up
        self.every = every

    def start(self, facts: Facts) -> None:
        """Keeps every row."""
        super().start(facts)
        self.register_buffer("is_kept", torch.ones_like(facts.labels, dtype=torch.bool))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        losses = curve_loss(precise(rows.logits), rows.target, self.curve, reduction="none")
        threshold = (1 - self.k**self.curve.q) / self.curve.q
        return losses.where(self.is_kept[rows.row], threshold)

    def end_epoch(self, epoch: int) -> None:
        """Prunes where it is time to."""
        facts = self.facts
        if is_renewal(epoch + 1, facts.num_epochs, warm_up=self.warm_up, every=self.every):
            assert facts.predict is not None
            m = margin(precise(facts.predict()), facts.labels.cpu())
            # p > k, without a probability that could round to k.
            is_kept = m > math.log(self.k) - math.log1p(-self.k)
            if is_kept.any():
                self.is_kept.copy_(is_kept)

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        return f"{self.curve!r}, k={self.k}, warm_up={self.warm_up:g}, every={self.every:g}"
