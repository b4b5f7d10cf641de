"""What is known of every row before it is judged: from a run, or from arrays."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae.audit.classes import (
    KEPT,
    TopClasses,
    check_probabilities,
    joined,
    likely_classes,
    voted_classes,
)
from imae.audit.neighbours import compressed, nearest, neighbour_disbelief
from imae.audit.scores import mean_disbelief
from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import EpochDynamics, RunFolder, RunLabels

NEIGHBOURS = 25

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of every row: own score, likely classes, and which rows are out of sample."""

    row_ids: NDArray[np.str_]
    given: Ints
    class_names: tuple[str, ...]
    disbelief: Floats
    classes: TopClasses
    is_unseen: NDArray[np.bool_]
    clean: Ints | None = None
    hashes: NDArray[np.uint64] | None = None


def of_run(run: RunFolder) -> Evidence:
    """The evidence of a run: its dynamics, of rows trained on and not trained on.

    Raises:
        DataError: If it has no dynamics, or they are not of its rows.
    """
    labels, held = run.labels(), run.held_labels()
    numbers = run.epochs()
    if not numbers:
        raise DataError(f"{run.path}: has no dynamics, so there is nothing to judge by; train it")
    names = tuple(map(str, labels.class_names))
    kept = np.arange(len(labels.given))
    if labels.planted is not None:
        kept = np.flatnonzero(~labels.planted)

    def trained() -> Iterator[EpochDynamics]:
        return (_rows(run.dynamics(number), kept, len(labels.given)) for number in numbers)

    disbelief = mean_disbelief(trained())
    classes = voted_classes(trained(), len(names))
    parts = [(labels.row_ids[kept], labels.given[kept], _clean(labels, kept))]
    if held is not None:

        def unseen() -> Iterator[EpochDynamics]:
            return (run.held_dynamics(number) for number in numbers)

        disbelief = np.concatenate([disbelief, mean_disbelief(unseen())])
        classes = joined(classes, voted_classes(unseen(), len(names)))
        parts.append((held.row_ids, held.given, _clean(held, np.arange(len(held.given)))))
    clean = [each for *_, each in parts if each is not None]
    is_unseen = np.arange(len(disbelief)) >= len(kept)
    # Rows with a planted label are the last; the network was trained to contradict them.
    num_planted = len(labels.given) - len(kept)
    is_unseen[len(disbelief) - num_planted :] = False
    return Evidence(
        row_ids=np.concatenate([ids for ids, *_ in parts]),
        given=np.concatenate([each for _, each, _ in parts]).astype(np.int64),
        class_names=names,
        disbelief=disbelief,
        classes=classes,
        is_unseen=is_unseen if is_unseen.any() else np.ones(len(disbelief), bool),
        clean=np.concatenate(clean) if len(clean) == len(parts) else None,
    )


def _rows(epoch: EpochDynamics, rows: Ints, expected: int) -> EpochDynamics:
    if len(epoch.margin) != expected:
        raise DataError(f"an epoch has {len(epoch.margin)} rows, the run {expected} labels")
    return EpochDynamics(epoch.margin[rows], epoch.predicted[rows], epoch.weight[rows])


def _clean(labels: RunLabels, rows: Ints) -> Ints | None:
    return None if labels.clean is None else labels.clean[rows].astype(np.int64)


def run_features(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.floating] | None:
    """The frozen features that a run was trained on, in the order of these rows, if it was."""
    network = (run.config().get("data") or {}).get("features")
    if not network:
        return None
    from imae.audit.sources import compared_features

    return compared_features(run.config(), network, row_ids)


def row_keys(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.uint64] | None:
    """A number for each row that equal rows share; None if the data is no longer there."""
    from imae.audit.sources import labelled_rows

    try:
        rows = labelled_rows({**run.config()["data"], "labels": None})
        keys = rows.inputs.row_keys()
    except (ImaeError, KeyError, TypeError):  # moved, or rows from Python that have no name
        return None
    known = {} if keys is None else dict(zip(rows.row_ids.tolist(), keys, strict=True))
    if not all(row_id in known for row_id in row_ids.tolist()):
        return None
    return np.array([known[row_id] for row_id in row_ids.tolist()], np.uint64)


def of_arrays(
    probabilities: NDArray[np.floating] | None,
    given: NDArray[np.integer] | None,
    features: NDArray[np.floating] | None,
    row_ids: NDArray[np.str_] | None,
    class_names: tuple[str, ...] | None,
) -> Evidence:
    """The evidence of probabilities, or of features only; the arguments are those of `audit`.

    Raises:
        ArgumentError: If something is missing.
        DataError: If arrays do not match.
    """
    if given is None:
        raise ArgumentError("given: probabilities and features need the given labels beside them")
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) == 0:
        raise DataError(f"given must be integers of shape (N,), got {given.dtype} {given.shape}")
    labels = given.astype(np.int64)
    if probabilities is None:
        if features is None:
            raise ArgumentError("give a run, probabilities or features to judge by")
        num_classes = max(int(labels.max()) + 1, len(class_names or ()), 2)
    else:
        check_probabilities(probabilities, len(labels))
        num_classes = probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= num_classes:
        raise DataError(f"given must be in [0, {num_classes}), got {labels.min()}..{labels.max()}")
    names = class_names or tuple(map(str, range(num_classes)))
    if len(names) != num_classes:
        raise DataError(f"class_names: {len(names)} names for {num_classes} classes")
    ids = np.arange(len(labels)).astype(str) if row_ids is None else row_ids
    if len(ids) != len(labels):
        raise DataError(f"row_ids: {len(ids)} ids for {len(labels)} rows")
    if probabilities is None:
        assert features is not None
        near, similarity = nearest(compressed(features), 2 * NEIGHBOURS)
        disbelief = neighbour_disbelief(labels, near, similarity)
        # Neighbours vote with what their own neighbours say: their labels may be wrong.
        classes = certain(labels, num_classes).mixed(near, weight=1.0)
        classes = certain(classes.classes[:, 0], num_classes).mixed(near)
    else:
        disbelief = 1 - probabilities[np.arange(len(labels)), labels].astype(np.float64)
        classes = likely_classes(probabilities)
    return Evidence(ids, labels, names, disbelief, classes, np.ones(len(labels), bool))


def certain(labels: NDArray[np.integer], num_classes: int) -> TopClasses:
    """Rows of which one class has the whole share."""
    k = min(KEPT, num_classes)
    classes = (labels[:, None] + np.arange(k)) % num_classes
    shares = np.tile(np.eye(1, k, dtype=np.float32), (len(labels), 1))
    return TopClasses(classes.astype(np.int32), shares, num_classes)
