"""Optimised gradient clipping: cross entropy whose gradient is clipped as the training asks for."""

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from imae._draws import derive_seed
from imae.curves.curve import Curve
from imae.errors import check_integer, check_interval, import_extra
from imae.losses.margin import value_at_margin
from imae.methods.method import Facts, Method, Rows

# Probabilities are looked at in this range, at so many losses that are spread evenly over it.
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
    the last ``memory`` rows; each is cut off at probabilities of 1e-7 and 1 - 1e-7. Before so
    many rows are seen, and where no k is small enough, nothing is clipped.

    As published, with the defaults of the authors' code for all their data. There the logarithm's
    argument is clamped at 1e-7; here it is not. Keeps ``memory`` numbers.

    Args:
        slack: Epsilon of the publication, not negative: how much more wrong rows may weigh.
        every: Steps between two fits, at least 1.
        memory: Rows that a fit is made to, at least 2.

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
        self.k, self._num_steps, self.recent = state["k"], state["num_steps"], state["recent"]

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
        warnings.simplefilter("ignore")  # that ten steps, as published, were not enough
        fitted.fit(losses.reshape(-1, 1))
    means, variances = fitted.means_.ravel(), fitted.covariances_.ravel()
    first, second = np.argsort(means, kind="stable")
    return (means[first], variances[first]), (means[second], variances[second])


def clipping_threshold(
    right: tuple[float, float], wrong: tuple[float, float], *, ratio: float
) -> float:
    """The probability k at which wrong rows weigh ``ratio`` times as much as right ones.

    Args:
        right: Mean and variance of the cross entropy of rows whose label is right.
        wrong: Mean and variance of that of the others.
        ratio: Mean clipped gradient of the second over that of the first, at least 1.

    Returns:
        In [1e-7, 1 - 1e-7]; the smallest if that is enough, the largest if nothing is. Found by
        ten halvings, as in the publication, so to 0.001.

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
