"""Dimensionality-driven learning: labels are doubted once the features grow complicated."""

import math
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from imae._draws import numpy_generator
from imae.errors import check_integer, check_interval
from imae.losses.general import bootstrap_loss
from imae.methods.method import Method, Rows

_ROWS_MEASURED = 1280
_ROWS_AT_ONCE = 128


def intrinsic_dimensions(points: Tensor, neighbours: int) -> Tensor:
    """Local intrinsic dimensionality around each point, from the distances to its neighbours.

    Formula, with r_1 <= ... <= r_k the distances to the k nearest other points:

        -k / sum_j log(r_j / r_k)

    Args:
        points: One point a row, shape (M, E).
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
    # Not from scalar products: near points would have a distance of rounding errors.
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
        warm_up: Part of the run before the window, in [0, 1]; the authors take about a tenth.
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
        """How much the given labels count in the present epoch."""
        if self.turning_point is None:
            return 1.0
        epoch = len(self.dimensions) - 1
        expansion = self.dimensions[-1] / min(self.dimensions)
        return math.exp(-epoch / self.facts.num_epochs * expansion)

    def start_epoch(self, epoch: int) -> None:
        """Measures the network before the first epoch; before others ``end_epoch`` has done it."""
        if epoch == 0 and not self.dimensions:
            self.dimensions.append(self._measure(0))
            self._keep_weights()

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        return bootstrap_loss(
            rows.logits, rows.target, beta=self.alpha, hard=True, reduction="none"
        )

    def end_epoch(self, epoch: int) -> None:
        """Measures the network before the next epoch, and looks for the turning point."""
        if epoch + 1 == self.facts.num_epochs:
            return
        self.dimensions.append(self._measure(epoch + 1))
        if self.turning_point is not None:
            return
        if self._is_turning():
            self.turning_point = epoch + 1
            self.facts.networks[0].load_state_dict(self._weights_before)
            self._weights_before = {}
        else:
            self._keep_weights()

    def _measure(self, epoch: int) -> float:
        """Mean dimensionality before an epoch; the last one if it cannot be estimated."""
        assert self.facts.features is not None
        number = len(self.facts.labels)
        draws = numpy_generator(self.facts.seed, "dimensionality", epoch)
        rows = draws.choice(number, min(_ROWS_MEASURED, number), replace=False)
        parts = self.facts.features(torch.from_numpy(rows)).cpu().split(_ROWS_AT_ONCE)
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
