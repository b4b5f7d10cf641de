"""The audit: from a run, or from probabilities, to a result."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae._checks import check_interval
from imae.audit.calibrate import fit_noise_model, flag_count, monotone
from imae.audit.classes import (
    KEPT,
    TopClasses,
    check_probabilities,
    joined,
    likely_classes,
    voted_classes,
)
from imae.audit.neighbours import compressed, duplicates, nearest, neighbour_disbelief
from imae.audit.result import Audit
from imae.audit.scores import mean_disbelief
from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import EpochDynamics, RunFolder, RunLabels

_NEIGHBOURS = 25
_UNLIKELY = 0.25  # share of the given class below which a row may fit no class
_UNCERTAIN = 0.5  # share of the likeliest class below which it may
_FAR = 0.1  # part of the rows, by similarity to their neighbours, that count as far from all

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What is known of every row: own score, likely classes, and which rows are out of sample."""

    row_ids: NDArray[np.str_]
    given: Ints
    class_names: tuple[str, ...]
    disbelief: Floats
    classes: TopClasses
    is_unseen: NDArray[np.bool_]
    clean: Ints | None = None
    hashes: NDArray[np.uint64] | None = None


def audit(
    source: "str | os.PathLike[str] | RunFolder | NDArray[np.floating] | None",
    *,
    given: NDArray[np.integer] | None = None,
    features: NDArray[np.floating] | None = None,
    precision: float | None = None,
    row_ids: NDArray[np.str_] | None = None,
    class_names: tuple[str, ...] | None = None,
) -> Audit:
    """Which labels are suspect, how sure that is, and what the labels should be.

    A run is judged by its dynamics: the probability of the given label averaged over epochs, and
    the classes predicted in them. Held-out rows are judged by the network that never saw their
    labels. With features the judgement of each row is mixed with that of its nearest neighbours.

    Args:
        source: A run folder; probabilities of every class, shape (N, C), rows summing to one,
            best of rows that the model was not trained on; or None, to judge by features only.
        given: Given labels, shape (N,), for probabilities and features; a run brings its own.
        features: Shape (N, F). For a run in the order of the result's ``row_ids``; by default the
            frozen features that it was trained on, if any.
        precision: Flag as many rows as keep this *estimated* share of wrong labels among them;
            by default as many rows as labels are estimated to be wrong.
        row_ids: Ids of the rows, for probabilities and features; by default their positions.
        class_names: Names of the classes, for probabilities and features; by default numbers.

    Raises:
        ArgumentError: If an option does not fit.
        DataError: If there is no run, it has no dynamics, or arrays do not match.

    Examples:
        >>> from imae._draws import seeded
        >>> given = np.tile([0, 1], 100)
        >>> right = seeded(1).random((200, 1)) < 0.9
        >>> likely = np.where(right, np.eye(2)[given], np.eye(2)[1 - given])
        >>> found = audit(likely, given=given)
        >>> round(found.noise_rate, 1), right[found.order()[:10]].any().item()
        (0.1, False)
    """
    if precision is not None:
        check_interval("precision", precision, low=0, high=1, open_low=True)
    if source is None or isinstance(source, np.ndarray):
        evidence = _of_arrays(source, given, features, row_ids, class_names)
    else:
        if not (given is None and row_ids is None and class_names is None):
            raise ArgumentError("given, row_ids and class_names are in the run; leave them out")
        run = source if isinstance(source, RunFolder) else RunFolder(Path(source))
        evidence = _of_run(run)
        evidence = replace(evidence, hashes=_row_keys(run, evidence.row_ids))
        if features is None:
            features = _run_features(run, evidence.row_ids)
    return _judge(evidence, features, precision)


def _judge(
    evidence: _Evidence, features: NDArray[np.floating] | None, precision: float | None
) -> Audit:
    given, classes, suspicion = evidence.given, evidence.classes, evidence.disbelief
    group = duplicates(given, hashes=evidence.hashes)
    is_far = np.ones(len(given), bool)
    if features is not None:
        if len(features) != len(given):
            raise DataError(f"features: {len(features)} rows, but {len(given)} labels")
        near, similarity = nearest(compressed(features), _NEIGHBOURS)
        around = classes.mixed(near, weight=1.0)
        suspicion = (suspicion + 1 - around.share_of(given)) / 2
        classes = classes.mixed(near)
        group = duplicates(given, hashes=evidence.hashes, near=(near, similarity))
        closeness = similarity.mean(1)
        is_far = closeness <= np.quantile(closeness, _FAR)
    fitted = np.flatnonzero(evidence.is_unseen)
    model = fit_noise_model(_take(classes, fitted), given[fitted])
    wrong = model.wrong(classes, given)
    if features is not None and model.has_pairs:
        # Which labels are mistaken for which: without neighbours the shares are too coarse for it.
        suspicion = (suspicion + wrong) / 2
    wrong = monotone(suspicion[fitted], wrong[fitted], suspicion)
    # The rate by the row's own votes: those of neighbours blur, and overlap hides wrong labels.
    own = model
    if features is not None:
        own = fit_noise_model(_take(evidence.classes, fitted), given[fitted])
    rate = float(own.wrong(evidence.classes, given).mean())
    low, high = model.interval(rate)
    is_flagged = np.zeros(len(given), bool)
    count = flag_count(suspicion, wrong, rate, precision)
    is_flagged[np.argsort(-suspicion, kind="stable")[:count]] = True
    suggested, certainty = _suggestions(classes, given, wrong)
    is_open = (classes.shares[:, 0] < _UNCERTAIN) & (classes.share_of(given) < _UNLIKELY)
    return Audit(
        row_ids=evidence.row_ids,
        given=given,
        class_names=evidence.class_names,
        suspicion=suspicion,
        wrong_probability=wrong,
        suggested=suggested,
        suggested_probability=certainty,
        is_flagged=is_flagged,
        fits_no_class=is_open & is_far,
        group=group,
        noise_rate=rate,
        noise_rate_low=low,
        noise_rate_high=high,
        transition=own.transition,
        clean=evidence.clean,
    )


def _suggestions(classes: TopClasses, given: Ints, wrong: Floats) -> tuple[Ints, Floats]:
    """The likelier of the given class and the best other one, with its probability."""
    shares = np.where(classes.classes == given[:, None], -1, classes.shares)
    best = shares.argmax(1)
    rows = np.arange(len(given))
    rest = np.maximum(1 - classes.share_of(given), 1e-9)
    other = wrong * np.minimum(np.maximum(shares[rows, best], 0) / rest, 1)
    is_kept = 1 - wrong >= other
    suggested = np.where(is_kept, given, classes.classes[rows, best]).astype(np.int64)
    return suggested, np.where(is_kept, 1 - wrong, other)


def _take(classes: TopClasses, rows: Ints) -> TopClasses:
    return TopClasses(classes.classes[rows], classes.shares[rows], classes.num_classes)


def _of_run(run: RunFolder) -> _Evidence:
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
    return _Evidence(
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


def _run_features(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.floating] | None:
    """The frozen features that a run was trained on, in the order of these rows, if it was."""
    network = (run.config().get("data") or {}).get("features")
    if not network:
        return None
    from imae.audit.sources import compared_features

    return compared_features(run.config(), network, row_ids)


def _row_keys(run: RunFolder, row_ids: NDArray[np.str_]) -> NDArray[np.uint64] | None:
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


def _of_arrays(
    probabilities: NDArray[np.floating] | None,
    given: NDArray[np.integer] | None,
    features: NDArray[np.floating] | None,
    row_ids: NDArray[np.str_] | None,
    class_names: tuple[str, ...] | None,
) -> _Evidence:
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
        near, similarity = nearest(compressed(features), 2 * _NEIGHBOURS)
        disbelief = neighbour_disbelief(labels, near, similarity)
        # Neighbours vote with what their own neighbours say: their labels may be wrong.
        classes = _certain(labels, num_classes).mixed(near, weight=1.0)
        classes = _certain(classes.classes[:, 0], num_classes).mixed(near)
    else:
        disbelief = 1 - probabilities[np.arange(len(labels)), labels].astype(np.float64)
        classes = likely_classes(probabilities)
    return _Evidence(ids, labels, names, disbelief, classes, np.ones(len(labels), bool))


def _certain(labels: NDArray[np.integer], num_classes: int) -> TopClasses:
    k = min(KEPT, num_classes)
    classes = (labels[:, None] + np.arange(k)) % num_classes
    shares = np.tile(np.eye(1, k, dtype=np.float32), (len(labels), 1))
    return TopClasses(classes.astype(np.int32), shares, num_classes)
