"""Rows chosen by their loss: trimming, pruning, and two networks that choose for each other."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from imae.curves.catalog import parse_curve
from imae.curves.classic import GCE
from imae.errors import check_choice, check_interval
from imae.losses.functional import NORMALIZATIONS
from imae.losses.margin import (
    CONSTANT_SCALES,
    batch_weight,
    constant_weight,
    margin,
    precise,
    value_at_margin,
    weight_at_margin,
)
from imae.methods.method import Facts, Method, Rows, is_selection_due, output_step


@final
class Trimmed(Method):
    """Iterative trimmed loss minimisation: choose the rows of smallest loss, train on them, repeat.

    Formula, with S the ``keep * N`` rows of smallest loss under the network in evaluation mode:

        l = phi(m) B / |S in the batch| for rows in S, 0 for others

    so that the mean over the batch is the mean over its kept rows, on all ranks together. All
    rows count during the warm-up. Every curve falls with the margin, so rows are ranked by it,
    exactly and without ties where losses round to 0. State: one byte per row.

    What differs from the publication: the authors' code trains nine times, first on all rows
    and then in eight rounds, each from new initial weights, and passes on the best network by
    held-out accuracy; here the nine are parts of one run, and the network keeps its weights.
    Rows that are not kept still enter the statistics of batch normalisation.

    Args:
        loss: A curve as text, such as ``"cce"`` or ``"imae:T=8"``; the publication has CCE.
        keep: Fraction of the rows that is kept, in (0, 1]: the part with right labels, or less.
        warm_up: Fraction of the run before the first choice, in (0, 1].
        every: Fraction of the run between two choices, in (0, 1].
        normalize: "batch" divides by the mean weight of the kept rows too, "chance" by the weight
            at p = 1 / C, "half" by that at p = 1 / 2; None does not divide.
        bound: Largest length of a logit vector that the model outputs; None for no bound.
        cap: Largest probability that the model outputs, in (1 / C, 1); None for no cap.

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
        cap: float | None = None,
    ) -> None:
        super().__init__()
        check_interval("keep", keep, low=0, high=1, open_low=True)
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True)
        check_interval("every", every, low=0, high=1, open_low=True)
        check_choice("normalize", normalize, NORMALIZATIONS)
        self.output_step = output_step(cap=cap, bound=bound)
        self.curve = parse_curve(loss)
        self.keep = keep
        self.warm_up = warm_up
        self.every = every
        self.normalize = normalize

    def start(self, facts: Facts) -> None:
        """Keeps every row."""
        super().start(facts)
        self.register_buffer("is_kept", torch.ones_like(facts.labels, dtype=torch.bool))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        losses = value_at_margin(rows.margin, self.curve)
        is_kept = self.is_kept[rows.row]
        weights = torch.ones_like(losses)
        if self.normalize == "batch":
            weights = weight_at_margin(rows.margin, self.curve)
        elif self.normalize in CONSTANT_SCALES:
            weights = weights * constant_weight(self.curve, rows.logits, self.normalize)
        # Rows that are not kept have no weight; a batch without a kept row has no loss.
        scale = batch_weight(weights.masked_fill(~is_kept, 0), rows.counts(), self.total)
        return torch.where(is_kept, losses / scale, 0)

    def end_epoch(self, epoch: int) -> None:
        """Chooses the rows again at the end of a round."""
        facts = self.facts
        if is_selection_due(epoch + 1, facts.num_epochs, warm_up=self.warm_up, every=self.every):
            assert facts.predict is not None
            m = facts.of_counted(margin(precise(facts.predict()), facts.labels.cpu()))
            num_kept = max(1, int(self.keep * len(m)))
            kept = facts.counted[m.argsort(descending=True, stable=True)[:num_kept]]
            self.is_kept.zero_()[kept] = True

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        parts = f"keep={self.keep}, warm_up={self.warm_up:g}, every={self.every:g}"
        return f"{self.curve!r}, {parts}, normalize={self.normalize!r}"


@final
class TruncatedGCEMethod(Method):
    """Training on truncated GCE by alternating search: fit the kept rows, then choose them again.

    Formula, with p the probability of the label and v in {0, 1} a memory of every row:

        l = v (1 - p^q) / q + (1 - v) (1 - k^q) / q
        v = 1 if p > k else 0, for all rows by the network in evaluation mode

    With v fixed, a pruned row has no gradient; with the network fixed, this v minimises
    the loss, so both steps lower the same sum. All rows count during the warm-up.
    The batch is averaged over all its rows, pruned ones included. State: one byte per row.

    What differs from the publication: rows are chosen by the current network; the code in
    common use takes the best network so far by test accuracy, which no run should look at. The
    40 of 120 epochs before the first pruning and the 10 between two are parts of the run, and the
    first part is longer: in a short run whole classes are not learned by a third of it, and a
    class that is pruned completely hardly comes back. A pruning that would remove every row changes
    nothing, because nothing would be left to learn from.

    Args:
        q: Position between CCE and MAE, in (0, 1].
        k: Probability at which a row is pruned, in (0, 1).
        warm_up: Fraction of the run before the first pruning, in (0, 1]; published: 1/3.
        every: Fraction of the run between two prunings, in (0, 1].

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
        losses = value_at_margin(rows.margin, self.curve)
        threshold = (1 - self.k**self.curve.q) / self.curve.q
        return losses.where(self.is_kept[rows.row], threshold)

    def end_epoch(self, epoch: int) -> None:
        """Prunes at the end of a round."""
        facts = self.facts
        if is_selection_due(epoch + 1, facts.num_epochs, warm_up=self.warm_up, every=self.every):
            assert facts.predict is not None
            m = margin(precise(facts.predict()), facts.labels.cpu())
            # p > k, without a probability that could round to k.
            is_kept = m > math.log(self.k) - math.log1p(-self.k)
            if facts.of_counted(is_kept).any():
                self.is_kept.copy_(is_kept)

    def extra_repr(self) -> str:
        """The curve and the options, for ``repr``."""
        return f"{self.curve!r}, k={self.k}, warm_up={self.warm_up:g}, every={self.every:g}"


@final
class CoTeaching(Method):
    """Co-teaching: each network learns from the rows that have the smallest loss for the other.

    Formula, with B rows that count in the batch of all ranks and R of them kept:

        R   = B (1 - rate min(1, epoch / (gradual num_epochs))^exponent)
        l_i = B / R ([i in S2] l1_i + [i in S1] l2_i)

    where l1 and l2 are the cross entropies of the two networks and S1 and S2 the R rows with the
    smallest of each. The mean over the batch is the sum of the two networks' means over the rows
    they learn from; each network gets only the gradient of its own part. All rows count in the
    first epoch. The first network is the one that is evaluated. No state besides the epoch.

    What differs from the publication: the epochs over which the forget rate grows are a part of
    the run, by default 10 of 40 where the authors take 10 of 200, before the networks of a short
    run know enough to choose. R is rounded to the nearest whole number, at least 1, where the
    authors' code rounds down; that code also divides each mean by R once more, which does not
    affect Adam. With an exponent other than 1 the paper divides epoch^exponent by 10; here the
    growth ends at the same epoch for every exponent.

    Args:
        rate: Fraction of the rows that is left out in the end, in [0, 1): the noise rate.
        gradual: Fraction of the run over which it grows from 0, in (0, 1]; published: 0.05.
        exponent: Of that growth: below 1 faster at first, above 1 slower, in (0, inf).

    Examples:
        >>> from imae.methods import Facts
        >>> method = CoTeaching(rate=0.5)
        >>> target = torch.tensor([0, 0])
        >>> method.start(Facts(target, 2, num_epochs=20, seed=0))
        >>> method.start_epoch(5)
        >>> first, second = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.eye(2)
        >>> method(Rows(first, target, torch.arange(2), other_logits=(second,)))
        tensor([1.2530, 0.0000])

    Reference:
        Han et al., "Co-teaching: robust training of deep neural networks with extremely noisy
        labels", NeurIPS 2018, Algorithm 1.
    """

    num_networks: ClassVar[int] = 2

    def __init__(self, *, rate: float = 0.4, gradual: float = 0.25, exponent: float = 1.0) -> None:
        super().__init__()
        check_interval("rate", rate, low=0, high=1, open_high=True)
        check_interval("gradual", gradual, low=0, high=1, open_low=True)
        check_interval("exponent", exponent, low=0, open_low=True)
        self.rate = rate
        self.gradual = gradual
        self.exponent = exponent
        self._part_kept = 1.0

    def start_epoch(self, epoch: int) -> None:
        """Sets the part of the rows that counts in this epoch."""
        growth = min(1.0, epoch / (self.gradual * self.facts.num_epochs))
        self._part_kept = 1 - self.rate * growth**self.exponent

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,), summed over both networks."""
        losses = torch.stack(
            [
                functional.cross_entropy(precise(logits), rows.target, reduction="none")
                for logits in (rows.logits, *rows.other_logits)
            ]
        )
        counts = rows.counts().to(losses.dtype)
        # A row that does not count is never chosen, nor counted among those to choose from.
        ranked = losses.detach().masked_fill(counts == 0, torch.inf)
        of_all = self.facts.gather(ranked.t()).t()
        row_of_all = self.facts.gather(rows.row)
        num_rows = int((of_all[0] < torch.inf).sum())
        num_kept = max(1, round(self._part_kept * num_rows))
        smallest = row_of_all[of_all.argsort(dim=1, stable=True)[:, :num_kept]]
        # Rows are identified by position: a rank does not know where its own rows are in the batch.
        first, second = (torch.isin(rows.row, chosen) for chosen in smallest)
        is_taught = torch.stack([second, first])
        kept, number = self.facts.total((is_taught * counts).sum(1)), self.facts.total(counts.sum())
        # If only rows that do not count are kept, nothing is learned from the batch.
        scale = number / kept.masked_fill(kept == 0, 1)
        return torch.where(is_taught, losses * scale.unsqueeze(1), 0).sum(0)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"rate={self.rate}, gradual={self.gradual:g}, exponent={self.exponent}"
