"""What is known about every row before it is judged: its own score and its likely classes."""

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.audit.scores import disbelief, mean_disbelief
from imae.errors import DataError
from imae.records import EpochDynamics, RunFolder, RunLabels

KEPT = 10
_CELLS_AT_ONCE = 4_000_000
NEIGHBOURS = 25

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TopClasses:
    """The k likeliest classes of every row with their shares.

    Args:
        classes: Class numbers, shape (N, k), int32, likeliest first.
        shares: Their shares, shape (N, k), float32; the rest, up to one, belongs to other classes.
        num_classes: Number of classes C.
    """

    classes: NDArray[np.int32]
    shares: NDArray[np.float32]
    num_classes: int

    def __len__(self) -> int:
        return len(self.classes)

    def taken(self, rows: NDArray[np.int64]) -> "TopClasses":
        """The same for some rows, in their order."""
        return TopClasses(self.classes[rows], self.shares[rows], self.num_classes)

    def share_of(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Share of one class for each row, shape (N,); 0 if it is not among the k."""
        is_label = self.classes == labels[:, None]
        return np.asarray((self.shares * is_label).sum(1, dtype=np.float64))

    def dense(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Shares of all classes for some rows, shape (B, C); the rest is spread evenly."""
        whole = np.zeros((len(rows), self.num_classes))
        np.put_along_axis(whole, self.classes[rows].astype(np.int64), self.shares[rows], axis=1)
        rest = np.maximum(1 - whole.sum(1, keepdims=True), 0)
        return np.asarray(whole + rest / self.num_classes)

    def mixed(self, neighbours: NDArray[np.int32], *, weight: float = 0.5) -> "TopClasses":
        """The shares of each row mixed with the mean of those of its neighbours.

        Args:
            neighbours: Rows near each row, shape (N, n).
            weight: Weight of the neighbours, in [0, 1].
        """
        k = self.classes.shape[1]
        parts = []
        for rows in blocks(len(self), self.num_classes):
            whole = np.zeros((len(rows), self.num_classes), np.float32)
            at = np.arange(len(rows))[:, None]
            np.add.at(whole, (at, self.classes[rows]), (1 - weight) * self.shares[rows])
            for near in neighbours[rows].T:
                share = weight / neighbours.shape[1] * self.shares[near]
                np.add.at(whole, (at, self.classes[near]), share)
            parts.append(_top(whole, k))
        return _joined(parts, self.num_classes)

    def replaced(self, rows: NDArray[np.bool_], by: "TopClasses") -> "TopClasses":
        """The same with the shares of some rows, marked by True, taken from another."""
        mark = rows[:, None]
        return TopClasses(
            np.where(mark, by.classes, self.classes),
            np.where(mark, by.shares, self.shares),
            self.num_classes,
        )


def blocks(num_rows: int, num_classes: int) -> Iterator[NDArray[np.int64]]:
    """Positions of the rows in parts whose (B, C) matrices fit into memory."""
    size = max(1, _CELLS_AT_ONCE // num_classes)
    for start in range(0, num_rows, size):
        yield np.arange(start, min(start + size, num_rows))


def voted_classes(
    epochs: Iterable[EpochDynamics],
    num_classes: int,
    *,
    given: Ints | None = None,
    k: int = KEPT,
) -> TopClasses:
    """Share of the epochs in which each class was predicted.

    Memory is O(N k): where more than k classes were predicted, a new one takes the place and the
    count of the rarest (the space-saving algorithm), which overstates it.

    Args:
        epochs: Dynamics of every epoch.
        num_classes: Number of classes C.
        given: Given labels, shape (N,), for finer shares: the share of the given class is its mean
            probability p, and a prediction of another class counts as 1 - p.
        k: Classes to keep for each row.

    Raises:
        DataError: If there is no epoch, or a class is outside the C classes.

    Reference:
        Metwally et al., "Efficient Computation of Frequent and Top-k Elements in Data Streams",
        ICDT 2005.
    """
    k = min(k, num_classes)
    votes: _Votes | None = None
    for epoch in epochs:
        predicted = epoch.predicted
        if votes is None:
            votes = _Votes(len(predicted), k)
        rows = np.flatnonzero(predicted >= 0)
        if len(rows) and predicted[rows].max() >= num_classes:
            raise DataError(f"a prediction is outside the {num_classes} classes of the run")
        votes.num_epochs[rows] += 1
        if given is None:
            votes.add(rows, predicted[rows], np.ones(len(rows)))
            continue
        belief = 1 - disbelief(epoch.margin[rows])
        votes.add(rows, given[rows], belief)
        is_other = predicted[rows] != given[rows]
        votes.add(rows[is_other], predicted[rows[is_other]], 1 - belief[is_other])
    if votes is None:
        raise DataError("the run has no dynamics; train at least one epoch")
    return _sorted(votes.classes, votes.shares(), num_classes)


class _Votes:
    """Classes with the heaviest votes of every row."""

    def __init__(self, num_rows: int, k: int) -> None:
        self.classes = np.full((num_rows, k), -1, np.int32)
        self.weights = np.zeros((num_rows, k))
        self.num_epochs = np.zeros(num_rows, np.int64)

    def add(self, rows: Ints, voted: NDArray[np.integer], weights: Floats) -> None:
        # The slot of the class, or else the one with the lowest weight; empty ones have weight 0.
        is_same = self.classes[rows] == voted[:, None]
        slot = np.where(is_same.any(1), is_same.argmax(1), self.weights[rows].argmin(1))
        self.classes[rows, slot] = voted
        self.weights[rows, slot] += weights

    def shares(self) -> Floats:
        return np.asarray(self.weights / np.maximum(self.num_epochs, 1)[:, None])


def check_probabilities(
    probabilities: NDArray[Any],
    num_rows: int,
    *,
    source: str | os.PathLike[str] | None = None,
    row_ids: NDArray[np.str_] | None = None,
) -> None:
    """Raises unless these are probabilities of at least two classes for this number of rows.

    Args:
        probabilities: Shape (N, C).
        num_rows: Number of rows N.
        source: File that they come from, for messages.
        row_ids: Ids of the rows, for messages; by default their positions.

    Raises:
        DataError: If the shape is wrong, or a row is negative, NaN or does not sum to one.
    """
    where, shape = "" if source is None else f"{source}: ", probabilities.shape
    if probabilities.ndim != 2 or shape[1] < 2 or shape[0] != num_rows:
        raise DataError(f"{where}probabilities must be of shape ({num_rows}, C), got {shape}")
    if probabilities.dtype.kind != "f":
        raise DataError(f"{where}probabilities must be decimal numbers, got {probabilities.dtype}")
    sums, least = probabilities.sum(1), probabilities.min(1)
    is_bad = ~((np.abs(sums - 1) < 1e-2) & (least >= 0))
    if is_bad.any():
        row = int(is_bad.argmax())
        name = f"{row} (counted from 0)" if row_ids is None else repr(str(row_ids[row]))
        found = f"one is {least[row]:.4g}" if least[row] < 0 else f"they sum to {sums[row]:.4g}"
        raise DataError(
            f"{where}probabilities of row {name} must be at least 0 and sum to 1, {found}"
        )


def likely_classes(probabilities: NDArray[np.floating], *, k: int = KEPT) -> TopClasses:
    """The k likeliest classes of rows with known probabilities, shape (N, C)."""
    num_rows, num_classes = probabilities.shape
    k = min(k, num_classes)
    parts = [_top(probabilities[rows], k) for rows in blocks(num_rows, num_classes)]
    return _joined(parts, num_classes)


def joined(first: TopClasses, second: TopClasses) -> TopClasses:
    """The rows of both, one after the other."""
    parts = [(each.classes, each.shares) for each in (first, second)]
    return _joined(parts, first.num_classes)


def _top(whole: NDArray[np.floating], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    best = np.argpartition(-whole, k - 1, axis=1)[:, :k] if k < whole.shape[1] else None
    if best is None:
        best = np.broadcast_to(np.arange(k), whole.shape)
    shares = np.take_along_axis(whole, best, axis=1)
    order = np.argsort(-shares, axis=1, kind="stable")
    classes = np.take_along_axis(best, order, axis=1).astype(np.int32)
    return classes, np.take_along_axis(shares, order, axis=1).astype(np.float32)


def _joined(
    parts: list[tuple[NDArray[np.int32], NDArray[np.float32]]], num_classes: int
) -> TopClasses:
    classes, shares = zip(*parts, strict=True)
    return TopClasses(np.concatenate(classes), np.concatenate(shares), num_classes)


def _sorted(
    classes: NDArray[np.int32], shares: NDArray[np.float64], num_classes: int
) -> TopClasses:
    """The slots in order; an empty one names a class that the row does not have yet."""
    for slot in range(classes.shape[1]):
        empty = np.flatnonzero(classes[:, slot] < 0)
        if len(empty) == 0:
            continue
        free = np.zeros(len(empty), np.int32)
        while (is_taken := (classes[empty] == free[:, None]).any(1)).any():
            free = free + is_taken.astype(np.int32)
        classes[empty, slot] = free
    order = np.argsort(-shares, axis=1, kind="stable")
    return TopClasses(
        np.take_along_axis(classes, order, axis=1),
        np.take_along_axis(shares, order, axis=1).astype(np.float32),
        num_classes,
    )


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known about every row.

    Args:
        row_ids: Ids of the rows.
        given: Their given labels.
        class_names: Names of the classes.
        disbelief: Own score of each row, higher is more suspect.
        classes: Classes that were predicted for each row.
        beliefs: The same with finer shares, or the probabilities if they are known.
        is_unseen: Whether the network was not trained on the row.
        clean: True labels, where they are known.
        hashes: A hash of each row; equal rows have equal hashes.
    """

    row_ids: NDArray[np.str_]
    given: Ints
    class_names: tuple[str, ...]
    disbelief: Floats
    classes: TopClasses
    beliefs: TopClasses
    is_unseen: NDArray[np.bool_]
    clean: Ints | None = None
    hashes: NDArray[np.uint64] | None = None


def of_run(run: RunFolder) -> Evidence:
    """The evidence of a run: the dynamics of rows that were trained on and of those that were not.

    Raises:
        DataError: If it has no dynamics, or they are not of its rows.
    """
    labels, held = run.labels(), run.held_labels()
    numbers = run.epochs()
    if not numbers:
        raise DataError(f"{run.path}: has no dynamics, so there is nothing to judge by; train it")
    names = tuple(map(str, labels.class_names))
    _check_learned(run, numbers[-1], names)
    kept = np.arange(len(labels.given))
    if labels.planted is not None:
        kept = np.flatnonzero(~labels.planted)

    def trained() -> Iterator[EpochDynamics]:
        return (_rows(run.dynamics(number), kept, len(labels.given)) for number in numbers)

    scores = mean_disbelief(trained())
    classes = voted_classes(trained(), len(names))
    beliefs = voted_classes(trained(), len(names), given=labels.given[kept])
    parts = [(labels.row_ids[kept], labels.given[kept], _clean(labels, kept))]
    places = [None if labels.position is None else labels.position[kept]]
    if held is not None:

        def unseen() -> Iterator[EpochDynamics]:
            return (run.held_dynamics(number) for number in numbers)

        scores = np.concatenate([scores, mean_disbelief(unseen())])
        classes = joined(classes, voted_classes(unseen(), len(names)))
        beliefs = joined(beliefs, voted_classes(unseen(), len(names), given=held.given))
        parts.append((held.row_ids, held.given, _clean(held, np.arange(len(held.given)))))
        places.append(held.position)
    clean = [each for *_, each in parts if each is not None]
    is_unseen = np.arange(len(scores)) >= len(kept)
    # Rows with a planted label are the last; the network was trained to contradict them.
    num_planted = len(labels.given) - len(kept)
    is_unseen[len(scores) - num_planted :] = False
    found = Evidence(
        row_ids=np.concatenate([ids for ids, *_ in parts]),
        given=np.concatenate([each for _, each, _ in parts]).astype(np.int64),
        class_names=names,
        disbelief=scores,
        classes=classes,
        beliefs=beliefs,
        is_unseen=is_unseen if is_unseen.any() else np.ones(len(scores), bool),
        clean=np.concatenate(clean) if len(clean) == len(parts) else None,
    )
    return _in_data_order(found, [each for each in places if each is not None])


def _check_learned(run: RunFolder, epoch: int, names: tuple[str, ...]) -> None:
    """Raises if one class is predicted for every row, so that labels cannot be judged."""
    labels, held = run.labels(), run.held_labels()
    predicted = run.dynamics(epoch).predicted
    if held is not None:
        predicted = np.concatenate([predicted, run.held_dynamics(epoch).predicted])
    found = np.unique(predicted[predicted >= 0])
    if len(found) == 1 and found[0] < len(names) and len(np.unique(labels.given)) > 1:
        from imae.train.dynamics import rare_class_hint

        remedy = None
        train, data = (run.config().get(section) or {} for section in ("train", "data"))
        if train.get("batch_size") and not data.get("balanced"):
            counts = np.bincount(labels.given, minlength=len(names))
            remedy = rare_class_hint(found, counts, int(train["batch_size"]), names)
        raise DataError(
            f"{run.path}: at the end its network predicts {names[found[0]]!r} for every row, so "
            "it has learned nothing to judge labels by; "
            + (
                f"{remedy}, and audit that run"
                if remedy
                else "train it with another method, such as --loss cce, or with another --T or "
                "more epochs, and audit that run"
            )
        )


def _in_data_order(found: Evidence, places: list[Ints]) -> Evidence:
    """The rows sorted by their positions in the data; unsorted if a run did not record these."""
    if sum(map(len, places)) != len(found.given):
        if not found.is_unseen.all():
            warnings.warn(
                "the run was trained before positions of rows were recorded: held-out rows come "
                "last in the result; use row_ids to find rows, or train again",
                stacklevel=4,
            )
        return found
    order = np.argsort(np.concatenate(places), kind="stable")
    return replace(
        found,
        row_ids=found.row_ids[order],
        given=found.given[order],
        disbelief=found.disbelief[order],
        classes=found.classes.taken(order),
        beliefs=found.beliefs.taken(order),
        is_unseen=found.is_unseen[order],
        clean=None if found.clean is None else found.clean[order],
    )


def _rows(epoch: EpochDynamics, rows: Ints, expected: int) -> EpochDynamics:
    if len(epoch.margin) != expected:
        raise DataError(f"an epoch has {len(epoch.margin)} rows, the run {expected} labels")
    return EpochDynamics(epoch.margin[rows], epoch.predicted[rows], epoch.weight[rows])


def _clean(labels: RunLabels, rows: Ints) -> Ints | None:
    return None if labels.clean is None else labels.clean[rows].astype(np.int64)


def certain(labels: NDArray[np.integer], num_classes: int) -> TopClasses:
    """Rows whose whole share belongs to one class."""
    k = min(KEPT, num_classes)
    classes = (labels[:, None] + np.arange(k)) % num_classes
    shares = np.tile(np.eye(1, k, dtype=np.float32), (len(labels), 1))
    return TopClasses(classes.astype(np.int32), shares, num_classes)
