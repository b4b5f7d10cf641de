"""Noise that depends on the inputs: instance-dependent noise, and open-set images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae._draws import choose_rows, draw_by_row, draw_normal, seeded
from imae.errors import ArgumentError, check_interval
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, as_array, as_labels

_SPREAD = 0.1  # of the flip rates of the rows about the asked rate, in the reference
_ROWS_AT_ONCE = 256


def instance_dependent(
    labels: ArrayOrTensor, *, features: ArrayOrTensor, rate: float, num_classes: int, seed: int
) -> NoisyLabels:
    """Labels that go wrong by what their row looks like (part-dependent noise).

        q ~ normal(rate, 0.1) within [0, 1], one for each row
        W ~ normal(0, 1), shape (F, C), one for each class
        P(given = j | x, clean = i) = q * softmax over j != i of (x W_i)_j
        P(given = i | x, clean = i) = 1 - q

    Cutting q off at 0 raises low rates: asked for 0.1 the mean is 0.129, for 0.2 it is 0.206;
    a rate of 0 changes nothing. ``transition`` is the mean of the rows' probabilities in each
    class, the identity for a class without rows. Give features of like scale, such as
    normalised pixels: the larger they are, the surer is where a row goes.

    The products are sums in floating point, which machines may round differently: a label could
    differ between two of them if its draw falls within about 1e-12 of an edge.

    Args:
        labels: Clean labels, shape (N,), integers in [0, C).
        features: What the noise depends on, shape (N, ...), flattened to (N, F).
        rate: Centre of the flip rates of the rows, in [0, 1).
        num_classes: Number of classes C, at least 2.
        seed: Seed of every draw.

    Raises:
        ArgumentError: If the rate or a label is out of range, or the features do not fit.

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


@dataclass(frozen=True, eq=False)
class OpenSetImages:
    """Images of which some belong to no class.

    Args:
        images: The images after the noise, shape (N, channels, height, width), uint8.
        is_replaced: Whether a row shows something else than its label says, shape (N,).
        rate: The rate that was asked for.
        seed: Seed of every draw.
    """

    images: NDArray[np.uint8]
    is_replaced: NDArray[np.bool_]
    rate: float
    seed: int


def open_set(
    images: NDArray[np.uint8],
    *,
    rate: float,
    seed: int,
    outside: NDArray[np.uint8] | None = None,
    exact: bool = False,
) -> OpenSetImages:
    """Images of which a part is replaced by outside images, or by noise, under unchanged labels.

    Outside images are taken in random order, each once before any comes a second time. Without
    them, every byte of a replaced image is uniform random noise. Which rows are hit does not
    depend on which labels are changed under the same seed.

    Args:
        images: Shape (N, channels, height, width), uint8; left as they are.
        rate: Probability in [0, 1) that an image is replaced.
        seed: Seed of every draw.
        outside: Images of another data set, shape (M, channels, height, width), uint8.
        exact: Replace ``round(rate * N)`` images, no more and no fewer.

    Raises:
        ArgumentError: If the rate is out of range, or the arrays are not images of one size.

    Examples:
        >>> images = np.zeros((10, 3, 4, 4), dtype=np.uint8)
        >>> result = open_set(images, rate=0.3, seed=1, exact=True)
        >>> int(result.is_replaced.sum()), int(images.sum())
        (3, 0)

    Reference:
        Wang et al., "Iterative Learning with Open-set Noisy Labels", CVPR 2018.
    """
    _check_images("images", images)
    check_interval("rate", rate, low=0.0, high=1.0, open_high=True)
    # A stream of its own: that of the label noise would hit the same rows under the same seed.
    generator = seeded(seed).spawn(1)[0]
    everywhere = np.ones(len(images), dtype=np.bool_)
    replaced = choose_rows(everywhere, generator, rate=rate, exact=exact)
    result = images.copy()
    if outside is None:
        result[replaced] = _noise_images((int(replaced.sum()), *images.shape[1:]), generator)
    else:
        _check_images("outside", outside)
        if outside.shape[1:] != images.shape[1:]:
            raise ArgumentError(
                f"outside images must be of size {images.shape[1:]}, got {outside.shape[1:]}"
            )
        order = np.argsort(generator.random(len(outside)), kind="stable")
        result[replaced] = outside[np.resize(order, int(replaced.sum()))]
    return OpenSetImages(images=result, is_replaced=replaced, rate=float(rate), seed=int(seed))


def _check_images(name: str, images: NDArray[np.uint8]) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise ArgumentError(f"{name} must be a uint8 array, got {kind}")
    if images.ndim != 4 or images.size == 0:
        raise ArgumentError(
            f"{name} must have shape (N, channels, height, width), got {images.shape}"
        )


def _noise_images(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.uint8]:
    size = int(np.prod(shape))
    words = (generator.random(-(-size // 4)) * 2**32).astype("<u4")  # little end first, everywhere
    return words.view(np.uint8)[:size].reshape(shape)
