"""Rows weighted: by how uncertain they are, or by how much they help trusted rows."""

import warnings
from collections.abc import Callable
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp
from torch.nn import functional

from imae._draws import torch_generator
from imae.curves.classic import CCE
from imae.errors import ArgumentError, check_choice, check_integer, check_interval
from imae.losses.margin import precise, value_at_margin
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
        """Weight of each row, shape (B,), whose mean over all ranks, by ``counts``, is 1."""
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


@final
class LearningToReweight(Method):
    """Learning to reweight: rows count as far as their gradient agrees with that of trusted rows.

    Formula, with l_i the cross entropy of row i, g the gradient of the mean cross entropy of a
    batch of trusted rows, and B rows in the batch of all ranks:

        u_i = max(0, <g, grad l_i>)
        loss of row i = B u_i / sum_j u_j l_i, or 0 if all u_j are 0

    so that the mean over the batch is the weighted sum of the publication. There u_i is the
    derivative of the trusted loss by the weight of row i in one step of gradient descent from
    weights of 0; the step's length drops out, and what remains is the inner product above. It is
    computed for all rows in one pass of forward differentiation, exactly, in the precision of the
    network's weights. Batch normalisation uses the statistics of each batch in both passes, and
    its running statistics do not change. State: the number of steps. A step costs about three
    times a step of CCE when both batches have the same size.

    What differs from the publication: trusted rows are not augmented; they are set aside and
    never trained on directly (as there); each rank normalises by the statistics of its own share
    of the batch. The network must be one that torch can differentiate forward.

    Args:
        batch_size: Trusted rows in a step; all of them if there are fewer.

    Raises:
        ArgumentError: If ``batch_size`` is under 1.

    Examples:
        >>> from imae.methods import TrustedRows
        >>> network = nn.Linear(2, 2, bias=False)
        >>> trusted = TrustedRows(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
        >>> method = LearningToReweight()
        >>> target = torch.tensor([0, 1])
        >>> method.start(Facts(target, 2, 1, 0, networks=(network,), trusted=trusted))
        >>> inputs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # one input, with both labels
        >>> method.weights(Rows(network(inputs), target, torch.arange(2), inputs))
        tensor([1., 0.])

    Reference:
        Ren et al., "Learning to reweight examples for robust deep learning", ICML 2018,
        Algorithm 1.
    """

    needs_trusted: ClassVar[bool] = True
    works_on_weights: ClassVar[bool] = True

    def __init__(self, *, batch_size: int = 100) -> None:
        super().__init__()
        check_integer("batch_size", batch_size, low=1)
        self.batch_size = batch_size
        self._step = 0

    def start(self, facts: Facts) -> None:
        """Takes the trusted rows.

        Raises:
            ArgumentError: If there are none.
        """
        super().start(facts)
        if facts.trusted is None or len(facts.trusted.labels) == 0:
            raise ArgumentError(
                "method l2rw needs rows whose labels are right: set data.trusted to their number, "
                "or to validation for the validation part of the data"
            )
        self._trusted = facts.trusted
        with warnings.catch_warnings():
            # At its first use of forward differentiation torch calls a tool that it deprecates.
            warnings.simplefilter("ignore", DeprecationWarning)
            jvp(torch.neg, (torch.zeros(1),), (torch.zeros(1),))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        losses = functional.cross_entropy(precise(rows.logits), rows.target, reduction="none")
        weights = self.weights(rows).to(losses.dtype)
        self._step += 1
        number = self.facts.total(rows.counts().to(weights.dtype).sum())
        return weights * number * losses

    def weights(self, rows: Rows) -> Tensor:
        """Weight of every row, shape (B,): none negative, their sum over all ranks 1 or 0.

        The sum is taken with each row counted as much as the data say.
        """
        assert rows.inputs is not None
        network = self.facts.networks[0]
        inputs, labels = self._trusted_batch(rows.inputs)
        named = network.named_parameters()
        parameters = {name: each.detach() for name, each in named if each.requires_grad}
        with torch.autocast(rows.inputs.device.type, enabled=False):
            direction = grad(_losses(network, inputs, labels, mean=True))(parameters)
            of_rows = _losses(network, rows.inputs, rows.target, mean=False)
            with torch.no_grad():
                agreement: Tensor = jvp(of_rows, (parameters,), (direction,))[1]
        useful = agreement.relu()
        total = self.facts.total((useful * rows.counts().to(useful.dtype)).sum())
        return useful / total.masked_fill(total == 0, 1)

    def _trusted_batch(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Trusted rows of this step, the same on all ranks."""
        inputs, labels = self._trusted.inputs, self._trusted.labels
        # The step decides what is drawn, so that a resumed run draws what it would have drawn.
        draws = torch_generator(self.facts.seed, "trusted batch", self._step)
        drawn = torch.randperm(len(labels), generator=draws)[: self.batch_size].to(labels.device)
        return inputs[drawn].to(like), labels[drawn].to(like.device)

    def extra_repr(self) -> str:
        """The option, for ``repr``."""
        return f"batch_size={self.batch_size}"

    def get_extra_state(self) -> int:
        """The number of steps so far."""
        return self._step

    def set_extra_state(self, state: int) -> None:
        """Restores the number of steps."""
        self._step = state


def _losses(
    network: nn.Module, inputs: Tensor, target: Tensor, *, mean: bool
) -> Callable[[dict[str, Tensor]], Tensor]:
    """Cross entropy of each row, or its mean, as a function of the network's parameters."""

    def losses(parameters: dict[str, Tensor]) -> Tensor:
        # Copies take what batch normalisation would write into its running statistics.
        buffers = {name: each.clone() for name, each in network.named_buffers()}
        logits = functional_call(network, {**parameters, **buffers}, (inputs,))
        reduction = "mean" if mean else "none"
        return functional.cross_entropy(precise(logits), target, reduction=reduction)

    return losses
