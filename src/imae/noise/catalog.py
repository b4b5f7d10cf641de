"""The kinds of label noise by name, and noise written as ``KIND:RATE``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from imae._registry import Catalog, Entry
from imae.errors import ArgumentError, check_interval
from imae.noise.asymmetric import cifar10_asymmetric, cifar100_asymmetric, pairs
from imae.noise.by_class import ArrayOrTensor, NoisyLabels, symmetric, uniform
from imae.noise.by_input import instance_dependent

Corruption: TypeAlias = Callable[..., NoisyLabels]


def _cifar10(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool
) -> NoisyLabels:
    _check_num_classes("cifar10_asymmetric", num_classes, 10)
    return cifar10_asymmetric(labels, rate=rate, seed=seed, exact=exact)


def _cifar100(
    labels: ArrayOrTensor, *, rate: float, num_classes: int, seed: int, exact: bool
) -> NoisyLabels:
    _check_num_classes("cifar100_asymmetric", num_classes, 100)
    return cifar100_asymmetric(labels, rate=rate, seed=seed, exact=exact)


def _check_num_classes(kind: str, num_classes: int, needed: int) -> None:
    if num_classes != needed:
        raise ArgumentError(
            f"noise {kind!r} is for {needed} classes, got num_classes {num_classes}"
        )


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
            partial(partial, _cifar10),
            "truck to automobile, bird to airplane, deer to horse, cat and dog to each other",
            'Patrini et al., "Making Deep Neural Networks Robust to Label Noise", CVPR 2017',
            {"exact": False},
        ),
        Entry(
            "cifar100_asymmetric",
            partial(partial, _cifar100),
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
    """Labels under the noise that a text names.

    Args:
        spec: ``"symmetric:0.4"`` or what `parse` made of it.
        labels: Clean labels, shape (N,), integers in [0, C).
        num_classes: Number of classes C.
        seed: Seed of every draw.
        exact: Change exactly the asked part of the rows; not for ``instance_dependent``.
        mapping: From class to class, only for ``pairs``.
        features: Shape (N, ...), only for ``instance_dependent``.

    Raises:
        ArgumentError: If the kind is unknown, lacks what it needs or does not take what it
            got, or a value is out of range.

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
