"""Rows weighted by uncertainty or by their benefit to trusted rows, or with clipped gradients."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp
from torch.nn import functional
from torch.nn.functional import logsigmoid

from imae._draws import derive_seed, torch_generator
from imae.curves.classic import CCE
from imae.curves.curve import Curve
from imae.errors import ArgumentError, check_choice, check_integer, check_interval, import_extra
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

    These are the paper's SGD-WPV (weighted by prediction variance, increased for the uncertainty
    of a variance from n values) and SGD-WTC (weighted by threshold closeness). The constant e
    keeps rows with a steady prediction in. In the first part of the run all rows have weight 1.

    The paper also draws batches by u; here every epoch sees every row once, so only the
    weighted variants exist. It keeps sums instead of the history: three numbers for each row.
    The defaults of ``warm_up`` and e are ours.

    Args:
        uncertainty: "variance" or "threshold".
        warm_up: Fraction of the run in which all rows weigh the same, in [0, 1].
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
        """Starts with an empty history of every row."""
        super().start(facts)
        # Number of predictions, their mean, and the sum of squared distances from it.
        self.history = RowMemory(torch.zeros(len(facts.labels), 3, device=facts.labels.device))
        self.register_buffer("mean_uncertainty", torch.zeros((), device=facts.labels.device))
        self._is_weighted = False

    def start_epoch(self, epoch: int) -> None:
        """Starts weighting when the warm-up is over."""
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
        counts = counts.to(history.dtype)
        raw = (self._uncertainty(history) + smoothness).masked_fill(counts == 0, 0)
        total, number = self.facts.total(torch.stack([(raw * counts).sum(), counts.sum()])).unbind()
        # As long as the rows of a batch have no history, they have the same weight.
        return torch.where(total > 0, raw * number / total, torch.ones_like(raw))

    def _uncertainty(self, history: Tensor) -> Tensor:
        number, mean, squares = history.unbind(-1)
        if self.uncertainty == "threshold":
            return mean * (1 - mean)
        variance = squares / number.clamp(min=1)
        # A single prediction has no variance, whatever the divisor.
        return (variance + variance.square() / (number - 1).clamp(min=1)).sqrt()

    def end_epoch(self, epoch: int) -> None:  # noqa: ARG002
        """Computes the weighted mean uncertainty of all rows."""
        known = self._uncertainty(self.facts.of_counted(self.history.values))
        if self.facts.weights is None:
            self.mean_uncertainty.copy_(known.mean())
        else:
            counts = self.facts.counts.to(known)
            self.mean_uncertainty.copy_((known * counts).sum() / counts.sum())

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
    """Learning to reweight: rows count by how much their gradient agrees with that of trusted rows.

    Formula, with l_i the cross entropy of row i, g the gradient of the mean cross entropy of a
    batch of trusted rows, and B rows in the batch of all ranks:

        u_i = max(0, <g, grad l_i>)
        loss of row i = B u_i / sum_j u_j l_i, or 0 if all u_j are 0

    so that the mean over the batch is the weighted sum of the publication. There u_i is the
    derivative of the trusted loss by the weight of row i in one step of gradient descent from
    weights of 0; the step's length cancels, and the inner product above remains. It is
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
        """Stores the trusted rows.

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
        """Weight of every row, shape (B,), not negative, with a sum over all ranks of 1 or 0.

        In the sum each row counts with its weight in the data.
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
        useful = agreement.relu().masked_fill(rows.counts() == 0, 0)
        total = self.facts.total((useful * rows.counts().to(useful.dtype)).sum())
        return useful / total.masked_fill(total == 0, 1)

    def _trusted_batch(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Trusted rows of this step, the same on all ranks."""
        inputs, labels = self._trusted.inputs, self._trusted.labels
        # The draw depends only on the step, so that a resumed run draws the same rows.
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
        # Batch normalisation writes its running statistics into copies.
        buffers = {name: each.clone() for name, each in network.named_buffers()}
        logits = functional_call(network, {**parameters, **buffers}, (inputs,))
        reduction = "mean" if mean else "none"
        return functional.cross_entropy(precise(logits), target, reduction=reduction)

    return losses


# Range of the probabilities, and number of evenly spaced losses in it.
_SMALLEST_P = 1e-7
_LARGEST_P = 1 - 1e-7
_NUM_SAMPLES = 1000
_NUM_HALVINGS = 10
_TOLERANCE = 1e-7
# Of the mixture of two normal distributions.
_FIT_STEPS = 10
_SMALLEST_VARIANCE = 1e-3


@final
@dataclass(frozen=True)
class ClippedCCE(Curve):
    """Cross entropy, continued as a straight line in p where p is small.

    Formula:

        phi(m)  = -log p if p > k else 1 - p / k - log k
        phi'(m) = -(1 - p) min(1, p / k)
        w(p)    = 2 (1 - p) min(1, p / k)

    The derivative by p, 1 / p, is clipped at 1 / k. With k = 1 it is half of ``MAE``.

    Args:
        k: Probability under which the gradient is clipped, in (0, 1].

    Examples:
        >>> ClippedCCE(k=0.5).weight(torch.tensor([0.25, 0.75]))
        tensor([0.7500, 0.5000])

    Reference:
        Menon et al., "Can gradient clipping mitigate label noise?", ICLR 2020.
    """

    k: float = 0.1
    name: ClassVar[str] = "clipped_cce"

    def __post_init__(self) -> None:
        check_interval("k", self.k, low=0, high=1, open_low=True)

    def value(self, m: Tensor) -> Tensor:
        """Loss at margin ``m``."""
        log_p, log_k = logsigmoid(m), math.log(self.k)
        line = 1 - torch.exp(log_p - log_k) - log_k
        return torch.where(log_p > log_k, -log_p, line)

    def slope(self, m: Tensor) -> Tensor:
        """Derivative of the loss at margin ``m``."""
        share = torch.exp((logsigmoid(m) - math.log(self.k)).clamp(max=0))
        return -torch.sigmoid(-m) * share


@final
class OGC(Method):
    """Cross entropy whose gradient by p is clipped where wrong labels would weigh too much.

    Formula: ``ClippedCCE`` with the k for which

        E[min(1 / p, 1 / k)] of wrong rows / E[min(1 / p, 1 / k)] of right rows = 1 + slack * rate

    with ``rate`` the learning rate of the step. Right and wrong rows are the two parts of a
    mixture of two normal distributions, fitted every ``every`` steps to the cross entropies of
    the last ``memory`` rows; each is cut off at probabilities of 1e-7 and 1 - 1e-7. Until this
    number of rows is seen, and where the ratio is smaller without clipping, nothing is clipped;
    where no k makes it small enough, all rows are, at k = 1 - 1e-7.

    As published, with the defaults of the authors' code for all their data. There the logarithm's
    argument is clamped at 1e-7; here it is not. Keeps ``memory`` numbers.

    Args:
        slack: Epsilon of the publication, not negative: how much more wrong rows may weigh.
        every: Steps between two fits, at least 1.
        memory: Rows that a fit uses, at least 2.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> rows = Rows(torch.zeros(1, 4), torch.tensor([0]), torch.tensor([0]))
        >>> OGC()(rows)
        tensor([1.3863])

    Reference:
        Ye et al., "Optimized gradient clipping for noisy label learning", AAAI 2025.
    """

    def __init__(self, *, slack: float = 20.0, every: int = 32, memory: int = 4096) -> None:
        super().__init__()
        check_interval("slack", slack, low=0)
        check_integer("every", every, low=1)
        check_integer("memory", memory, low=2)
        self.slack = slack
        self.every = every
        self.memory = memory
        self.k = _SMALLEST_P
        self._num_steps = 0
        self.recent = torch.zeros(0)

    def start(self, facts: Facts) -> None:
        """Imports what the fit needs, before the run."""
        super().start(facts)
        import_extra("sklearn.mixture", extra="data")
        self.recent = torch.zeros(0, device=facts.labels.device)

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); in training its cross entropy is remembered first."""
        if self.training and hasattr(self, "facts"):
            self._remember(rows)
        return value_at_margin(rows.margin, ClippedCCE(self.k))

    def _remember(self, rows: Rows) -> None:
        known = torch.stack([-logsigmoid(rows.margin.detach()).float(), rows.counts()], dim=1)
        of_all = self.facts.gather(known)
        losses = of_all[of_all[:, 1] > 0, 0].clamp(-math.log(_LARGEST_P), -math.log(_SMALLEST_P))
        self.recent = torch.cat([self.recent, losses])[-self.memory :]
        self._num_steps += 1
        if self._num_steps % self.every == 0 and len(self.recent) == self.memory:
            seed = derive_seed(self.facts.seed, "ogc", self._num_steps) % 2**32
            parts = fit_two_normals(self.recent.cpu().double().numpy(), seed=seed)
            self.k = clipping_threshold(*parts, ratio=1 + self.slack * self.learning_rate)

    def get_extra_state(self) -> dict[str, Any]:
        """The threshold, the number of steps and the cross entropies, for ``state_dict``."""
        return {"k": self.k, "num_steps": self._num_steps, "recent": self.recent}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state that ``get_extra_state`` returned."""
        self.k, self._num_steps = state["k"], state["num_steps"]
        self.recent = state["recent"].to(self.recent.device)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"slack={self.slack}, every={self.every}, memory={self.memory}"


def fit_two_normals(
    losses: NDArray[np.float64], *, seed: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean and variance of the two parts of a mixture, the one with the smaller mean first.

    Examples:
        >>> losses = np.concatenate([np.linspace(0, 1, 99), np.linspace(5, 6, 99)])
        >>> [round(float(mean), 2) for mean, _ in fit_two_normals(losses, seed=0)]
        [0.5, 5.5]
    """
    mixture = import_extra("sklearn.mixture", extra="data")
    fitted = mixture.GaussianMixture(
        n_components=2, max_iter=_FIT_STEPS, reg_covar=_SMALLEST_VARIANCE, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten steps, as published, may not converge
        fitted.fit(losses.reshape(-1, 1))
    means, variances = fitted.means_.ravel(), fitted.covariances_.ravel()
    first, second = np.argsort(means, kind="stable")
    return (means[first], variances[first]), (means[second], variances[second])


def clipping_threshold(
    right: tuple[float, float], wrong: tuple[float, float], *, ratio: float
) -> float:
    """The probability k at which wrong rows have ``ratio`` times the weight of right ones.

    Args:
        right: Mean and variance of the cross entropy of rows whose label is right.
        wrong: Mean and variance of that of the others.
        ratio: Mean clipped gradient of the second over that of the first, at least 1.

    Returns:
        In [1e-7, 1 - 1e-7]; the smallest if that is enough, the largest if nothing is enough.
        Found by ten bisections, as in the publication, so accurate to 0.001.

    Examples:
        >>> clipping_threshold((0.5, 0.1), (3.0, 1.0), ratio=100.0)
        1e-07
        >>> round(clipping_threshold((0.5, 0.1), (3.0, 1.0), ratio=2.0), 3)
        0.278
    """
    losses = np.linspace(-math.log(_LARGEST_P), -math.log(_SMALLEST_P), _NUM_SAMPLES)
    gradient = np.exp(losses)
    shares = [np.exp(-((losses - mean) ** 2) / (2 * variance)) for mean, variance in (right, wrong)]
    right_share, wrong_share = (share / share.sum() for share in shares)

    def excess(k: float) -> float:
        clipped = np.minimum(gradient, 1 / k)
        return float(wrong_share @ clipped) / float(right_share @ clipped) - ratio

    low, high = _SMALLEST_P, _LARGEST_P
    if excess(high) > 0:
        return high
    if excess(low) < 0:
        return low
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        found = excess(middle)
        if abs(found) < _TOLERANCE:
            return middle
        low, high = (middle, high) if found > 0 else (low, middle)
    return high
