"""Early-learning regularisation: what was learned first is not to be unlearned."""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from imae._checks import check_interval
from imae.losses.margin import margins, precise
from imae.methods.method import Facts, Method, RowMemory, Rows


@final
class ELR(Method):
    """Cross entropy, held to a moving average of each row's own predictions.

    Formula, with p the prediction (a constant where it enters t), and t = 0 before the first step:

        t <- beta t + (1 - beta) p
        loss = -log p_y + strength * log(1 - sum_k t_k p_k)

    The second term grows towards 0 where p leaves t, so its gradient pulls the prediction back to
    what the network said of the row before it began to memorise labels. The loss may be negative.

    The authors' code clamps p to [1e-4, 1 - 1e-4], which stops the gradient of confident rows.
    Here nothing is clamped: the memory holds 1 - t, and the logarithm is that of
    ``sum_k p_k (1 - t_k)``, summed in the log domain. It keeps N x C numbers.

    Args:
        beta: How slowly t follows the predictions, in [0, 1).
        strength: Factor of the second term, lambda in the paper; 0 is cross entropy.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> method = ELR()
        >>> labels = torch.tensor([0, 1])
        >>> method.start(Facts(labels=labels, num_classes=4, num_epochs=1, seed=0))
        >>> method(Rows(torch.zeros(2, 4), labels, torch.arange(2)))
        tensor([1.1524, 1.1524])

    Reference:
        Liu et al., "Early-Learning Regularization Prevents Memorization of Noisy Labels",
        NeurIPS 2020.
    """

    def __init__(self, *, beta: float = 0.7, strength: float = 3.0) -> None:
        super().__init__()
        check_interval("beta", beta, low=0, high=1, open_high=True)
        check_interval("strength", strength, low=0)
        self.beta = beta
        self.strength = strength

    def start(self, facts: Facts) -> None:
        """Nothing is expected of any row yet: 1 - t is 1."""
        super().start(facts)
        shape = (len(facts.labels), facts.num_classes)
        self.remainder = RowMemory(torch.ones(shape, device=facts.labels.device))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); the memory of these rows moves on first."""
        logits = precise(rows.logits)
        remainder = self._follow(logits.detach(), rows.row)
        log_p = logits.log_softmax(1)
        regulariser = torch.logsumexp(log_p + remainder.log(), 1)
        return functional.nll_loss(log_p, rows.target, reduction="none") + (
            self.strength * regulariser
        )

    def _follow(self, logits: Tensor, row: Tensor) -> Tensor:
        """Takes the predictions into the memory; what it then holds of these rows, (B, C)."""
        before = self.remainder.read(row).to(logits.dtype)
        # sigmoid(-m) is 1 - p without the rounding that would make it 0 for a confident row.
        after = self.beta * before + (1 - self.beta) * torch.sigmoid(-margins(logits))
        self.remainder.write(row, after)
        return after

    def share(self) -> None:
        """Gives all ranks the targets of all rows."""
        self.remainder.share(self.facts.total)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"beta={self.beta}, strength={self.strength}"
