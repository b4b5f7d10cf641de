"""Two networks that choose for each other which rows to learn from."""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from imae._checks import check_interval
from imae.losses.margin import precise
from imae.methods.method import Method, Rows


@final
class CoTeaching(Method):
    """Co-teaching: each network learns from the rows that have the smallest loss for the other.

    Formula, with B rows that count in the batch of all ranks and R of them kept:

        R   = B (1 - rate min(1, epoch / (gradual num_epochs))^exponent)
        l_i = B / R ([i in S2] l1_i + [i in S1] l2_i)

    where l1 and l2 are the cross entropies of the two networks and S1 and S2 the R rows with the
    smallest of each. The mean over the batch is the sum of the two networks' means over what they
    are taught; it sends each network the gradient of its own part only. All rows count in the
    first epoch. The first network is the one that is evaluated. No state besides the epoch.

    What differs from the publication: the epochs over which the forget rate grows are a part of
    the run, by default 10 of 40. The authors take 10 of 200; a twentieth of a short run comes
    before the networks know enough to choose. R is rounded to the nearest whole number and is at
    least 1, where the authors' code rounds down; that code also divides each mean by R once more,
    which their optimiser (Adam) does not feel and others would. With an exponent other than 1 the
    paper divides epoch^exponent by 10; here the growth ends at one epoch for every exponent.

    Args:
        rate: Part of the rows that is left out in the end, in [0, 1): the noise rate.
        gradual: Part of the run over which it grows from 0, in (0, 1]; published: 0.05.
        exponent: Of that growth: below 1 faster at first, above 1 slower, in (0, inf).

    Raises:
        ArgumentError: If an option is out of its range.

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
        """Loss of every row, shape (B,): what both networks are taught."""
        losses = torch.stack(
            [
                functional.cross_entropy(precise(logits), rows.target, reduction="none")
                for logits in (rows.logits, *rows.other_logits)
            ]
        )
        counts = rows.counts().to(losses.dtype)
        # A row that does not count is never chosen, nor is it one of those to choose from.
        ranked = losses.detach().masked_fill(counts == 0, torch.inf)
        of_all = self.facts.gather(ranked.t()).t()
        row_of_all = self.facts.gather(rows.row)
        num_rows = int((of_all[0] < torch.inf).sum())
        num_kept = max(1, round(self._part_kept * num_rows))
        smallest = row_of_all[of_all.argsort(dim=1, stable=True)[:, :num_kept]]
        # Rows are identified by position: a rank does not know where its own are among all.
        first, second = (torch.isin(rows.row, chosen) for chosen in smallest)
        is_taught = torch.stack([second, first])
        kept, number = self.facts.total((is_taught * counts).sum(1)), self.facts.total(counts.sum())
        # Rows that do not count may be all that is kept: the batch then teaches nothing.
        scale = number / kept.masked_fill(kept == 0, 1)
        return torch.where(is_taught, losses * scale.unsqueeze(1), 0).sum(0)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"rate={self.rate}, gradual={self.gradual:g}, exponent={self.exponent}"
