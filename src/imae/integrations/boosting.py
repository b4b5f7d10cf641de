"""Objectives of boosted trees, XGBoost and LightGBM, from the curves."""

import hashlib
import inspect
import math
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from imae.curves import CCE, IMAE, Curve, parse_curve
from imae.errors import ArgumentError, DataError, check_interval
from imae.losses import AutoT, curve_loss, margin
from imae.losses.margin import constant_weight
from imae.noise.by_class import as_array

# A second derivative of 0 would divide by 0 in a leaf; the built-in objectives have such a floor.
_SMALLEST = 1e-16

Floats = NDArray[np.float64]


class Objective:
    """A robust loss as the objective of XGBoost (from 2.1) or LightGBM (from 4).

    Formula, with z the raw scores, m the margin of the label, p_j the softmax, and s_j the softmax
    over the other classes:

        gradient            phi'(m) for the label,  -phi'(m) s_j for another class j
        second derivative   f |phi'(m)| p_y         f |phi'(m)| s_j (1 - p_j)

    The second derivative is that of cross entropy weighted so that it has this gradient. It is
    positive for every curve, while the curve's own is not, and exact for CCE with f = 1. The loss
    is scaled to the weight that cross entropy has at p = 1 / C, where training starts, so that
    learning rates and regularisation carry over.

    Pass the object as ``obj`` of ``xgboost.train``, as ``objective`` in the parameters of
    ``lightgbm.train``, or as ``objective`` of ``XGBClassifier`` and ``LGBMClassifier``; it takes
    the arguments of each. For several classes the native calls need ``num_class`` too. Models with
    a custom objective return raw scores: ``predict_proba`` turns them into probabilities. Metrics
    of LightGBM see raw scores too: pass ``metric`` and turn its own off by ``metric="None"``.

    Args:
        curve: A curve by its name, such as ``"imae"`` or ``"gce:q=0.5"``, or from ``imae.curves``.
        T: The parameter of ``"imae"``, by default 8; "auto" lets it follow the training, with one
            step per round, separately for each fold of a cross-validation. It was worse than 8 in
            most measurements (``results/boosting``).
        curvature: The factor f; by default that of XGBoost, 2 for several classes and 1 for two.

    Examples:
        >>> objective = Objective("cce")
        >>> gradient, second = objective(np.array([0, 1]), np.zeros((2, 4)))
        >>> gradient[0].tolist(), second[0].tolist()
        ([-0.75, 0.25, 0.25, 0.25], [0.375, 0.375, 0.375, 0.375])
        >>> objective.probabilities(np.zeros((1, 4))).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(
        self,
        curve: str | Curve = "imae",
        *,
        T: float | Literal["auto"] | None = None,
        curvature: float | None = None,
    ) -> None:
        if T is not None and curve != IMAE.name:
            raise ArgumentError(f"T belongs to the curve 'imae', got T={T!r} with {curve!r}")
        if curvature is not None:
            check_interval("curvature", curvature, low=0, open_low=True, open_high=True)
        self.curve = curve if isinstance(curve, Curve) else parse_curve(curve)
        self.curvature = curvature
        self._is_auto = T == "auto"
        self._trainings = _Trainings()
        if T is not None and T != "auto":
            self.curve = IMAE(T)

    def __call__(
        self, first: Any, second: Any, sample_weight: ArrayLike | None = None
    ) -> tuple[Floats, Floats]:
        """Gradient and second derivative at raw scores, shape (N,) for two classes or (N, C).

        Args:
            first: Raw scores, if the second argument is a data set of either library; else labels.
            second: A data set, or raw scores.
            sample_weight: How much each row counts, shape (N,); a data set has its own.

        Raises:
            ArgumentError: If the curve gives no row a weight where training starts.
            DataError: If labels are not class numbers that fit the scores.
        """
        raw, target, weight = _scores_labels_weights(first, second, sample_weight)
        logits = _pairs(raw) if raw.dim() == 1 else raw
        curve = self.curve
        if self._is_auto:
            digest = hashlib.sha256(target.numpy().tobytes()).digest()
            training = second if _is_data(second) else digest
            state = self._trainings.state(training, logits)
            curve = IMAE(state.observe(logits, target, weight))
        gradient, second_derivative = self._derivatives(logits, target, curve)
        if raw.dim() == 1:
            gradient, second_derivative = gradient[:, 1], second_derivative[:, 1]
        weight = weight.view(-1, *(1,) * (raw.dim() - 1))
        gradient, second_derivative = gradient * weight, second_derivative * weight
        return gradient.numpy(), second_derivative.clamp(min=_SMALLEST).numpy()

    def metric(
        self, first: Any, second: Any, sample_weight: ArrayLike | None = None
    ) -> tuple[str, float, bool] | tuple[str, float]:
        """Weighted mean of -log p of the labels, as ``feval`` or ``eval_metric`` of LightGBM.

        It is also a ``custom_metric`` of ``xgboost.train``. The arguments are those of a call.
        """
        raw, target, weight = _scores_labels_weights(first, second, sample_weight)
        logits = _pairs(raw) if raw.dim() == 1 else raw
        losses = torch.nn.functional.cross_entropy(logits, target, reduction="none")
        loss = float(losses @ weight / weight.sum())
        if type(second).__module__.startswith("xgboost"):
            return "log_loss", loss
        return "log_loss", loss, False  # lower is better

    def probabilities(self, raw: ArrayLike) -> Floats:
        """Probabilities of the classes, shape (N, C), at raw scores (N,) or (N, C)."""
        scores = torch.from_numpy(np.array(raw, np.float64))
        logits = _pairs(scores) if scores.dim() == 1 else scores
        return np.asarray(logits.softmax(1).numpy())

    def predict_proba(self, model: Any, rows: Any) -> Floats:
        """Probabilities that a model of either library predicts for rows, shape (N, C).

        Args:
            model: A booster, or an estimator of the scikit-learn interface.
            rows: What its ``predict`` takes.
        """
        takes = inspect.signature(model.predict).parameters
        option = "output_margin" if "output_margin" in takes else "raw_score"
        return self.probabilities(model.predict(rows, **{option: True}))

    def _derivatives(self, logits: Tensor, target: Tensor, curve: Curve) -> tuple[Tensor, Tensor]:
        num_classes = logits.shape[1]
        curvature = self.curvature or (2.0 if num_classes > 2 else 1.0)
        logits = logits.detach().requires_grad_()
        scale = constant_weight(CCE(), logits, "chance") / constant_weight(curve, logits, "chance")
        loss = curve_loss(logits, target, curve, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, logits)
        if _is_start(logits) and not bool(gradient.any()):
            raise ArgumentError(
                f"{curve!r} has weight 0 at p = 1 / {num_classes}: nothing to learn"
            )
        with torch.no_grad():
            p = logits.softmax(1)
            is_label = torch.nn.functional.one_hot(target, num_classes).bool()
            others = logits.masked_fill(is_label, -math.inf).softmax(1)
            size = -curve.slope(margin(logits, target)).unsqueeze(1)
            second = size * torch.where(is_label, p, others * (1 - p))
        return gradient * scale, second * scale * curvature

    def __repr__(self) -> str:
        curve = "imae, T='auto'" if self._is_auto else repr(self.curve)
        return f"Objective({curve})"


class _Trainings:
    """A T for each training that uses the same objective, such as the folds of a search.

    A training is recognised by its data set or, if a library passes only arrays, by its labels.
    It starts again when the scores are the initial ones.
    """

    def __init__(self) -> None:
        self._of_data: WeakKeyDictionary[Any, tuple[bytes, AutoT]] = WeakKeyDictionary()
        self._of_labels: dict[bytes, tuple[bytes, AutoT]] = {}

    def state(self, training: Any, logits: Tensor) -> AutoT:
        """The T of a training, by its data set or the digest of its labels."""
        states: Any = self._of_labels if isinstance(training, bytes) else self._of_data
        scores = hashlib.sha256(logits.numpy().tobytes()).digest()
        start, known = states.get(training, (None, None))
        if known is not None and scores != start and not _is_start(logits):
            return cast(AutoT, known)
        auto = AutoT().double()
        states[training] = scores, auto
        return auto

    def __reduce__(self) -> tuple[type["_Trainings"], tuple[()]]:
        return _Trainings, ()  # a copy serves other trainings


def _is_start(logits: Tensor) -> bool:
    """Whether all rows have the same score, as in the first round."""
    return bool((logits == logits[:1]).all())


def _is_data(second: Any) -> bool:
    """Whether the second argument of a call is a data set, as in the native calls."""
    return hasattr(second, "get_label")


def _scores_labels_weights(
    first: Any, second: Any, sample_weight: ArrayLike | None
) -> tuple[Tensor, Tensor, Tensor]:
    labels, scores = first, second
    if _is_data(second):
        scores, labels, sample_weight = first, second.get_label(), second.get_weight()
    raw = torch.from_numpy(np.array(scores, np.float64))  # of a frame it is not writable
    target = _checked(labels, raw)
    if sample_weight is None or not np.size(sample_weight):
        return raw, target, torch.ones(len(raw), dtype=torch.float64)
    weight = torch.from_numpy(as_array("sample_weight", sample_weight).astype(np.float64))
    if weight.shape != raw.shape[:1]:
        raise DataError(f"sample_weight: {tuple(weight.shape)} for {len(raw)} rows")
    return raw, target, weight


def _pairs(raw: Tensor) -> Tensor:
    """The scores of both classes, where only the difference of the two is given."""
    return torch.stack([torch.zeros_like(raw), raw], dim=1)


def _checked(labels: Any, raw: Tensor) -> Tensor:
    given = as_array("labels", labels)
    if raw.dim() not in (1, 2) or given.shape != raw.shape[:1]:
        raise DataError(f"labels of shape {given.shape} for scores of shape {tuple(raw.shape)}")
    num_classes = 2 if raw.dim() == 1 else raw.shape[1]
    if num_classes < 2:
        raise ArgumentError("set num_class to the number of classes, two or more")
    if given.dtype.kind not in "iubf":
        raise DataError(f"labels must be class numbers in [0, {num_classes}), got {given.dtype}")
    target = given.astype(np.int64)
    if (target != given).any() or target.min() < 0 or target.max() >= num_classes:
        hint = "; of more than two classes set num_class" if raw.dim() == 1 else ""
        raise DataError(f"labels must be class numbers in [0, {num_classes}){hint}")
    return torch.from_numpy(target)
