"""Asymmetric noise: between classes that are easily confused, or depending on the row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae._draws import draw_by_row, draw_normal, seeded
from imae.errors import ArgumentError, check_integer, check_interval
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, as_array, as_labels, redraw

# Truck to automobile, bird to airplane, cat to dog and back, deer to horse.
CIFAR10_MAPPING: Mapping[int, int] = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}

CIFAR100_COARSE = (
     4,  1, 14,  8,  0,  6,  7,  7, 18,  3,  3, 14,  9, 18,  7, 11,  3,  9,  7, 11,
     6, 11,  5, 10,  7,  6, 13, 15,  3, 15,  0, 11,  1, 10, 12, 14, 16,  9, 11,  5,
     5, 19,  8,  8, 15, 13, 14, 17, 18, 10, 16,  4, 17,  4,  2,  0, 17,  4, 18, 17,
    10,  3,  2, 12, 12, 16, 12,  1,  9, 19,  2, 10,  0,  1, 16, 12,  9, 13, 15, 13,
    16, 19,  2,  4,  6, 19,  5,  5,  8, 19, 18,  1,  2, 15,  6,  0, 17,  8, 14, 13,
)  # fmt: skip
"""Superclass of each of the 100 classes of CIFAR-100, in label order."""


def pairs(
    labels: ArrayOrTensor,
    *,
    rate: float,
    mapping: Mapping[int, int],
    num_classes: int,
    seed: int,
    exact: bool = False,
) -> NoisyLabels:
    """Noise that moves labels of some classes to one other class each.

        P(given = mapping[i] | clean = i) = rate    for every i in the mapping

    Classes that are not in the mapping keep their labels, so over all rows fewer than ``rate``
    are wrong.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label of a class in the mapping is replaced.
        mapping: From class to class; map both ways to make two classes trade labels.
        num_classes: Number of classes C, at least 2.
        seed: Random seed.
        exact: Of the rows whose class is in the mapping, replace ``round(rate * rows)``.

    Raises:
        ArgumentError: If the rate, a label or a class is out of range, or the mapping is empty
            or takes a class to itself.

    Examples:
        >>> noisy = pairs(
        ...     [0, 0, 1, 2], rate=0.5, mapping={0: 2}, num_classes=3, seed=1, exact=True
        ... )
        >>> sorted(noisy.labels.tolist())
        [0, 1, 2, 2]
    """
    clean = as_labels(labels, num_classes=num_classes)
    destinations = _destinations(mapping, num_classes)
    return redraw(
        clean, destinations, seeded(seed), kind="pairs", rate=rate, seed=seed, exact=exact
    )


def cifar10_asymmetric(
    labels: ArrayOrTensor, *, rate: float, seed: int, exact: bool = False
) -> NoisyLabels:
    """Noise between similar classes of CIFAR-10, by its usual map, `CIFAR10_MAPPING`.

    Truck goes to automobile, bird to airplane, deer to horse, cat and dog to each other. Half of
    the classes take part, so over all rows half of ``rate`` is wrong.

    Args:
        labels: Clean labels of CIFAR-10, shape (N,), integers in [0, 10).
        rate: Probability in [0, 1) that a label of the five classes is replaced.
        seed: Random seed.
        exact: Of the rows of the five classes, replace ``round(rate * rows)``.

    Raises:
        ArgumentError: If the rate or a label is out of range.

    Examples:
        >>> noisy = cifar10_asymmetric([9, 2, 0], rate=0.4, seed=1)
        >>> float(noisy.transition[9, 1])
        0.4

    Reference:
        Patrini et al., "Making Deep Neural Networks Robust to Label Noise: A Loss Correction
        Approach", CVPR 2017, Sec. 5.
    """
    clean = as_labels(labels, num_classes=10)
    destinations = _destinations(CIFAR10_MAPPING, 10)
    return redraw(
        clean,
        destinations,
        seeded(seed),
        kind="cifar10_asymmetric",
        rate=rate,
        seed=seed,
        exact=exact,
    )


def cifar100_asymmetric(
    labels: ArrayOrTensor,
    *,
    rate: float,
    seed: int,
    coarse: Sequence[int] = CIFAR100_COARSE,
    exact: bool = False,
) -> NoisyLabels:
    """Noise that swaps labels of two classes in each superclass of CIFAR-100.

    In every superclass two classes are chosen at random, from the seed, and their labels flip to
    each other with probability ``rate``. Two classes of five take part, so over all rows two
    fifths of ``rate`` are wrong.

    Args:
        labels: Clean fine labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label of a chosen class is replaced.
        seed: Random seed, also of the choice of classes.
        coarse: Superclass of each of the C classes; pass your own for another data set with
            superclasses.
        exact: Of the rows of the chosen classes, replace ``round(rate * rows)``.

    Raises:
        ArgumentError: If the rate or a label is out of range, or a superclass has one class.

    Examples:
        >>> noisy = cifar100_asymmetric(range(100), rate=0.4, seed=1)
        >>> int((noisy.transition.diagonal() < 1).sum())     # 20 superclasses, two classes each
        40

    Reference:
        Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", ICCV 2019.
    """
    clean = as_labels(labels, num_classes=len(coarse))
    generator = seeded(seed)
    destinations = _destinations(_trades(coarse, generator), len(coarse))
    return redraw(
        clean,
        destinations,
        generator,
        kind="cifar100_asymmetric",
        rate=rate,
        seed=seed,
        exact=exact,
    )


def _trades(coarse: Sequence[int], generator: np.random.Generator) -> dict[int, int]:
    """Two classes of each superclass, mapped to each other."""
    keys = generator.random(len(coarse))
    superclasses = np.asarray(coarse)
    mapping: dict[int, int] = {}
    for superclass in np.unique(superclasses):
        members = np.flatnonzero(superclasses == superclass)
        if len(members) < 2:
            raise ArgumentError(
                f"every superclass must have two classes, superclass {superclass} has one"
            )
        first, second = members[np.argsort(keys[members], kind="stable")[:2]].tolist()
        mapping[first], mapping[second] = second, first
    return mapping


def _destinations(mapping: Mapping[int, int], num_classes: int) -> NDArray[np.float64]:
    if not mapping:
        raise ArgumentError("mapping must name a class to move, got an empty one")
    matrix = np.eye(num_classes)
    for source, destination in mapping.items():
        for label in (source, destination):
            check_integer("class in mapping", label, low=0)
            if label >= num_classes:
                raise ArgumentError(f"class in mapping must be in [0, {num_classes}), got {label}")
        if source == destination:
            raise ArgumentError(f"mapping must take a class to another, got {source}:{source}")
        matrix[source] = 0
        matrix[source, destination] = 1
    return matrix


_SPREAD = 0.1  # deviation of the flip rates of the rows from the requested rate, in the reference
_ROWS_AT_ONCE = 256


def instance_dependent(
    labels: ArrayOrTensor, *, features: ArrayOrTensor, rate: float, num_classes: int, seed: int
) -> NoisyLabels:
    """Noise that depends on the features of each row (part-dependent noise).

        q ~ normal(rate, 0.1) within [0, 1], one for each row
        W ~ normal(0, 1), shape (F, C), one for each class
        P(given = j | x, clean = i) = q * softmax over j != i of (x W_i)_j
        P(given = i | x, clean = i) = 1 - q

    Cutting q off at 0 raises low rates: for a rate of 0.1 the mean is 0.129, for 0.2 it is 0.206;
    a rate of 0 changes nothing. ``transition`` is the mean of the rows' probabilities in each
    class, the identity for a class without rows. Pass features of similar scale, such as
    normalised pixels: the larger they are, the more certain is the class that a row moves to.

    The products are sums in floating point, which machines may round differently: a label could
    differ between two of them if its draw falls within about 1e-12 of an edge.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        features: What the noise depends on, shape (N, ...), flattened to (N, F).
        rate: Centre of the flip rates of the rows, in [0, 1).
        num_classes: Number of classes C, at least 2.
        seed: Random seed.

    Raises:
        ArgumentError: If the rate or a label is out of range, or the features do not match.

    Examples:
        >>> features = np.eye(4)[[0, 1, 2, 3] * 50]
        >>> noisy = instance_dependent(
        ...     [0, 1] * 100, features=features, rate=0.4, num_classes=2, seed=1
        ... )
        >>> 0.25 < noisy.realised_rate < 0.55
        True

    Reference:
        Xia et al., "Part-dependent Label Noise: Towards Instance-dependent Label Noise",
        NeurIPS 2020, Algorithm 2.
    """
    clean = as_labels(labels, num_classes=num_classes)
    check_interval("rate", rate, low=0.0, high=1.0, open_high=True)
    inputs = _as_features(features, rows=len(clean))
    generator = seeded(seed)
    flip_rates = _flip_rates(rate, len(clean), generator)
    uniform = generator.random(len(clean))
    given = clean.copy()
    transition = np.eye(num_classes)
    for label in range(num_classes):
        # Drawn for absent classes too, so that a class's noise does not depend on the others.
        projection = draw_normal((inputs.shape[1], num_classes), generator)
        rows = np.flatnonzero(clean == label)
        if len(rows):
            scores = _scores(inputs, rows, projection)
            probabilities = _flip_probabilities(scores, label, flip_rates[rows])
            given[rows] = draw_by_row(probabilities, uniform[rows])
            transition[label] = probabilities.mean(axis=0)
    return NoisyLabels(
        labels=given,
        is_flipped=given != clean,
        transition=transition,
        kind="instance_dependent",
        rate=float(rate),
        seed=int(seed),
    )


def _as_features(features: ArrayOrTensor, *, rows: int) -> NDArray[Any]:
    array = as_array("features", features)
    if array.ndim < 2 or len(array) != rows or array.size == 0:
        raise ArgumentError(f"features must have shape ({rows}, ...), got {array.shape}")
    if array.dtype.kind not in "iuf":
        raise ArgumentError(f"features must be numbers, got {array.dtype}")
    flat = array.reshape(rows, -1)
    # The ends of a row show what is in it, and take no memory for a mask of all features.
    bad = ~(np.isfinite(flat.min(axis=1)) & np.isfinite(flat.max(axis=1)))
    if bad.any():
        raise ArgumentError(f"features must be finite, row {int(bad.argmax())} is not")
    return flat


def _flip_rates(rate: float, rows: int, generator: np.random.Generator) -> NDArray[np.float64]:
    if rate == 0:
        return np.zeros(rows)
    rates = rate + _SPREAD * draw_normal((rows,), generator)
    while (outside := (rates < 0) | (rates > 1)).any():
        rates[outside] = rate + _SPREAD * draw_normal((int(outside.sum()),), generator)
    return rates


def _scores(
    inputs: NDArray[Any], rows: NDArray[np.int64], projection: NDArray[np.float64]
) -> NDArray[np.float64]:
    # In parts: the inputs of a large class would take twice their memory again in float64.
    parts = np.array_split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE))
    return np.concatenate([inputs[part].astype(np.float64) @ projection for part in parts])


def _flip_probabilities(
    scores: NDArray[np.float64], label: int, flip_rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    scores[:, label] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = flip_rates[:, None] * weights / weights.sum(axis=1, keepdims=True)
    probabilities[:, label] = 1 - flip_rates
    return np.asarray(probabilities, dtype=np.float64)
