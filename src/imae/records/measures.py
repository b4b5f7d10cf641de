"""What a run records: measures by name, rows and direction; labels; dynamics; its history."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError

# Which rows of a part are predicted right, and None for a part that is not predicted:
#   test      test rows, by their true labels
#   held_out  held-out rows, by their given labels
#   given     training rows, by their given labels
#   true      training rows, by their true labels
#   is_wrong  not a prediction: training rows whose given label is wrong
Hits: TypeAlias = Mapping[str, NDArray[np.bool_] | None]


@dataclass(frozen=True)
class Measure:
    """An accuracy: the share of some rows that are predicted right, in [0, 1].

    Args:
        key: Name in ``history.jsonl`` and ``result.json``.
        name: Short name, for columns of CSV files, recipes and files of figures.
        heading: Title of its column.
        meaning: What it is, as a clause for pages.
        parts: Parts of ``Hits`` that are counted together.
        only: Count only the rows with a wrong or with a right given label.
        higher_is_better: Direction; None if neither is.
        title: Title of its figure over training steps; None if it has none.
        is_summary: Whether reports have a column for it.
    """

    key: str
    name: str
    heading: str
    meaning: str
    parts: tuple[str, ...]
    only: Literal["wrong", "right"] | None = None
    higher_is_better: bool | None = True
    title: str | None = None
    is_summary: bool = True

    def accuracy(self, hits: Hits) -> float | None:
        """The measure; None if a part is unknown or there is no such row.

        Examples:
            >>> hits = {"given": np.array([True, False]), "is_wrong": np.array([True, False])}
            >>> NOISY.accuracy(hits), NOISY.accuracy({})
            (1.0, None)
        """
        known = [part for name in self.parts if (part := hits.get(name)) is not None]
        if len(known) < len(self.parts):
            return None
        counted = np.concatenate(known)
        if self.only is not None:
            is_wrong = hits.get("is_wrong")
            if is_wrong is None:
                return None
            counted = counted[is_wrong if self.only == "wrong" else ~is_wrong]
        return float(counted.mean()) if len(counted) else None

    @property
    def direction(self) -> str:
        """Which direction is better, in brackets, to append to a title; empty if neither."""
        if self.higher_is_better is None:
            return ""
        return f" ({'higher' if self.higher_is_better else 'lower'} is better)"


TEST = Measure(
    key="test_accuracy",
    name="test",
    heading="Test",
    meaning="test rows predicted right.",
    parts=("test",),
    title="Test rows",
)
HELD_OUT = Measure(
    key="validation_accuracy",
    name="held_out",
    heading="Held-out given labels",
    meaning="held-out rows predicted as labelled.",
    parts=("held_out",),
    title="Held-out given labels",
)
NOISY = Measure(
    key="noisy_accuracy",
    name="noisy",
    heading="Wrong labels memorised",
    meaning="training rows with a wrong label that are predicted as that wrong label. Lower is "
    "better.",
    parts=("given",),
    only="wrong",
    higher_is_better=False,
    title="Wrong labels memorised",
)

# In the order of the columns of a table.
MEASURES = (
    TEST,
    HELD_OUT,
    Measure(
        key="train_accuracy",
        name="train",
        heading="Training rows, given labels",
        meaning="training rows predicted as labelled.",
        parts=("given",),
        higher_is_better=None,
        title="Training rows under their given labels",
        is_summary=False,
    ),
    Measure(
        key="intact_accuracy",
        name="intact",
        heading="Training rows, true labels",
        meaning="training rows predicted as what they really are.",
        parts=("true",),
        title="Training rows under their true labels",
        is_summary=False,
    ),
    NOISY,
    Measure(
        key="clean_accuracy",
        name="clean",
        heading="Right labels learned",
        meaning="training rows with a right label that are predicted as labelled.",
        parts=("given",),
        only="right",
        title="Right labels learned",
    ),
    Measure(
        key="corrected_accuracy",
        name="corrected",
        heading="Wrong labels corrected",
        meaning="training rows with a wrong label that are predicted as what they really are.",
        parts=("true",),
        only="wrong",
    ),
    Measure(
        key="hybrid_accuracy",
        name="hybrid",
        heading="Hybrid",
        meaning="test rows and all training rows, together, predicted as what they really are.",
        parts=("test", "true"),
    ),
)


@dataclass(frozen=True)
class Column:
    """A measure at a moment of a run: a number that a table can show.

    Args:
        name: Short name, for CSV files and recipes.
        heading: Title of the column.
        meaning: What it is, as a clause for pages.
        moment: ``"best"``, ``"best_test"`` or ``"final"``: part of ``result.json`` that has it.
        measure: What is measured.
        chosen_by: Measure without which the number is unknown, as another one chose the moment.
    """

    name: str
    heading: str
    meaning: str
    moment: str
    measure: Measure
    chosen_by: Measure | None = None


# "Best" is the paper's: the highest test accuracy at any evaluation. The best epoch of the held-out
# labels is the one that predictions are from. The rest is of the last evaluation.
COLUMNS = (
    Column(
        "best",
        "Best test",
        "the highest test accuracy at any evaluation, as the paper counts it. It is chosen by "
        "looking at the test rows, so nobody can have it in practice.",
        "best_test",
        TEST,
    ),
    Column("final", "Final test", "the test accuracy when training ended.", "final", TEST),
    Column(
        "chosen_test",
        "Chosen test",
        "the test accuracy at the evaluation that the held-out given labels choose, which is the "
        "one that imae predict and imae export use. Choosing it needs no clean label.",
        "best",
        TEST,
        # Without held-out rows earlier versions chose a run's best by the test rows.
        chosen_by=HELD_OUT,
    ),
    Column(
        "best_held_out",
        "Best held-out given labels",
        "held-out rows predicted as labelled at the best epoch, which is the one that imae predict "
        "and imae export use. It is chosen by the same rows, so it is slightly too high. Some "
        "given labels may be wrong, so it is not the accuracy on true labels; the order of the "
        "methods is what it shows.",
        "best",
        HELD_OUT,
    ),
    Column(
        "held_out",
        "Final held-out given labels",
        "held-out rows predicted as labelled when training ended.",
        "final",
        HELD_OUT,
    ),
    *(
        Column(each.name, each.heading, each.meaning, "final", each)
        for each in MEASURES
        if each not in (TEST, HELD_OUT)
    ),
)


def find_column(name: str) -> Column:
    """The column of this name.

    Examples:
        >>> find_column("noisy").measure.key
        'noisy_accuracy'
    """
    return next(column for column in COLUMNS if column.name == name)


def wilson(share: float, number: float, *, z: float = 1.96) -> tuple[float, float]:
    """What a share of so many rows may be in truth: Wilson's interval, honest for few rows too.

    Args:
        share: In [0, 1].
        number: Rows that it was counted in.
        z: Its width in standard deviations; 1.96 for a range of 95%.

    Examples:
        >>> tuple(round(end, 2) for end in wilson(1.0, 3))
        (0.44, 1.0)

    Reference:
        Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
        the American Statistical Association 1927.
    """
    centre = share * number + z**2 / 2
    spread = z * math.sqrt(share * (1 - share) * number + z**2 / 4)
    low, high = ((centre + side * spread) / (number + z**2) for side in (-1, 1))
    return (low if share > 0 else 0.0), (high if share < 1 else 1.0)


@dataclass(frozen=True, eq=False)
class RunLabels:
    """Labels of the rows a run trained on, in training order, or of rows it did not train on.

    Args:
        row_ids: Id of every row, shape (N,), strings.
        given: Given labels, shape (N,), integers in [0, C).
        class_names: Names of the classes, shape (C,), strings.
        clean: True labels where they are known, shape (N,).
        planted: Whether the given label was drawn wrong on purpose, shape (N,), if any was.
        position: Position of every row among the training rows of the data, shape (N,), where it
            is known: rows that are held out come from between the others.
    """

    row_ids: NDArray[np.str_]
    given: NDArray[np.int64]
    class_names: NDArray[np.str_]
    clean: NDArray[np.int64] | None = None
    planted: NDArray[np.bool_] | None = None
    position: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class EpochDynamics:
    """Dynamics of every row in the training pass of one epoch, in the order of the labels.

    Args:
        margin: Log-odds of the given label, float32, shape (N,); NaN for a row not seen.
        predicted: Most likely class, int32, shape (N,); -1 for a row not seen.
        weight: L1 norm of the gradient of the row's loss with respect to its logits, float32,
            shape (N,); NaN for a row not seen or not trained on.
    """

    margin: NDArray[np.float32]
    predicted: NDArray[np.int32]
    weight: NDArray[np.float32]


_NUMBERS = ("epoch", "seconds", "learning_rate", "train_loss", "T")


def check_row(row: Mapping[str, Any], where: str, *, last_step: int) -> None:
    """Raises unless an object is a row of a history.

    Args:
        row: The object.
        where: File and line, for messages.
        last_step: Step of the row before it.

    Raises:
        DataError: If it has no step after that of the row before, or a value is not a number.
    """
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step <= last_step:
        raise DataError(
            f"{where}: must have a step after {last_step}, got {step!r}; no run wrote this file"
        )
    accuracies = [measure.key for measure in MEASURES]
    for name in (*accuracies, *_NUMBERS):
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise DataError(
                f"{where}: {name} must be a number, got {value!r}; no run wrote this file"
            )
        if value is None:
            continue
        # 1e999 is valid JSON and reads as infinity, and a whole number may have any length.
        if not abs(value) <= sys.float_info.max:
            raise DataError(f"{where}: {name} must be a finite number, got {value!r}")
        if name in accuracies and not 0 <= value <= 1:
            raise DataError(f"{where}: {name} must be in [0, 1], got {value!r}")


def check_labels(labels: RunLabels, where: str) -> None:
    """Raises unless class names and row ids differ, and all labels are among the classes.

    Args:
        labels: What was read.
        where: The file, for messages.

    Raises:
        DataError: If not.

    Examples:
        >>> ids, names = np.array(["a", "b"]), np.array(["cat", "dog"])
        >>> check_labels(RunLabels(ids, np.array([0, 1]), names), "labels.npz")
    """
    number = len(labels.class_names)
    if number == 0 or len(set(labels.class_names.tolist())) < number:
        raise DataError(f"{where}: has no class names, or one twice; the file is damaged")
    for name, values in (("given", labels.given), ("clean", labels.clean)):
        is_outside = np.zeros(0) if values is None else (values < 0) | (values >= number)
        if values is not None and is_outside.any():
            row = int(is_outside.argmax())
            raise DataError(
                f"{where}: {name} of row {str(labels.row_ids[row])!r} is {values[row]}, outside "
                f"the {number} classes; the file is damaged"
            )
    ids, counts = np.unique(labels.row_ids, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{where}: row id {str(ids[counts.argmax()])!r} appears twice")


def check_held_labels(held: RunLabels, trained: RunLabels, where: str) -> None:
    """Raises unless rows that were held out have the classes of a run, and are not trained on.

    Rows with a planted label are trained on with that label, and held out with the given one.

    Raises:
        DataError: If not.
    """
    if not np.array_equal(held.class_names, trained.class_names):
        raise DataError(f"{where}: its classes are not those of labels.npz")
    planted = trained.planted
    ids = trained.row_ids if planted is None else trained.row_ids[~planted]
    both = np.intersect1d(held.row_ids, ids)
    if len(both):
        raise DataError(f"{where}: row {str(both[0])!r} is held out and trained on")


def check_dynamics(dynamics: EpochDynamics, where: str, *, rows: int, classes: int) -> None:
    """Raises unless the dynamics of an epoch match the number of rows and classes.

    Raises:
        DataError: If not.
    """
    if len(dynamics.margin) != rows:
        raise DataError(f"{where}: has {len(dynamics.margin)} rows, the run {rows} labels")
    predicted = dynamics.predicted
    is_outside = (predicted < -1) | (predicted >= classes)
    if is_outside.any():
        raise DataError(
            f"{where}: predicted class {predicted[is_outside.argmax()]} is outside the {classes} "
            f"classes; the file is damaged"
        )
    if rows and np.isnan(dynamics.margin).all():
        raise DataError(f"{where}: has a margin for no row; the file is damaged")
