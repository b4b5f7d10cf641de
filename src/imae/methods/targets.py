"""Targets that follow the network's own predictions: ELR, joint optimisation and D2L."""

import math
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from imae._draws import numpy_generator
from imae.errors import ArgumentError, check_choice, check_integer, check_interval
from imae.losses.general import bootstrap_loss
from imae.losses.margin import margins, precise
from imae.methods.method import Facts, Method, Restart, RowMemory, Rows, first_stage


@final
class ELR(Method):
    """Cross entropy, held to a moving average of each row's own predictions.

    Formula, with p the prediction (a constant where it enters t), and t = 0 before the first step:

        t <- beta t + (1 - beta) p
        loss = -log p_y + strength * log(1 - sum_k t_k p_k)

    The second term grows towards 0 where p departs from t, so its gradient pulls the prediction
    back to what the network predicted before it began to memorise labels. The loss may be negative.

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
        """Starts without predictions: 1 - t is 1."""
        super().start(facts)
        shape = (len(facts.labels), facts.num_classes)
        self.remainder = RowMemory(torch.ones(shape, device=facts.labels.device))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); the memory of these rows is updated first."""
        logits = precise(rows.logits)
        remainder = self._follow(logits.detach(), rows.row)
        log_p = logits.log_softmax(1)
        regulariser = torch.logsumexp(log_p + remainder.log(), 1)
        return functional.nll_loss(log_p, rows.target, reduction="none") + (
            self.strength * regulariser
        )

    def _follow(self, logits: Tensor, row: Tensor) -> Tensor:
        """Adds the predictions to the memory, and returns its values of these rows, (B, C)."""
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


TARGETS = ("soft", "hard")


@final
class JointOptim(Method):
    """Two stages: predictions replace the labels, then a new network learns the new labels.

    Formula, with p the prediction, y the current label of the row (a distribution), q the
    uniform distribution over classes, and p_mean the mean prediction of the batch over all ranks:

        first stage:  -sum_k y_k log p_k - alpha sum_k q_k log p_mean_k - beta sum_k p_k log p_k
        second stage: -sum_k y_k log p_k

    The first stage keeps a high learning rate, at which a network does not memorise. From
    ``update_from`` on, each of its epochs ends by making y the mean prediction of the last
    ``average_over`` epochs. The second term keeps the network from putting all rows in one class,
    the third makes predictions sharp.

    Defaults are those of the authors' code, where 200 epochs of the first stage, with updates
    from the 70th on by the mean of 10 epochs, are followed by 120 of the second; here they are
    parts of the run. If fewer epochs have passed, the mean is over those. For a row that an epoch
    leaves out, its last prediction counts. It keeps N x C numbers for each epoch of the mean,
    and twice N x C more.

    Args:
        alpha: Factor of the second term.
        beta: Factor of the third term.
        first_stage: Fraction of the run that is the first stage, in (0, 1).
        update_from: Fraction of the run after which labels are updated, in [0, first_stage).
        average_over: Fraction of the run over which predictions are averaged, in (0, 1]; at least
            an epoch.
        targets: "soft" takes the mean prediction as label, "hard" its most likely class.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> method = JointOptim(alpha=0.0, beta=0.0)
        >>> labels = torch.tensor([0, 1])
        >>> method.start(Facts(labels=labels, num_classes=4, num_epochs=320, seed=0))
        >>> method(Rows(torch.zeros(2, 4), labels, torch.arange(2)))
        tensor([1.3863, 1.3863])
        >>> method.restart()
        Restart(epoch=200, is_rate_constant=True)

    Reference:
        Tanaka et al., "Joint Optimization Framework for Learning with Noisy Labels", CVPR 2018.
    """

    labels: Tensor
    history: Tensor

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 0.5,
        first_stage: float = 0.625,
        update_from: float = 0.21875,
        average_over: float = 0.03125,
        targets: str = "soft",
    ) -> None:
        super().__init__()
        check_interval("alpha", alpha, low=0)
        check_interval("beta", beta, low=0)
        check_interval("first_stage", first_stage, low=0, high=1, open_low=True, open_high=True)
        check_interval("update_from", update_from, low=0, high=1)
        check_interval("average_over", average_over, low=0, high=1, open_low=True)
        check_choice("targets", targets, TARGETS)
        if update_from >= first_stage:
            raise ArgumentError(
                f"update_from must be under first_stage ({first_stage}), got {update_from}"
            )
        self.alpha, self.beta = alpha, beta
        self.first_stage, self.update_from = first_stage, update_from
        self.average_over, self.targets = average_over, targets

    def start(self, facts: Facts) -> None:
        """Starts from the given labels, which also replace predictions until there are any."""
        super().start(facts)
        given = functional.one_hot(facts.labels, facts.num_classes).float()
        self.predictions = RowMemory(given)
        self.register_buffer("labels", given)
        whole = facts.num_epochs
        window = max(1, round(self.average_over * whole))
        self.register_buffer("history", given.new_zeros(window, *given.shape))
        self._first_epochs = first_stage(self.first_stage, whole)
        self._is_first_stage = True

    def restart(self) -> Restart | None:
        """The second stage; none in a run of one epoch."""
        if self._first_epochs == self.facts.num_epochs:
            return None
        return Restart(self._first_epochs, is_rate_constant=True)

    def start_epoch(self, epoch: int) -> None:
        """Enters the stage of this epoch."""
        self._is_first_stage = epoch < self._first_epochs

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,); the first stage also keeps the predictions."""
        log_p = precise(rows.logits).log_softmax(1)
        labels = self.labels[rows.row]
        # A class that has no share adds 0, also where it is impossible, and not 0 * inf.
        losses = -(labels * log_p.masked_fill(labels == 0, 0)).sum(1)
        if not self._is_first_stage:
            return losses
        p = log_p.exp()
        self.predictions.write(rows.row, p)
        prior = self._prior(log_p, rows.counts().to(log_p.dtype))
        entropy = -(p * log_p.masked_fill(log_p == -math.inf, 0)).sum(1)
        return losses + self.alpha * prior + self.beta * entropy

    def _prior(self, log_p: Tensor, counts: Tensor) -> Tensor:
        """Values (B,) whose mean over the rows of all ranks is -sum_k q_k log p_mean_k.

        Each row has the whole value, but only the part of the gradient that goes through its own
        prediction; so ranks need each other's mean, but not each other's gradients. Rows count
        with their weights, and one that does not count has the value 0.
        """
        log_mean = self._log_mean(log_p.detach(), counts)
        ratio = (log_p - log_mean).masked_fill((counts == 0).unsqueeze(1), 0)
        share = ratio.exp().mean(1)
        return (share.detach() - share - log_mean.mean()).masked_fill(counts == 0, 0)

    def _log_mean(self, log_p: Tensor, counts: Tensor) -> Tensor:
        """Logarithm of the mean prediction over all ranks, shape (C,)."""
        # The number of rows travels with the sums, in one message.
        terms = torch.cat([log_p, torch.zeros_like(log_p[:, :1])], 1) + counts.log().unsqueeze(1)
        terms = terms.masked_fill((counts == 0).unsqueeze(1), -math.inf)  # also where p is NaN
        whole = torch.logsumexp(self.facts.gather(torch.logsumexp(terms, 0).unsqueeze(0)), 0)
        return whole[:-1] - whole[-1].nan_to_num(neginf=0.0)

    def end_epoch(self, epoch: int) -> None:
        """Adds the epoch to the average, and updates the labels if it is time."""
        if epoch >= self._first_epochs:
            return
        self.history[epoch % len(self.history)] = self.predictions.values
        if epoch + 1 < self.update_from * self.facts.num_epochs:
            return
        mean = self.history.sum(0) / min(epoch + 1, len(self.history))
        if self.targets == "hard":
            mean = functional.one_hot(mean.argmax(1), mean.shape[1]).to(mean.dtype)
        self.labels.copy_(mean)

    def share(self) -> None:
        """Gives all ranks the predictions of all rows."""
        self.predictions.share(self.facts.total)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return (
            f"alpha={self.alpha}, beta={self.beta}, first_stage={self.first_stage}, "
            f"update_from={self.update_from}, average_over={self.average_over}, "
            f"targets={self.targets!r}"
        )


_ROWS_MEASURED = 1280
_ROWS_AT_ONCE = 128


def intrinsic_dimensions(points: Tensor, neighbours: int) -> Tensor:
    """Local intrinsic dimensionality around each point, from the distances to its neighbours.

    Formula, with r_1 <= ... <= r_k the distances to the k nearest other points:

        -k / sum_j log(r_j / r_k)

    Args:
        points: One point per row, shape (M, E).
        neighbours: Number k; all other points if there are fewer.

    Returns:
        Estimates, float64, shape (M,): 0 where a neighbour is the point itself, +inf where all
        neighbours are equally far.

    Examples:
        >>> intrinsic_dimensions(torch.tensor([[0.0], [1.0], [3.0]]), 2)
        tensor([1.8205, 2.8854, 4.9326], dtype=torch.float64)

    Reference:
        Amsaleg et al., "Estimating local intrinsic dimensionality", KDD 2015.
    """
    number = min(neighbours, len(points) - 1)
    points = points.double()
    # Not from scalar products: the distances of near points would be rounding errors.
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.fill_diagonal_(math.inf).sort(1).values[:, :number]
    farthest = nearest[:, -1:]
    logs = torch.where(farthest > 0, nearest / farthest, 0).log()
    return number / logs.sum(1).abs()


@final
class D2L(Method):
    """Cross entropy until the features' dimensionality grows, then mixed with own predictions.

    Formula, with D_i the mean local intrinsic dimensionality of the input of the last layer
    before epoch i of T. The first epoch i after ``warm_up`` and a window of epochs with

        D_i - mean(D in the window before i) > 2 std(D in the window before i)

    is the turning point: the network goes back to what it was an epoch before, and from then on

        alpha_i = exp(-(i / T) D_i / min_{j <= i} D_j)
        loss = -alpha_i log p_y - (1 - alpha_i) log max_k p_k

    so that labels count for less the longer the run and the more complicated its features.

    As in the authors' code, D is measured on 1280 random rows in batches of 128, the minimum
    includes epoch i, and the prediction enters as its most likely class. The code adds 1e-8 to
    each ratio of distances; here points without an estimate are left out instead. It reloads the
    weights that it has just saved, which changes nothing; here they are those of an epoch before.
    It keeps a number for each epoch, and a copy of the network until the turning point.

    Args:
        neighbours: Neighbours that an estimate takes into account, at least 2.
        warm_up: Fraction of the run before the window, in [0, 1]; the authors take about a tenth.
        window: Epochs that an increase is compared with, at least 2.

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> from imae.methods import Facts
        >>> method = D2L()
        >>> labels = torch.tensor([0, 1])
        >>> method.start(Facts(labels=labels, num_classes=4, num_epochs=50, seed=0))
        >>> method(Rows(torch.zeros(2, 4), labels, torch.arange(2)))
        tensor([1.3863, 1.3863])

    Reference:
        Ma et al., "Dimensionality-Driven Learning with Noisy Labels", ICML 2018.
    """

    works_on_weights: ClassVar[bool] = True

    def __init__(self, *, neighbours: int = 20, warm_up: float = 0.1, window: int = 5) -> None:
        super().__init__()
        check_integer("neighbours", neighbours, low=2)
        check_interval("warm_up", warm_up, low=0, high=1)
        check_integer("window", window, low=2)
        self.neighbours = neighbours
        self.warm_up = warm_up
        self.window = window
        self.dimensions: list[float] = []
        self.turning_point: int | None = None
        self._weights_before: dict[str, Tensor] = {}

    @property
    def alpha(self) -> float:
        """How much the given labels count in the current epoch."""
        if self.turning_point is None:
            return 1.0
        epoch = len(self.dimensions) - 1
        expansion = self.dimensions[-1] / min(self.dimensions)
        return math.exp(-epoch / self.facts.num_epochs * expansion)

    def start_epoch(self, epoch: int) -> None:
        """Measures the network before the first epoch, and where a run that had ended goes on.

        Before other epochs ``end_epoch`` has done it.
        """
        if len(self.dimensions) == epoch:
            self._look(epoch)

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        return bootstrap_loss(
            rows.logits, rows.target, beta=self.alpha, hard=True, reduction="none"
        )

    def end_epoch(self, epoch: int) -> None:
        """Measures the network before the next epoch."""
        if epoch + 1 < self.facts.num_epochs:
            self._look(epoch + 1)

    def _look(self, epoch: int) -> None:
        """Measures the network before an epoch, and looks for the turning point."""
        self.dimensions.append(self._measure(epoch))
        if self.turning_point is not None:
            return
        if self._is_turning():
            self.turning_point = epoch
            self.facts.networks[0].load_state_dict(self._weights_before)
            self._weights_before = {}
        else:
            self._keep_weights()

    def _measure(self, epoch: int) -> float:
        """Mean dimensionality before an epoch; the last one if it cannot be estimated."""
        assert self.facts.features is not None
        counted = self.facts.counted
        number = len(counted)
        draws = numpy_generator(self.facts.seed, "dimensionality", epoch)
        rows = draws.choice(number, min(_ROWS_MEASURED, number), replace=False)
        parts = self.facts.features(counted[torch.from_numpy(rows)]).cpu().split(_ROWS_AT_ONCE)
        found = torch.cat([intrinsic_dimensions(part, self.neighbours) for part in parts])
        known = found[found.isfinite() & (found > 0)]
        if len(known) > 0:
            return float(known.mean())
        return self.dimensions[-1] if self.dimensions else 1.0

    def _is_turning(self) -> bool:
        if len(self.dimensions) <= round(self.warm_up * self.facts.num_epochs) + self.window:
            return False
        window = np.array(self.dimensions[-self.window - 1 : -1])
        return bool(self.dimensions[-1] - window.mean() > 2 * window.std())

    def _keep_weights(self) -> None:
        weights = self.facts.networks[0].state_dict()
        self._weights_before = {name: tensor.clone() for name, tensor in weights.items()}

    def get_extra_state(self) -> dict[str, Any]:
        """What was measured and found so far, for ``state_dict``."""
        return {
            "dimensions": list(self.dimensions),
            "turning_point": self.turning_point,
            "weights_before": self._weights_before,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state that ``get_extra_state`` returned."""
        self.dimensions = list(state["dimensions"])
        self.turning_point = state["turning_point"]
        self._weights_before = state["weights_before"]

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"neighbours={self.neighbours}, warm_up={self.warm_up}, window={self.window}"
