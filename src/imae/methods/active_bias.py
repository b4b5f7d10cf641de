"""Active bias: rows whose prediction is uncertain count more."""

from typing import final

import torch
from torch import Tensor

from imae._checks import check_choice, check_interval
from imae.curves.classic import CCE
from imae.losses.margin import value_at_margin
from imae.methods.method import Facts, Method, RowMemory, Rows

UNCERTAINTIES = ("variance", "threshold")


@final
class ActiveBias(Method):
    """Cross entropy weighted by how uncertain the past predictions of each row are.

    Formula, with h the probabilities of the given label each time that the row was seen before,
    and n their number:

        variance:  u = sqrt(var(h) + var(h)^2 / (n - 1))
        threshold: u = mean(h) (1 - mean(h))
        loss = -(u + e) / mean over the batch of (u + e) * log p_y

    These are the paper's SGD-WPV (weighted by prediction variance, widened by how little is known
    of a variance from n values) and SGD-WTC (weighted by threshold closeness). The constant e
    keeps rows with a steady prediction in. In the first part of the run all rows weigh 1.

    The paper also draws batches by u; here every epoch sees every row once, so only the
    weighted variants exist. It keeps sums instead of the history: three numbers for each row.
    The defaults of ``warm_up`` and e are ours.

    Args:
        uncertainty: "variance" or "threshold".
        warm_up: Part of the run in which all rows weigh the same, in [0, 1].
        smoothness: The constant e; None for the mean of u over all rows, updated at the end of
            each epoch.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> method = ActiveBias()
        >>> labels = torch.tensor([0, 1])
        >>> method.start(Facts(labels=labels, num_classes=4, num_epochs=10, seed=0))
        >>> method(Rows(torch.zeros(2, 4), labels, torch.arange(2)))
        tensor([1.3863, 1.3863])

    Reference:
        Chang et al., "Active Bias: Training More Accurate Neural Networks by Emphasizing High
        Variance Samples", NeurIPS 2017.
    """

    mean_uncertainty: Tensor

    def __init__(
        self,
        *,
        uncertainty: str = "variance",
        warm_up: float = 0.15,
        smoothness: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("uncertainty", uncertainty, UNCERTAINTIES)
        check_interval("warm_up", warm_up, low=0, high=1)
        if smoothness is not None:
            check_interval("smoothness", smoothness, low=0, open_low=True)
        self.uncertainty = uncertainty
        self.warm_up = warm_up
        self.smoothness = smoothness

    def start(self, facts: Facts) -> None:
        """Nothing is known of any row yet."""
        super().start(facts)
        # Number of predictions, their mean, and the sum of squared distances from it.
        self.history = RowMemory(torch.zeros(len(facts.labels), 3, device=facts.labels.device))
        self.register_buffer("mean_uncertainty", torch.zeros((), device=facts.labels.device))
        self._is_weighted = False

    def start_epoch(self, epoch: int) -> None:
        """Begins to weigh when the warm-up is over."""
        self._is_weighted = epoch >= self.warm_up * self.facts.num_epochs

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); its prediction joins the history afterwards."""
        m = rows.margin
        losses = value_at_margin(m, CCE())
        history = self.history.read(rows.row)
        if self._is_weighted:
            losses = losses * self._weights(history, rows.counts()).to(losses.dtype)
        self.history.write(rows.row, _lengthened(history, torch.sigmoid(m.detach())))
        return losses

    def _weights(self, history: Tensor, counts: Tensor) -> Tensor:
        """Weight of each row, shape (B,), with mean 1 over all ranks, each row counted so much."""
        smoothness = self.mean_uncertainty if self.smoothness is None else self.smoothness
        raw = self._uncertainty(history) + smoothness
        counts = counts.to(raw.dtype)
        total, number = self.facts.total(torch.stack([(raw * counts).sum(), counts.sum()])).unbind()
        # Before anything is known of the rows of a batch they weigh the same.
        return torch.where(total > 0, raw * number / total, torch.ones_like(raw))

    def _uncertainty(self, history: Tensor) -> Tensor:
        number, mean, squares = history.unbind(-1)
        if self.uncertainty == "threshold":
            return mean * (1 - mean)
        variance = squares / number.clamp(min=1)
        # One prediction has no variance, whatever it is divided by.
        return (variance + variance.square() / (number - 1).clamp(min=1)).sqrt()

    def end_epoch(self, epoch: int) -> None:  # noqa: ARG002
        """Takes the mean uncertainty of all rows."""
        self.mean_uncertainty.copy_(self._uncertainty(self.history.values).mean())

    def share(self) -> None:
        """Gives all ranks the history of all rows."""
        self.history.share(self.facts.total)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        options = ("uncertainty", "warm_up", "smoothness")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in options)


def _lengthened(history: Tensor, probability: Tensor) -> Tensor:
    """Number, mean and squared distances (B, 3) with one more probability (B,), after Welford."""
    number, mean, squares = history.unbind(-1)
    step = probability.to(history.dtype) - mean
    new_mean = mean + step / (number + 1)
    return torch.stack([number + 1, new_mean, squares + step * (step - step / (number + 1))], -1)
