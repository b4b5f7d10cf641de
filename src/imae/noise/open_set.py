"""Noise of the inputs: rows that belong to no class, under labels that say they do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from imae._checks import check_interval
from imae._draws import choose_rows, seeded
from imae.errors import ArgumentError


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
