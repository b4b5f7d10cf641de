"""The kinds of label noise by name, noise written as ``KIND:RATE``, and open-set images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from imae._draws import choose_rows, seeded
from imae._registry import Catalog, Entry
from imae.errors import ArgumentError, check_interval
from imae.noise.asymmetric import cifar10_asymmetric, cifar100_asymmetric, instance_dependent, pairs
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, symmetric, uniform

Corruption: TypeAlias = Callable[..., NoisyLabels]


def _for_classes(
    needed: int, corrupt: Corruption, labels: ArrayOrTensor, *, num_classes: int, **options: Any
) -> NoisyLabels:
    if num_classes != needed:
        raise ArgumentError(
            f"noise {corrupt.__name__!r} is for {needed} classes, got num_classes {num_classes}"
        )
    return corrupt(labels, **options)


# Built with its own options, an entry is a function (labels, *, rate, num_classes, seed) ->
# NoisyLabels. An option whose default is None has to be given.
KINDS: Catalog[Corruption] = Catalog(
    "noise",
    (
        Entry(
            "symmetric",
            partial(partial, symmetric),
            "to one of the other classes, all equally likely",
            'Wang et al., "IMAE for Noise-Robust Learning", 2023',
            {"exact": False},
        ),
        Entry(
            "uniform",
            partial(partial, uniform),
            "drawn again from all classes, the right one included",
            'Zhang et al., "Understanding deep learning requires rethinking generalization", '
            "ICLR 2017",
            {"exact": False},
        ),
        Entry(
            "pairs",
            partial(partial, pairs),
            "from some classes to one other class each, by a map",
            "",
            {"mapping": None, "exact": False},
        ),
        Entry(
            "cifar10_asymmetric",
            partial(partial, _for_classes, 10, cifar10_asymmetric),
            "truck to automobile, bird to airplane, deer to horse, cat and dog to each other",
            'Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017',
            {"exact": False},
        ),
        Entry(
            "cifar100_asymmetric",
            partial(partial, _for_classes, 100, cifar100_asymmetric),
            "two classes of each superclass of CIFAR-100 to each other",
            'Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", '
            "ICCV 2019",
            {"exact": False},
        ),
        Entry(
            "instance_dependent",
            partial(partial, instance_dependent),
            "by what the row looks like (part-dependent)",
            'Xia et al., "Part-dependent Label Noise", NeurIPS 2020',
            {"features": None},
        ),
    ),
)


@dataclass(frozen=True)
class NoiseSpec:
    """A kind of noise and its rate; its text is what `parse` reads.

    Args:
        kind: A name of `KINDS`.
        rate: In [0, 1).

    Raises:
        ArgumentError: If the kind is unknown or the rate out of range.

    Examples:
        >>> str(NoiseSpec("symmetric", 0.4))
        'symmetric:0.4'
    """

    kind: str
    rate: float

    def __post_init__(self) -> None:
        KINDS.find(self.kind)
        check_interval("rate", self.rate, low=0.0, high=1.0, open_high=True)

    def __str__(self) -> str:
        return f"{self.kind}:{self.rate!r}"


def parse(text: str) -> NoiseSpec:
    """The noise that a text names.

    Args:
        text: ``KIND:RATE``, for example ``"symmetric:0.4"``.

    Raises:
        ArgumentError: If the text has another form, the kind is unknown or the rate is not in
            [0, 1).

    Examples:
        >>> parse("symmetric:0.4")
        NoiseSpec(kind='symmetric', rate=0.4)
    """
    kind, _, rate = text.partition(":")
    KINDS.find(kind)
    try:
        return NoiseSpec(kind, float(rate))
    except ArgumentError:
        raise
    except ValueError:
        raise ArgumentError(
            f"noise must be KIND:RATE, for example {kind}:0.4, got {text!r}"
        ) from None


def parse_mapping(text: str, class_names: Sequence[str]) -> dict[int, int]:
    """The class-to-class map that a text names.

    Args:
        text: ``FROM:TO,FROM:TO``. A class is given by its name or, where no class has
            that name, by its number: ``"truck:automobile,2:0"``.
        class_names: Names of the classes in label order.

    Raises:
        ArgumentError: If the text has another form, names no known class, or a class twice.

    Examples:
        >>> parse_mapping("cat:dog,dog:cat", ["cat", "dog"])
        {0: 1, 1: 0}
    """
    mapping: dict[int, int] = {}
    for pair in text.split(","):
        names = pair.split(":")
        if len(names) != 2:
            raise ArgumentError(f"map must be FROM:TO,FROM:TO, for example 9:1,2:0, got {text!r}")
        source, destination = (_class_index(name.strip(), class_names) for name in names)
        if source in mapping:
            raise ArgumentError(f"map must name each class to move once, got {text!r}")
        mapping[source] = destination
    return mapping


def apply(
    spec: str | NoiseSpec,
    labels: ArrayOrTensor,
    *,
    num_classes: int,
    seed: int,
    exact: bool = False,
    mapping: Mapping[int, int] | None = None,
    features: ArrayOrTensor | None = None,
) -> NoisyLabels:
    """Labels with the noise that a text names.

    Args:
        spec: ``"symmetric:0.4"`` or what `parse` made of it.
        labels: Clean labels, shape (N,), integers in [0, C).
        num_classes: Number of classes C.
        seed: Random seed.
        exact: Change exactly this share of the rows; not for ``instance_dependent``.
        mapping: From class to class, only for ``pairs``.
        features: Shape (N, ...), only for ``instance_dependent``.

    Raises:
        ArgumentError: If the kind is unknown, an argument is missing or not accepted, or a value
            is out of range.

    Examples:
        >>> apply("symmetric:0.5", [0, 1, 0, 1], num_classes=2, seed=1, exact=True).realised_rate
        0.5
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    options = {"exact": exact or None, "mapping": mapping, "features": features}
    given = {name: value for name, value in options.items() if value is not None}
    corrupt = KINDS.build(spec.kind, **given)
    for name, default in KINDS.find(spec.kind).defaults.items():
        if default is None and name not in given:
            raise ArgumentError(f"noise {spec.kind!r} needs {name}")
    return corrupt(labels, rate=spec.rate, num_classes=num_classes, seed=seed)


def _class_index(name: str, class_names: Sequence[str]) -> int:
    if name in class_names:
        return list(class_names).index(name)
    if name.isdecimal() and int(name) < len(class_names):
        return int(name)
    raise ArgumentError(
        f"map names {name!r}, which is none of the {len(class_names)} classes; "
        f"take a class name or a number from 0 to {len(class_names) - 1}"
    )


@dataclass(frozen=True, eq=False)
class OpenSetImages:
    """Images, some of which belong to no class.

    Args:
        images: The images after the noise, shape (N, channels, height, width), uint8.
        is_replaced: Whether the image of a row was replaced, shape (N,).
        rate: The requested rate.
        seed: Random seed.
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
    """Replaces some images by outside images or by noise; the labels stay the same.

    Outside images are used in random order, each once before any is used again. Without
    them, every byte of a replaced image is uniform random noise. Which rows are replaced does not
    depend on which labels are changed with the same seed.

    Args:
        images: Shape (N, channels, height, width), uint8; left as they are.
        rate: Probability in [0, 1) that an image is replaced.
        seed: Random seed.
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
