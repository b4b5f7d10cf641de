"""The kinds of label noise by name."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from imae._registry import Catalog, Entry
from imae.errors import ArgumentError
from imae.noise.asymmetric import cifar10_asymmetric, cifar100_asymmetric, pairs
from imae.noise.instance_dependent import instance_dependent
from imae.noise.labels import ArrayOrTensor, NoisyLabels
from imae.noise.symmetric import symmetric, uniform

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
            "drawn anew from all classes, the right one among them",
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
