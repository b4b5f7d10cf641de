from collections import Counter

from imae.data.sources.cifar import (
    CIFAR10_CLASSES,
    CIFAR100_COARSE_CLASSES,
    CIFAR100_FINE_CLASSES,
)
from imae.noise.asymmetric import CIFAR100_COARSE


def test_numbers_of_classes() -> None:
    assert len(set(CIFAR10_CLASSES)) == 10
    assert len(set(CIFAR100_FINE_CLASSES)) == 100
    assert len(set(CIFAR100_COARSE_CLASSES)) == 20


def test_labels_are_in_alphabetical_order() -> None:
    for names in (CIFAR10_CLASSES, CIFAR100_FINE_CLASSES, CIFAR100_COARSE_CLASSES):
        assert list(names) == sorted(names)


def test_every_group_has_five_classes() -> None:
    assert Counter(CIFAR100_COARSE) == dict.fromkeys(range(20), 5)


def test_a_class_is_in_its_group() -> None:
    group = CIFAR100_COARSE[CIFAR100_FINE_CLASSES.index("trout")]
    assert CIFAR100_COARSE_CLASSES[group] == "fish"
