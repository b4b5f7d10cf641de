"""scikit-learn: a robust classifier, and suspect rows dropped or relabelled in a pipeline."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from imae.audit import audit
from imae.audit.calibrate import stretch
from imae.audit.scores import disbelief
from imae.curves import GCE, IMAE, Curve, parse_curve
from imae.data.labels import check_weights
from imae.errors import ArgumentError, DataError, check_integer, check_not_masked, import_extra
from imae.integrations.dynamics import Learner, Training
from imae.losses import AutoT
from imae.methods.method import CurveMethod
from imae.records import EpochDynamics

import_extra("sklearn", extra="data")

from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import _safe_indexing, check_random_state, get_tags  # noqa: E402
from sklearn.utils._param_validation import (  # noqa: E402
    HasMethods,
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
)
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import (  # noqa: E402
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

_MANY_ROWS = 1000  # from here on "auto" holds rows out for early stopping
# What "auto" stands for with hidden layers, and without, of dense and of sparse rows.
_AUTO: dict[str, tuple[Any, Any, Any]] = {
    "loss": (IMAE.name, GCE.name, GCE.name),
    "cap": (0.75, None, None),
    "learning_rate_init": (0.01, 0.1, 2.0),  # the last is divided by the squared length of rows
    "alpha": (1e-4, 1e-4, 1.0),  # the last is times that length by the number of rows
}
_HIDDEN = (100,)
_ENOUGH_ROWS = 100  # sparse ones: of fewer, a linear classifier doubts every label it cannot fit
_EPOCHS = 100
_LINEAR_STEPS = 300  # at least, for a linear classifier
_STILL_RISING = 1 / 3
_AT_ONCE = 8192  # rows of a prediction
# Squares of larger values are infinite; LayerNorm then makes all rows equal.
_LARGEST, _LARGEST_FLOAT32 = 1e150, 1e15
_TYPES: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
_ANY_TYPES: dict[str, Any] = {"accept_sparse": "csr", "dtype": None, "ensure_all_finite": False}

_IS_AUTO = StrOptions({"auto"})
_AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
_POSITIVE = Interval(Real, 0, math.inf, closed="neither")
_NOT_NEGATIVE = Interval(Real, 0, math.inf, closed="left")
_PART = Interval(Real, 0, 1, closed="neither")

Ints = NDArray[np.int64]


class IMAEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural network for rows of numbers that tolerates wrong labels, and finds them.

    Parameters that ``sklearn.neural_network.MLPClassifier`` also has mean the same,
    except for ``alpha``. Rows should be scaled, for example by ``StandardScaler``; sparse rows are
    accepted as they are. Rows of float32 with values beyond 1e15 are trained on in float64.

    A linear classifier (``hidden_layer_sizes=()``) has other defaults. The capped loss is that of
    a network that can shape its features: with it a linear one gave up classes between others.

    Sparse rows, such as texts, get a linear classifier by default, which is trained by gradient
    descent and not by Adam. Adam takes steps of the same size for rare columns as for frequent
    ones, so a word that appears in one text memorises its label.

    If there are at most ``batch_size`` rows, every step sees all of them and a row of weight k
    counts exactly as k copies of it; with more rows it does so on average.

    Args:
        loss: A curve by its name, such as ``"imae"`` or ``"gce:q=0.5"``, or from ``imae.curves``;
            "auto" is IMAE with hidden layers, GCE without.
        T: The parameter of IMAE; "auto" lets it follow the training (``imae.losses.AutoT``).
        cap: Largest probability that the network gives a class, in (1 / C, 1); None for no cap;
            "auto" is 0.75 with hidden layers, None without. ``predict_proba`` undoes it.
        hidden_layer_sizes: Units of each hidden layer; () for a linear classifier; "auto" is
            (100,), and () for 100 sparse rows or more.
        alpha: Weight decay of AdamW, apart from the loss: a step shrinks the weights by the step
            size times it. ``MLPClassifier`` adds half of it times the squared weights to the loss,
            and so does a linear classifier of sparse rows. "auto" is 1e-4, and there the mean
            squared length of a row over the number of rows, as in ``LogisticRegression`` on rows
            of length 1.
        batch_size: Rows of a step.
        learning_rate_init: Step size of Adam; it falls linearly to 0 within ``max_iter`` epochs.
            "auto" is 0.01 with hidden layers, 0.1 without. For a linear classifier of sparse rows
            it is that of gradient descent with momentum, and 2 over the mean squared length of a
            row.
        max_iter: Maximum number of epochs; "auto" is 100, and more for a linear classifier of few
            rows: enough for 300 steps.
        early_stopping: Whether rows are held out, and training ends when the accuracy on their
            given labels is above the share of the largest class and no longer rises; "auto" does so
            from 1,000 rows on, but not for a linear classifier of sparse rows.
        validation_fraction: Part of the rows that is held out.
        n_iter_no_change: Epochs without a rise after which training ends.
        random_state: Seed of the first weights, the order of rows and the rows held out.

    Attributes:
        classes_: The labels, shape (C,).
        n_features_in_: Number of columns.
        n_iter_: Epochs that were trained.
        network_: The network, a ``torch.nn.Module`` whose last step is the cap.
        label_quality_: Probability of each given label, averaged over the epochs, shape (N,):
            the lower, the more suspect.
        wrong_probability_: Estimated probability that each label is wrong, shape (N,).
        suspect_rows_: Positions of the rows to look at, most suspect first.
        suggested_labels_: The most likely right label of every row, shape (N,).
        noise_rate_: Estimated share of wrong labels; NaN if the network has learned nothing, for
            example predicts one class for all rows.

    Warns:
        ConvergenceWarning: If training ended at ``max_iter`` while it was still learning, or some
            classes were not learned: then trust neither the predictions nor the audit.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_iris(return_X_y=True)
        >>> y[:5] = 2                                        # five wrong labels
        >>> model = make_pipeline(StandardScaler(), IMAEClassifier(random_state=0)).fit(X, y)
        >>> sorted(model[-1].label_quality_.argsort()[:5].tolist())
        [0, 1, 2, 3, 4]
        >>> model[-1].suggested_labels_[:4].tolist()      # of rows that are flagged
        [0, 0, 0, 0]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "loss": [str, Curve],
        "T": [_IS_AUTO, _NOT_NEGATIVE],
        "cap": [_IS_AUTO, _PART, None],
        "hidden_layer_sizes": [_IS_AUTO, "array-like", _AT_LEAST_ONE],
        "alpha": [_IS_AUTO, _NOT_NEGATIVE],
        "batch_size": [_AT_LEAST_ONE],
        "learning_rate_init": [_IS_AUTO, _POSITIVE],
        "max_iter": [_IS_AUTO, _AT_LEAST_ONE],
        "early_stopping": ["boolean", _IS_AUTO],
        "validation_fraction": [_PART],
        "n_iter_no_change": [_AT_LEAST_ONE, Options(Real, {np.inf})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        loss: str | Curve = "auto",
        *,
        T: float | Literal["auto"] = "auto",
        cap: float | Literal["auto"] | None = "auto",
        hidden_layer_sizes: int | Sequence[int] | Literal["auto"] = "auto",
        alpha: float | Literal["auto"] = "auto",
        batch_size: int = 256,
        learning_rate_init: float | Literal["auto"] = "auto",
        max_iter: int | Literal["auto"] = "auto",
        early_stopping: bool | Literal["auto"] = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: float = 10,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.T = T
        self.cap = cap
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "IMAEClassifier":
        """Trains on rows and their given labels, and judges the labels.

        Args:
            X: Rows, shape (N, F): array, frame or sparse matrix.
            y: Given labels, shape (N,).
            sample_weight: How much each row counts, shape (N,).

        Raises:
            InvalidParameterError: If a parameter has a value that it cannot have.
            ValueError: If the rows or the labels cannot be used.
        """
        X, y, weight = self._checked(X, y, sample_weight)
        self._is_sparse, self._num_rows = not isinstance(X, np.ndarray), len(y)
        self.classes_, given = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"there must be two classes or more, got one class: {self.classes_}")
        generator = check_random_state(self.random_state)
        try:
            learner = self._build(X, weight, int(generator.randint(2**31)))
        except ArgumentError as error:  # what only the curve and the number of classes tell
            raise InvalidParameterError(str(error)) from error
        cap = self._chosen("cap")
        self._learner = learner
        self._stretch = 1.0 if cap is None else stretch(cap, len(self.classes_))
        self.network_ = learner.network
        held = self._held_out(given, generator)
        max_epochs = self._max_epochs(len(given) - len(held))
        training = Training(
            inputs=lambda rows: _tensor(X[rows]),
            target=torch.from_numpy(given),
            weight=weight,
            held=held,
            batch_size=self.batch_size,
            max_epochs=max_epochs,
            patience=self.n_iter_no_change,
        )
        epochs = learner.fit(training, generator)
        self.n_iter_ = len(epochs)
        if self.n_iter_ == max_epochs and _is_rising(epochs):
            warnings.warn(
                f"training ended after max_iter={max_epochs} epochs while it was still learning: "
                "raise max_iter or learning_rate_init",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._judge(epochs, given)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Probability that each class is the true one, shape (N, C).

        The network gives no class more than the cap, so its own probabilities are too low by
        about a quarter. Its logits are stretched so that the cap becomes 0.99
        (``imae.audit.calibrate.stretched``), whatever the share of wrong labels is. Without a cap
        they are the network's own.
        """
        check_is_fitted(self)
        _check_present(X=X)
        X = validate_data(self, X, reset=False, **_TYPES)
        is_wide = self._learner.dtype == torch.float64
        _largest(X, _LARGEST if is_wide else _LARGEST_FLOAT32)
        parts = (_tensor(X[i : i + _AT_ONCE]) for i in range(0, X.shape[0], _AT_ONCE))
        logits = (self._learner.logits(part) for part in parts)
        return np.concatenate([(self._stretch * each).softmax(1).numpy() for each in logits])

    def predict(self, X: Any) -> NDArray[Any]:
        """Most likely label of every row, shape (N,)."""
        likeliest = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[likeliest])

    def _checked(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], Tensor]:
        self._validate_params()
        _check_present(X=X, y=y, sample_weight=sample_weight)
        X, y = validate_data(self, X, y, **_TYPES)
        if _largest(X, _LARGEST) > _LARGEST_FLOAT32:
            X = X.astype(np.float64)
        check_classification_targets(y)
        weight = _checked_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        check_weights(weight, np.arange(len(weight)))
        return X, np.asarray(y), torch.from_numpy(weight.copy())

    def _build(self, X: Any, weight: Tensor, seed: int) -> Learner:
        for units in self._hidden():
            check_integer("hidden_layer_sizes", units, low=1)
        loss, cap = self._chosen("loss"), self._chosen("cap")
        curve: Curve | AutoT = loss if isinstance(loss, Curve) else parse_curve(loss)
        if loss == IMAE.name:
            curve = AutoT(cap or 1.0) if self.T == "auto" else IMAE(self.T)
        elif self.T != "auto":
            raise ArgumentError(f"T belongs to loss='imae', got T={self.T!r} with {loss!r}")
        lr, alpha = self._chosen("learning_rate_init"), self._chosen("alpha")
        if self._kind() == 2:
            counts = weight.double().numpy()
            squares = np.ravel(X.multiply(X).sum(1))
            length = max(float(np.average(squares, weights=counts)), 1e-12)
            lr = lr / length if self.learning_rate_init == "auto" else lr
            alpha = alpha * length / float(counts.sum()) if self.alpha == "auto" else alpha
        return Learner(
            (X.shape[1], *self._hidden()),
            len(self.classes_),
            CurveMethod(curve, normalize="chance", cap=cap),
            lr=lr,
            weight_decay=alpha,
            is_adaptive=self._kind() != 2,
            dtype=torch.from_numpy(np.empty(0, X.dtype)).dtype,
            seed=seed,
        )

    def _hidden(self) -> tuple[int, ...]:
        sizes = self.hidden_layer_sizes
        if isinstance(sizes, str):  # auto
            return () if self._is_sparse and self._num_rows >= _ENOUGH_ROWS else _HIDDEN
        return tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)

    def _chosen(self, name: str) -> Any:
        """A parameter, or what "auto" stands for."""
        value = getattr(self, name)
        is_auto = isinstance(value, str) and value == "auto"
        return _AUTO[name][self._kind()] if is_auto else value

    def _kind(self) -> int:
        """Place of the values in ``_AUTO``."""
        return 0 if self._hidden() else 1 + self._is_sparse

    def _max_epochs(self, number: int) -> int:
        """Epochs at most, with so many rows to train on."""
        if self.max_iter != "auto":
            return self.max_iter
        batches = math.ceil(number / self.batch_size)
        return _EPOCHS if self._hidden() else max(_EPOCHS, math.ceil(_LINEAR_STEPS / batches))

    def _held_out(self, given: Ints, generator: np.random.RandomState) -> Ints:
        """Positions of rows that only decide when to stop."""
        wanted = self.early_stopping
        if wanted == "auto":  # a linear classifier of sparse rows is held back by alpha
            wanted = len(given) >= _MANY_ROWS and self._kind() != 2
        if not wanted:
            return np.empty(0, np.int64)
        counts = np.bincount(given)
        number = math.ceil(self.validation_fraction * len(given))
        is_spread = counts.min() >= 2 and len(counts) <= min(number, len(given) - number)
        _, held = train_test_split(
            np.arange(len(given)),
            test_size=self.validation_fraction,
            stratify=given if is_spread else None,
            random_state=generator,
        )
        return np.sort(held)

    def _judge(self, epochs: list[EpochDynamics], given: Ints) -> None:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                names, last = tuple(map(str, self.classes_)), epochs[-1].predicted
                if (last == last[0]).all():
                    raise DataError(
                        f"all rows are predicted as class {names[last[0]]}, so no label is judged; "
                        "train longer, or scale the rows"
                    )
                found = audit(epochs, given=given, class_names=names)
        except DataError as error:  # nothing was learned, so there is nothing to judge by
            warnings.warn(str(error), ConvergenceWarning, stacklevel=3)
            self.label_quality_ = np.full(len(given), 1 / len(self.classes_))
            self.wrong_probability_ = np.full(len(given), math.nan)
            self.suspect_rows_ = np.empty(0, np.int64)
            self.suggested_labels_, self.noise_rate_ = self.classes_[given], math.nan
            return
        for each in caught:
            warnings.warn(str(each.message), ConvergenceWarning, stacklevel=3)
        never = np.setdiff1d(np.unique(given), epochs[-1].predicted)
        if len(never) and not caught:
            few, name = np.bincount(given)[never[0]], self.classes_[never[0]]
            warnings.warn(
                f"class {name} ({few} of {len(given)} rows) is never predicted in the end, so its "
                "labels are not judged; train longer, or let rare classes count more by "
                "sample_weight=compute_sample_weight('balanced', y)",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.label_quality_ = 1 - found.suspicion
        self.wrong_probability_ = found.wrong_probability
        suspects = found.order()[: int(found.is_flagged.sum())]
        self.suspect_rows_ = suspects[~np.isin(given[suspects], never)]
        self.suggested_labels_ = self.classes_[found.suggested]
        self.noise_rate_ = found.noise_rate


def _is_rising(epochs: list[EpochDynamics]) -> bool:
    """Whether the network was still learning when training ended.

    The step size falls linearly, so the second half of the epochs has a quarter of the way. If the
    mean probability of the given labels rises by as much of its whole rise there, it rises as fast
    as it did at first; a third of that is called still rising.
    """
    believed = [float(1 - disbelief(each.margin).mean()) for each in epochs]
    whole, late = believed[-1] - believed[0], believed[-1] - believed[len(epochs) // 2]
    return len(epochs) < 4 or late > _STILL_RISING * whole / 4 > 0


def _tensor(rows: Any) -> Tensor:
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(dense if dense.flags.writeable else dense.copy())


def _checked_weight(sample_weight: ArrayLike | None, X: Any, **options: Any) -> NDArray[Any]:
    weight = np.asarray(_check_sample_weight(sample_weight, X, **options))
    if not weight.any():  # which older versions of scikit-learn let pass
        raise DataError("sample_weight: all are zero, at least one row must count")
    return weight


def _largest(X: Any, limit: float) -> float:
    """The size of the largest value.

    Raises:
        DataError: If it is beyond the limit.
    """
    largest = float(max(X.max(), -X.min()))
    if largest > limit:
        raise DataError(f"X: a value has the size {largest:.3g}; scale the columns")
    return largest


def _check_present(**arrays: Any) -> None:
    """Raises if a value is masked, or a label is missing: scikit-learn does not say which."""
    for name, values in arrays.items():
        check_not_masked(name, values)
    labels: Any = arrays.get("y")
    find_missing = getattr(labels, "isna", None) or getattr(labels, "is_null", None)  # of polars
    if find_missing is None:
        is_array = isinstance(labels, np.ndarray) and labels.dtype.kind == "O"
        may_be_missing = is_array or isinstance(labels, list | tuple)
        missing = np.flatnonzero([each is None for each in labels] if may_be_missing else [])
    else:
        missing = np.flatnonzero(find_missing())
    if len(missing):
        raise DataError(
            f"y: {len(missing)} labels are missing, the first in row {missing[0]} (counted from "
            "0); remove the rows"
        )


def _has(name: str) -> Callable[[Any], bool]:
    return lambda auditor: hasattr(auditor.estimator, name)


def _removable(suspects: Ints, labels: NDArray[Any]) -> Ints:
    """Suspect rows, without the least suspect one of a class that would lose all its rows."""
    believed = np.delete(labels, suspects)
    for label in np.setdiff1d(labels[suspects], believed):
        last = suspects[labels[suspects] == label][-1]
        suspects = suspects[suspects != last]
    return np.asarray(suspects)


class LabelAuditor(BaseEstimator):  # type: ignore[misc]
    """Removes suspect rows from the training rows, or corrects their labels.

    No class loses its last row.

    A step of scikit-learn's ``Pipeline`` cannot change the labels. So there are two ways to use
    it, both of which act in ``fit`` only, and never on rows that are predicted:

    - around the last step: ``make_pipeline(StandardScaler(), LabelAuditor(LogisticRegression()))``;
    - as a step of the ``Pipeline`` of imbalanced-learn, which calls ``fit_resample``.

    Args:
        estimator: What is fitted on the rows that remain; None if ``fit_resample`` is called.
        action: "drop" removes suspect rows, "relabel" gives them their suggested label.
        auditor: The classifier that finds them, by default ``IMAEClassifier()`` on rows that are
            scaled for it (sparse ones are not); any with ``suspect_rows_``, most suspect first, and
            ``suggested_labels_``, or a ``Pipeline`` that ends in one. Rows of words or with missing
            values are left to it.
        random_state: Seed of the default classifier.

    Attributes:
        auditor_: The fitted auditor, in a ``Pipeline`` with the scaler by default; its last step
            has everything that it says about the rows.
        sample_indices_: Positions of the rows that remain, in their order.
        estimator_: The fitted estimator, if there is one.
        classes_: The labels, shape (C,).

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_iris(return_X_y=True)
        >>> y[:5] = 2                                        # five wrong labels
        >>> last = LabelAuditor(LogisticRegression(), random_state=0)
        >>> model = make_pipeline(StandardScaler(), last).fit(X, y)
        >>> model.predict(X[:5]).tolist(), 0 in model[-1].sample_indices_
        ([0, 0, 0, 0, 0], False)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods("fit"), None],
        "action": [StrOptions({"drop", "relabel"})],
        "auditor": [HasMethods("fit"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        action: str = "drop",
        auditor: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.action = action
        self.auditor = auditor
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if self.estimator is not None:
            own = get_tags(self.estimator)
            tags.estimator_type, tags.classifier_tags = own.estimator_type, own.classifier_tags
        return tags

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "LabelAuditor":
        """Judges the labels, and fits the estimator on the rows that remain.

        Args:
            X: Rows, shape (N, F).
            y: Given labels, shape (N,).
            sample_weight: How much each row counts for the estimator, shape (N,); the labels are
                judged without it.

        Raises:
            InvalidParameterError: If a parameter has a value that it cannot have.
            ValueError: If rows or labels cannot be used.
        """
        _check_present(sample_weight=sample_weight)
        whole = None if sample_weight is None else _checked_weight(sample_weight, X)
        rows, labels = self.fit_resample(X, y)
        if self.estimator is not None:
            weight = {} if whole is None else {"sample_weight": whole[self.sample_indices_]}
            self.estimator_ = clone(self.estimator).fit(rows, labels, **weight)
        return self

    def fit_resample(self, X: Any, y: ArrayLike) -> tuple[Any, NDArray[Any]]:
        """Judges the labels; returns the rows to train on and their labels, (M, F) and (M,)."""
        self._validate_params()
        _check_present(X=X, y=y)
        types = _TYPES if self.auditor is None else _ANY_TYPES
        rows, labels = validate_data(self, X, y, **types)
        is_sparse = not isinstance(rows, np.ndarray)
        if hasattr(X, "iloc") or hasattr(X, "get_column"):  # a frame keeps its columns
            rows = X
        self.auditor_ = self._auditor(is_sparse=is_sparse).fit(rows, labels)
        judge = self.auditor_[-1] if isinstance(self.auditor_, Pipeline) else self.auditor_
        if not (hasattr(judge, "suspect_rows_") and hasattr(judge, "suggested_labels_")):
            raise InvalidParameterError(
                f"auditor: {type(judge).__name__} finds no suspect labels; after fit it must have "
                "suspect_rows_ and suggested_labels_, as IMAEClassifier has"
            )
        self.classes_ = judge.classes_
        suspects = _removable(judge.suspect_rows_, labels)
        self.sample_indices_ = np.arange(len(labels))
        if self.action == "relabel":
            labels = labels.copy()
            labels[suspects] = judge.suggested_labels_[suspects]
        else:
            self.sample_indices_ = np.setdiff1d(self.sample_indices_, suspects)
        return _safe_indexing(rows, self.sample_indices_), labels[self.sample_indices_]

    def _auditor(self, *, is_sparse: bool) -> Any:
        if self.auditor is not None:
            return clone(self.auditor)
        classifier = IMAEClassifier(random_state=self.random_state)
        return classifier if is_sparse else make_pipeline(StandardScaler(), classifier)

    @available_if(_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """The labels that the estimator gives to rows."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """The probabilities that the estimator gives to classes."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """The scores that the estimator gives to classes."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.decision_function(X))

    @available_if(_has("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The score of the estimator, in which rows count as much as their weight."""
        check_is_fitted(self)
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self.estimator_.score(X, y, **weight))
