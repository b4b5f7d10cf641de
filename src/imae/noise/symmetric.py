"""Noise that treats all classes alike."""

import numpy as np

from imae.noise.draws import seeded
from imae.noise.labels import ArrayOrTensor, NoisyLabels, as_labels
from imae.noise.transition import redraw


def symmetric(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool = False
) -> NoisyLabels:
    """Labels that move to one of the other classes, all equally likely.

        P(given = j | clean = i) = 1 - rate          if i == j
                                   rate / (C - 1)    otherwise

    This is the definition of the paper: ``rate`` is the part of the labels that are wrong.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label is replaced.
        num_classes: Number of classes C, at least 2.
        seed: Seed of every draw.
        exact: Replace ``round(rate * N)`` labels, no more and no fewer.

    Raises:
        ArgumentError: If the rate, a label or the number of classes is out of range.

    Examples:
        >>> noisy = symmetric([0, 1, 2, 3] * 250, rate=0.4, num_classes=4, seed=1, exact=True)
        >>> noisy.realised_rate
        0.4

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2019, "Synthetic label noise generation".
    """
    clean = as_labels(labels, num_classes=num_classes)
    others = (1 - np.eye(num_classes)) / (num_classes - 1)
    return redraw(clean, others, seeded(seed), kind="symmetric", rate=rate, seed=seed, exact=exact)


def uniform(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool = False
) -> NoisyLabels:
    """Labels drawn anew from all classes, the clean one among them.

        P(given = j | clean = i) = 1 - rate + rate / C    if i == j
                                   rate / C               otherwise

    Fewer labels are wrong than with `symmetric`: a part ``rate * (C - 1) / C`` on average.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        rate: Probability in [0, 1) that a label is drawn anew.
        num_classes: Number of classes C, at least 2.
        seed: Seed of every draw.
        exact: Draw ``round(rate * N)`` labels anew, no more and no fewer.

    Raises:
        ArgumentError: If the rate, a label or the number of classes is out of range.

    Examples:
        >>> noisy = uniform([0, 1] * 500, rate=0.4, num_classes=2, seed=1)
        >>> noisy.transition
        array([[0.8, 0.2],
               [0.2, 0.8]])

    Reference:
        Zhang et al., "Understanding deep learning requires rethinking generalization",
        ICLR 2017, "Partially corrupted labels".
    """
    clean = as_labels(labels, num_classes=num_classes)
    everywhere = np.full((num_classes, num_classes), 1 / num_classes)
    return redraw(
        clean, everywhere, seeded(seed), kind="uniform", rate=rate, seed=seed, exact=exact
    )
