"""Active negative loss: a robust pair of losses and a penalty on the weights of the network."""

from typing import ClassVar, final

import torch
from torch import Tensor

from imae._checks import check_interval
from imae.losses.normalized import active_negative_loss
from imae.methods.method import Method, Rows


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
