"""The audit: from a run, or from probabilities, to a result."""

import os
import shlex
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from imae.audit.calibrate import (
    as_unseen,
    at_equal_rank,
    flag_count,
    monotone,
    neighbour_weight,
    sharpened,
    stretched,
    suggestions,
    surest_row,
)
from imae.audit.evidence import (
    NEIGHBOURS,
    Evidence,
    TopClasses,
    certain,
    check_probabilities,
    likely_classes,
    of_run,
    voted_classes,
)
from imae.audit.noise_model import (
    FEWEST_ROWS,
    contradicted_again,
    fit_noise_model,
    fit_row_noise,
    has_memorised,
    noise_rate,
    trusted_part,
)
from imae.audit.result import Audit
from imae.audit.scores import (
    compressed,
    duplicates,
    mean_disbelief,
    nearest,
    neighbour_disbelief,
)
from imae.data.labels import LabelColumn, encode_labels
from imae.errors import ArgumentError, DataError, check_interval
from imae.noise.by_class import ArrayOrTensor, as_array
from imae.records import EpochDynamics, RunFolder

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from imae.data import Data
    from imae.train import Config, Run

_UNLIKELY = 0.25  # share of the given class below which a row may fit no class
_UNCERTAIN = 0.5  # share of the likeliest class below which it may
_LOST = 0.1  # predictions of a class, by its labels, below which it is not learned
_SAME = 1e-6  # difference of probabilities that is none
_FEW = 30  # rows that were not trained on, by which a share is not known
_FAR = 0.1  # part of the rows, by similarity to their neighbours, that count as far from all

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Judged: TypeAlias = NDArray[np.floating] | Sequence[EpochDynamics] | None
Source: TypeAlias = str | os.PathLike[str] | RunFolder | Judged


def audit(
    source: "Source | Run | Data | Dataset[Any] | tuple[object, object]" = None,
    *,
    given: ArrayOrTensor | None = None,
    features: ArrayOrTensor | None = None,
    precision: float | None = None,
    row_ids: Sequence[object] | NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
    cap: float | None = None,
    model: "nn.Module | None" = None,
    settings: "Mapping[str, Any] | Config | None" = None,
) -> Audit:
    """Finds suspect labels, how likely each is wrong, and what it should be.

    A run is judged by its dynamics: the probability of the given label averaged over epochs, and
    the classes predicted in them. Held-out rows are judged by the network that never saw their
    labels. With features the judgement of each row is mixed with that of its nearest neighbours.

    Args:
        source: A run or its folder; rows to train on first, as ``imae.train.train`` takes them:
            arrays ``(X, y)``, a frame with a column ``label``, an ``imae.data.Data`` or a
            ``torch.utils.data.Dataset``;
            probabilities of every class, shape (N, C), rows summing to one, best of rows that the
            model was not trained on, whether it is too sure or not sure enough; the dynamics of a
            training, an ``imae.records.EpochDynamics`` for each epoch; or nothing, to judge by
            features only.
        given: Given labels, shape (N,), of probabilities, dynamics or features. Integers from 0 are
            class numbers, unless all of them are among ``class_names``; others, such as names,
            booleans, or -1 and 1, are classes in the order of ``class_names``, or sorted.
        features: Shape (N, F). For a run in the order of the result's ``row_ids``; by default the
            frozen features that it was trained on, if any.
        precision: Flag as many rows as possible with at least this *estimated* share of wrong
            labels among them; by default as many as there are wrong labels by the estimate.
        row_ids: Ids of the rows, all different, unless a run is judged; by default their
            positions.
        class_names: Names of the classes, all different, unless a run is judged; by default
            numbers.
        cap: Largest probability that the model behind these probabilities can give, as after
            ``imae.CappedLogits``; by default it is found by ``imae.audit.calibrate.find_cap``.
            Give 1 if there is none.
        model: Network to train on rows; by default one is chosen that suits them.
        settings: Settings of that training; without ``out`` the run is not kept.

    Raises:
        ArgumentError: If an option does not fit.
        DataError: If there is no run, it has no dynamics, or arrays do not match.

    Warns:
        UserWarning: If classes are hardly ever predicted, so that their labels cannot be judged,
            fewer than 30 rows were not trained on, or the run is a student.

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
    folder = getattr(source, "folder", None)  # of a Run
    source = folder if isinstance(folder, RunFolder) else source
    source = _as_source(source, has_labels=given is not None)
    features = None if features is None else as_array("features", features)
    if _has_rows_to_train_on(source):
        if any(each is not None for each in (given, row_ids, class_names, cap)):
            raise ArgumentError(
                "given, row_ids, class_names and cap are for probabilities, dynamics and features, "
                f"got {type(source).__name__}; rows to train on bring their labels: (X, y)"
            )
        from imae.audit.sources import features_of_rows, training_run

        with training_run(source, model, settings or {}) as run:
            if features is None:
                features = features_of_rows(source, run)
            return audit(run, features=features, precision=precision)
    if not isinstance(source, str | os.PathLike | RunFolder):
        _check_no_training(model, settings)
        evidence = _evidence_of_arrays(
            cast(Judged, source), given, features, row_ids, class_names, cap
        )
    else:
        if any(each is not None for each in (given, row_ids, class_names, cap)):
            raise ArgumentError(
                "given, row_ids, class_names and cap are in the run; leave them out"
            )
        from imae.audit.sources import row_keys, run_features, teacher_of

        run = source if isinstance(source, RunFolder) else RunFolder(Path(source))
        if not run.exists() and not (run.path / "labels.npz").exists():
            raise DataError(
                f"{run.path}: is not a run; to train on data first, give what imae.data.load reads "
                f"from it, or use the command: imae audit {shlex.quote(str(run.path))}"
            )
        _check_no_training(model, settings)
        evidence = of_run(run)
        if (teacher := teacher_of(run)) is not None:
            warnings.warn(
                f"{run.path}: its labels are predictions of the run {teacher}, so this finds none "
                "of the wrong labels of the data; to find them: imae audit "
                f"{shlex.quote(str(teacher))}",
                stacklevel=2,
            )
        evidence = replace(evidence, hashes=row_keys(run, evidence.row_ids))
        if features is None:
            features = run_features(run, evidence.row_ids)
    return _judge(evidence, features, precision)


def _check_no_training(model: object, settings: object) -> None:
    if model is not None or settings is not None:
        raise ArgumentError(
            "model and settings are for rows to train on, such as (X, y); nothing is trained here, "
            "so leave them out"
        )


def _as_source(source: Any, *, has_labels: bool) -> Any:
    """Nested lists, a tensor or a frame of probabilities as an array; a list [X, y] as a pair."""
    is_list = isinstance(source, list) and source and not isinstance(source[0], EpochDynamics)
    if is_list and len(source) == 2 and not has_labels:
        return tuple(source)
    is_frame = has_labels and hasattr(source, "to_numpy")
    is_array = hasattr(source, "detach") or isinstance(source, np.ma.MaskedArray)
    return as_array("probabilities", source) if is_list or is_frame or is_array else source


def _has_rows_to_train_on(source: object) -> bool:
    """Whether these are rows with labels to train on, not a run, probabilities or dynamics."""
    if isinstance(source, tuple):
        return not isinstance(source[0], EpochDynamics)
    is_known = source is None or isinstance(source, str | os.PathLike | RunFolder | np.ndarray)
    return not is_known and not (isinstance(source, Sequence) and not isinstance(source, bytes))


def _evidence_of_arrays(
    judged_by: Judged,
    given: ArrayOrTensor | None,
    features: NDArray[np.floating] | None,
    row_ids: Sequence[object] | NDArray[Any] | None,
    class_names: Sequence[str] | None,
    cap: float | None,
) -> Evidence:
    """The evidence of probabilities, dynamics or features; the arguments are those of `audit`.

    Raises:
        ArgumentError: If something is missing.
        DataError: If arrays do not match.
    """
    if class_names is not None:
        class_names = list(map(str, class_names))  # perhaps ``classes_`` of a classifier
    if given is None:
        raise ArgumentError("given: the given labels are required unless a run is audited")
    given = as_array("given", given)
    if given.ndim != 1 or len(given) == 0:
        raise DataError(f"given must be labels of shape (N,), got shape {given.shape}")
    if isinstance(judged_by, np.ndarray):
        check_probabilities(judged_by, len(given))
        judged_by = stretched(judged_by, cap)
    elif judged_by is None and features is None:
        raise ArgumentError("give a run, probabilities or features to judge by")
    elif cap is not None:
        raise ArgumentError("cap is that of a model whose probabilities are given; leave it out")
    if features is not None:
        _check_features(features, len(given))
    width = judged_by.shape[1] if isinstance(judged_by, np.ndarray) else None
    labels, found = _class_numbers(given, width, class_names)
    num_classes = max(int(labels.max()) + 1, len(found or ()), 2) if width is None else width
    names = tuple(map(str, found or range(num_classes)))
    if len(names) != num_classes:
        raise DataError(f"class_names: {len(names)} names for {num_classes} classes")
    ids = np.arange(len(labels)).astype(str)
    if row_ids is not None:
        ids = np.array([str(each) for each in row_ids])
        _check_distinct("row_ids", ids.tolist())
    if len(ids) != len(labels):
        raise DataError(f"row_ids: {len(ids)} ids for {len(labels)} rows")
    _check_distinct("class_names", names)
    if isinstance(judged_by, np.ndarray):
        if len(labels) < 2:
            raise DataError("probabilities: one row cannot be compared with others; give more")
        if np.ptp(judged_by, axis=0).max() < _SAME:
            raise DataError("probabilities are equal for all rows: they say nothing of the labels")
        is_lost = _is_lost(judged_by.sum(0, dtype=np.float64), labels)
        if not is_lost[labels].all():
            judged_by = sharpened(judged_by, labels, np.flatnonzero(~is_lost[labels]))
        disbelief = 1 - judged_by[np.arange(len(labels)), labels].astype(np.float64)
        beliefs = classes = likely_classes(judged_by)
    elif judged_by is not None:
        disbelief = mean_disbelief(judged_by)
        if len(disbelief) != len(labels):
            raise DataError(f"the dynamics have {len(disbelief)} rows, given has {len(labels)}")
        classes = voted_classes(judged_by, num_classes)
        beliefs = voted_classes(judged_by, num_classes, given=labels)
    else:
        assert features is not None
        if len(labels) < 2:
            raise DataError("features: one row has no neighbours to compare with; give more")
        near, similarity = nearest(compressed(features), 2 * NEIGHBOURS)
        disbelief = neighbour_disbelief(labels, near, similarity)
        # Neighbours vote with what their own neighbours say: their labels may be wrong.
        classes = certain(labels, num_classes).mixed(near, weight=1.0)
        beliefs = classes = certain(classes.classes[:, 0], num_classes).mixed(near)
    return Evidence(ids, labels, names, disbelief, classes, beliefs, np.ones(len(labels), bool))


def _class_numbers(
    given: NDArray[Any], width: int | None, class_names: Sequence[str] | None
) -> tuple[Ints, Sequence[str] | None]:
    """Numbers of the classes of labels, shape (N,), and the names of the classes, if known.

    Integers from 0 are class numbers, unless all are among the names, such as those of classes 1 to
    3. All others (names, booleans, -1 and 1) are classes by their names, or in sorted order, as
    scikit-learn orders the columns of ``predict_proba``.

    Args:
        given: The labels.
        width: Number of classes that probabilities have.
        class_names: Names of the classes, if the caller gave them.

    Raises:
        DataError: If a label is missing or of no class, or the number of classes is another one.
    """
    number = len(class_names) if width is None and class_names else width
    are_whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and (given % 1 == 0).all())
    are_names = are_whole and _are_names(given, class_names)
    if (
        are_whole
        and not are_names
        and given.min() >= 0
        and (number is None or given.max() < number)
    ):
        return given.astype(np.int64), class_names
    values = (given.astype(np.int64) if are_names else given).tolist()
    if class_names is not None:  # by name, also where the names are numbers
        values = [None if value is None else str(value) for value in values]
    column = LabelColumn("given", np.arange(len(given)).astype(str), values)
    (labels,), names = encode_labels([column], [], class_names=class_names)
    if number is not None and len(names) != number:
        raise DataError(
            f"given has {len(names)} classes ({', '.join(names[:5])}) that are not numbers from 0 "
            f"to {number - 1}, the probabilities have {number}; say which they are by class_names"
        )
    return labels, names


def _are_names(given: NDArray[Any], class_names: Sequence[str] | None) -> bool:
    """Whether whole numbers are the names of classes that are not called by their numbers."""
    if class_names is None or list(class_names) == [str(each) for each in range(len(class_names))]:
        return False
    return {str(each) for each in np.unique(given).astype(np.int64).tolist()} <= set(class_names)


def _check_distinct(name: str, values: Sequence[str]) -> None:
    """Raises if two values are equal: decisions could not be told apart."""
    value, count = Counter(values).most_common(1)[0]
    if count > 1:
        raise DataError(f"{name}: {value!r} appears {count} times")


def _judge(
    evidence: Evidence, features: NDArray[np.floating] | None, precision: float | None
) -> Audit:
    num_unseen = int(evidence.is_unseen.sum())
    if num_unseen < min(_FEW, len(evidence.given)):
        warnings.warn(
            f"only {num_unseen} rows were not trained on, so the share of wrong labels is judged "
            "by all rows; it may be far off, and its range is wide: look at the rows, not at the "
            "share",
            stacklevel=3,
        )
        evidence = replace(evidence, is_unseen=np.ones_like(evidence.is_unseen))
    given, classes, beliefs = evidence.given, evidence.classes, evidence.beliefs
    suspicion = evidence.disbelief
    is_lost = _lost_classes(classes, given, evidence.class_names)[given]
    fitted = np.flatnonzero(evidence.is_unseen & ~is_lost)
    if len(fitted) == 0:
        warnings.warn(
            "no row of a class that is predicted was held out, so the share of wrong labels is "
            "judged by all rows; it may be far off, and its range is wide",
            stacklevel=3,
        )
        evidence = replace(evidence, is_unseen=np.ones_like(evidence.is_unseen))
        fitted, num_unseen = np.flatnonzero(~is_lost), 1
    group = duplicates(given, hashes=evidence.hashes)
    is_far = np.ones(len(given), bool)
    if features is not None:
        _check_features(features, len(given))
        near, similarity = nearest(compressed(features), NEIGHBOURS)
        around = classes.mixed(near, weight=1.0)
        weight = neighbour_weight(classes, around, given, fitted)
        suspicion = (1 - weight) * suspicion + weight * (1 - around.share_of(given))
        # Labels of a class that the network never predicts are judged by those of the neighbours.
        labels = certain(given, classes.num_classes).mixed(near, weight=1.0)
        doubt = neighbour_disbelief(given, near, similarity)
        suspicion[is_lost] = at_equal_rank(doubt[is_lost], doubt[~is_lost], suspicion[~is_lost])
        classes = classes.mixed(near).replaced(is_lost, labels)
        beliefs = beliefs.mixed(near).replaced(is_lost, labels)
        group = duplicates(given, hashes=evidence.hashes, near=(near, similarity))
        closeness = similarity.mean(1)
        is_far = closeness <= np.quantile(closeness, _FAR)
    else:
        suspicion = np.where(is_lost, np.median(suspicion[~is_lost]), suspicion)
        known = certain(given, classes.num_classes)
        classes, beliefs = classes.replaced(is_lost, known), beliefs.replaced(is_lost, known)
    model = fit_noise_model(classes.taken(fitted), given[fitted])
    # Votes of neighbours blur the classes, and overlap hides wrong labels: so the rate is estimated
    # from the row's own votes.
    own = model
    if features is not None:
        own = fit_noise_model(evidence.classes.taken(fitted), given[fitted])
    # Where most noise is within a few pairs of classes, the pair says more than the confidence of
    # the network, which learns such labels and doubts the right ones too.
    share = model.pair_weight()
    suspicion = (1 - share) * suspicion + share * model.wrong(beliefs, given)
    if has_memorised(evidence.classes, given, evidence.is_unseen):
        suspicion = as_unseen(suspicion, evidence.is_unseen)
    wrong = (model.wrong(classes, given) + own.wrong(evidence.classes, given)) / 2
    rate = noise_rate(own, evidence.classes, given, evidence.is_unseen, is_lost)
    if features is not None and len(fitted) >= FEWEST_ROWS:
        noise = fit_row_noise(evidence.classes, around, given, fitted)
        by_row = noise.wrong(evidence.classes, around, given)
        wrong = (1 - share) * by_row + share * wrong
        rate = (1 - share) * float(by_row[fitted].mean()) + share * rate
    wrong = monotone(suspicion[fitted], wrong[fitted], suspicion)
    if features is not None and is_lost.any():  # else nothing is known of these labels
        rate = float(np.where(is_lost, wrong, rate).mean())
    # Either view may be the one that puts enough rows first for their labels to say something.
    floor = max(model.floor, own.floor)
    model = replace(model, num_rows=min(num_unseen, model.num_rows), floor=floor)
    low, high = model.interval(rate)
    again = contradicted_again(evidence.classes, given, evidence.is_unseen)
    part = trusted_part(rate, low, again)
    rate *= part
    wrong = np.minimum(part * wrong, surest_row(rate, low))
    is_flagged = np.zeros(len(given), bool)
    count = flag_count(suspicion, wrong, rate, precision)
    is_flagged[np.argsort(-suspicion, kind="stable")[:count]] = True
    suggested, certainty = suggestions(classes, given, wrong, is_flagged)
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


def _check_features(features: NDArray[np.floating], num_rows: int) -> None:
    """Raises unless there are features for this number of rows.

    Raises:
        DataError: If not.
    """
    if features.ndim != 2 or len(features) != num_rows:
        raise DataError(f"features must be of shape ({num_rows}, F), got {features.shape}")


def _lost_classes(classes: TopClasses, given: Ints, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Whether the network hardly ever predicts each class, shape (C,); warns if there are any."""
    number = classes.num_classes
    votes = np.bincount(classes.classes.ravel(), classes.shares.ravel(), number).astype(np.float64)
    is_lost = _is_lost(votes, given)
    if is_lost[given].all():
        raise DataError("the network has not learned any class; train longer")
    if is_lost.any():
        named = ", ".join(names[each] for each in np.flatnonzero(is_lost)[:10])
        warnings.warn(
            f"{is_lost.sum()} of {number} classes are hardly ever predicted ({named}), so "
            "the network cannot judge their labels; train longer or with another method",
            stacklevel=4,
        )
    return is_lost


def _is_lost(votes: Floats, given: Ints) -> NDArray[np.bool_]:
    """Whether each class has hardly any of these votes, shape (C,), by the number of its labels."""
    return np.asarray(votes < _LOST * np.bincount(given, minlength=len(votes)))
