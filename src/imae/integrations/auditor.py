"""Suspect rows taken out of the training rows of a scikit-learn pipeline, or relabelled."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from imae.errors import check_choice, import_extra

import_extra("sklearn", extra="data")

from sklearn.base import BaseEstimator, clone  # noqa: E402
from sklearn.utils import _safe_indexing, get_tags  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402


def _has(name: str) -> Callable[[Any], bool]:
    return lambda auditor: hasattr(auditor.estimator, name)


class LabelAuditor(BaseEstimator):  # type: ignore[misc]
    """Takes suspect rows out of the training rows, or corrects their labels.

    No class loses its last row.

    A step of scikit-learn's ``Pipeline`` cannot change the labels. So there are two ways to use
    it, both of which act in ``fit`` only, and never on rows that are predicted:

    - around the last step: ``make_pipeline(StandardScaler(), LabelAuditor(LogisticRegression()))``;
    - as a step of the ``Pipeline`` of imbalanced-learn, which calls ``fit_resample``.

    Args:
        estimator: What is fitted on the rows that remain; None if ``fit_resample`` is called.
        action: "drop" removes suspect rows, "relabel" gives them their suggested label.
        auditor: The classifier that finds them, by default ``IMAEClassifier()``; any with
            ``suspect_rows_``, most suspect first, and ``suggested_labels_``.
        random_state: Seed of the default classifier.

    Attributes:
        auditor_: The fitted classifier, with everything that it says about the rows.
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

    def fit(self, X: Any, y: ArrayLike) -> "LabelAuditor":
        """Judges the labels, and fits the estimator on the rows that remain.

        Args:
            X: Rows, shape (N, F).
            y: Given labels, shape (N,).

        Raises:
            ValueError: If ``action`` is unknown, or rows or labels cannot be used.
        """
        rows, labels = self.fit_resample(X, y)
        if self.estimator is not None:
            self.estimator_ = clone(self.estimator).fit(rows, labels)
        return self

    def fit_resample(self, X: Any, y: ArrayLike) -> tuple[Any, NDArray[Any]]:
        """Judges the labels; gives the rows to train on with their labels, (M, F) and (M,)."""
        check_choice("action", self.action, ("drop", "relabel"))
        kinds = [np.float64, np.float32]
        rows, labels = validate_data(self, X, y, accept_sparse="csr", dtype=kinds)
        self.auditor_ = self._auditor().fit(rows, labels)
        self.classes_ = self.auditor_.classes_
        suspects = self._suspects(labels)
        self.sample_indices_ = np.arange(len(labels))
        if self.action == "relabel":
            labels = labels.copy()
            labels[suspects] = self.auditor_.suggested_labels_[suspects]
        else:
            self.sample_indices_ = np.setdiff1d(self.sample_indices_, suspects)
        is_frame = hasattr(X, "iloc") or hasattr(X, "get_column")
        kept = _safe_indexing(X if is_frame else rows, self.sample_indices_)
        return kept, labels[self.sample_indices_]

    def _auditor(self) -> Any:
        if self.auditor is not None:
            return clone(self.auditor)
        from imae.integrations.sklearn import IMAEClassifier

        return IMAEClassifier(random_state=self.random_state)

    def _suspects(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The suspect rows, without the least suspect one of a class that would lose all rows."""
        suspects = self.auditor_.suspect_rows_
        believed = np.delete(labels, suspects)
        for label in np.setdiff1d(labels[suspects], believed):
            last = suspects[labels[suspects] == label][-1]
            suspects = suspects[suspects != last]
        return np.asarray(suspects)

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

    @available_if(_has("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: ArrayLike) -> float:
        """The score of the estimator."""
        check_is_fitted(self)
        return float(self.estimator_.score(X, y))
