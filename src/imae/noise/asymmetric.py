"""Noise between classes that are easily taken for each other."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from imae._cifar_classes import CIFAR100_COARSE_OF_FINE
from imae._draws import seeded
from imae.errors import ArgumentError, check_integer
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, as_labels, redraw

# Truck to automobile, bird to airplane, cat to dog and back, deer to horse.
CIFAR10_MAPPING: Mapping[int, int] = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}

CIFAR100_COARSE = CIFAR100_COARSE_OF_FINE
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
    """Labels of some classes that move to one other class each.

        P(given = mapping[i] | clean = i) = rate    for every i in the mapping

    Classes that are not in the mapping keep their labels, so over all rows fewer than ``rate``
    are wrong.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label of a class in the mapping is replaced.
        mapping: From class to class; map both ways to make two classes trade labels.
        num_classes: Number of classes C, at least 2.
        seed: Seed of every draw.
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
    """CIFAR-10 labels under its usual map of look-alikes, `CIFAR10_MAPPING`.

    Truck goes to automobile, bird to airplane, deer to horse, cat and dog to each other. Half of
    the classes take part, so over all rows half of ``rate`` is wrong.

    Args:
        labels: Clean labels of CIFAR-10, shape (N,), integers in [0, 10).
        rate: Probability in [0, 1) that a label of the five classes is replaced.
        seed: Seed of every draw.
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
    """CIFAR-100 labels of which two classes in each superclass trade places.

    In every superclass two classes are chosen at random, from the seed, and their labels flip to
    each other with probability ``rate``. Two classes of five take part, so over all rows two
    fifths of ``rate`` are wrong.

    Args:
        labels: Clean fine labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label of a chosen class is replaced.
        seed: Seed of every draw, the choice of classes among them.
        coarse: Superclass of each of the C classes; another data set with superclasses gives
            its own.
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
        matrix[source] = np.eye(num_classes)[destination]
    return matrix
