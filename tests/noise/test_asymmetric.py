import numpy as np
import pytest

from imae.errors import ArgumentError
from imae.noise.asymmetric import (
    CIFAR10_MAPPING,
    CIFAR100_COARSE,
    cifar10_asymmetric,
    cifar100_asymmetric,
    pairs,
)

CIFAR10_NAMES = [
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
]


def test_pairs_move_only_along_the_map():
    clean = np.arange(4000) % 4
    noisy = pairs(clean, rate=0.5, mapping={0: 3, 2: 0}, num_classes=4, seed=1, exact=True)
    moves = np.stack([clean, noisy.labels], axis=1)[noisy.is_flipped]
    assert np.unique(moves, axis=0).tolist() == [[0, 3], [2, 0]]
    assert noisy.is_flipped.sum() == 1000
    expected = [[0.5, 0, 0, 0.5], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]
    assert noisy.transition.tolist() == expected


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "empty"),
        ({1: 1}, "another, got 1:1"),
        ({0: 4}, r"\[0, 4\), got 4"),
        ({4: 0}, r"\[0, 4\), got 4"),
        ({-1: 0}, "at least 0, got -1"),
        ({"a": 0}, "integer, got 'a'"),
    ],
)
def test_bad_maps_are_refused(mapping, message):
    with pytest.raises(ArgumentError, match=message):
        pairs([0, 1], rate=0.4, mapping=mapping, num_classes=4, seed=1)


def test_the_last_class_may_stand_in_a_map():
    noisy = pairs([3] * 10, rate=0.5, mapping={3: 0}, num_classes=4, seed=1, exact=True)
    assert sorted(noisy.labels.tolist()) == [0] * 5 + [3] * 5


def test_the_cifar10_map_by_name():
    by_name = {CIFAR10_NAMES[a]: CIFAR10_NAMES[b] for a, b in CIFAR10_MAPPING.items()}
    assert by_name == {
        "truck": "automobile",
        "bird": "airplane",
        "deer": "horse",
        "cat": "dog",
        "dog": "cat",
    }


def test_cifar10_noise_is_pairs_under_its_map():
    clean = np.arange(1000) % 10
    noisy = cifar10_asymmetric(clean, rate=0.3, seed=7)
    expected = pairs(clean, rate=0.3, mapping=CIFAR10_MAPPING, num_classes=10, seed=7)
    assert np.array_equal(noisy.labels, expected.labels)
    assert np.array_equal(noisy.transition, expected.transition)
    assert noisy.kind == "cifar10_asymmetric"


def test_cifar10_has_ten_classes():
    assert cifar10_asymmetric([9], rate=0.3, seed=7).transition.shape == (10, 10)
    with pytest.raises(ArgumentError, match=r"\[0, 10\), got 10"):
        cifar10_asymmetric([10], rate=0.3, seed=7)


def test_noise_is_not_exact_unless_asked():
    clean = np.arange(5000) % 10
    counts = {
        (
            pairs(clean, rate=0.5, mapping={0: 1}, num_classes=10, seed=seed).is_flipped.sum(),
            cifar10_asymmetric(clean, rate=0.5, seed=seed).is_flipped.sum(),
            cifar100_asymmetric(clean, rate=0.5, seed=seed).is_flipped.sum(),
        )
        for seed in range(5)
    }
    assert all(len(set(column)) > 1 for column in zip(*counts, strict=True))


def test_every_superclass_of_cifar100_has_five_classes():
    assert np.bincount(CIFAR100_COARSE).tolist() == [5] * 20


def test_some_superclasses_of_cifar100_are_the_known_ones():
    # Fine labels are in the order of the alphabet: aquarium_fish 1, flatfish 32, ray 67,
    # shark 73, trout 91 are fish; maple 47, oak 52, palm 56, pine 59, willow 96 are trees.
    coarse = np.array(CIFAR100_COARSE)
    assert np.flatnonzero(coarse == 1).tolist() == [1, 32, 67, 73, 91]
    assert np.flatnonzero(coarse == 17).tolist() == [47, 52, 56, 59, 96]


@pytest.mark.parametrize("seed", range(5))
def test_cifar100_noise_trades_two_classes_of_each_superclass(seed):
    coarse = np.array(CIFAR100_COARSE)
    transition = cifar100_asymmetric(range(100), rate=0.4, seed=seed).transition
    sources, destinations = np.nonzero(transition * (1 - np.eye(100)))
    assert np.array_equal(transition, transition.T)
    assert np.allclose(transition[sources, destinations], 0.4)
    assert np.array_equal(coarse[sources], coarse[destinations])
    assert np.bincount(coarse[sources]).tolist() == [2] * 20


def test_the_traded_classes_come_from_the_seed_and_not_from_the_rate():
    first, second, other = (
        cifar100_asymmetric(range(100), rate=rate, seed=seed).transition > 0
        for rate, seed in ((0.2, 1), (0.6, 1), (0.2, 2))
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_every_class_of_a_superclass_can_be_chosen():
    chosen = {
        int(index)
        for seed in range(60)
        for index in np.flatnonzero(
            cifar100_asymmetric([0], rate=0.5, seed=seed, coarse=[0] * 5).transition[0] > 0
        )
    }
    assert chosen == {0, 1, 2, 3, 4}


def test_a_superclass_of_one_class_is_refused():
    with pytest.raises(ArgumentError, match="superclass 1 has one"):
        cifar100_asymmetric([0], rate=0.4, seed=1, coarse=[0, 0, 1])
    assert len(cifar100_asymmetric([0], rate=0.4, seed=1, coarse=[0, 0, 1, 1]).transition) == 4


def test_exact_cifar100_noise_is_exact():
    clean = np.arange(10_000) % 100
    noisy = cifar100_asymmetric(clean, rate=0.4, seed=1, exact=True)
    assert noisy.is_flipped.sum() == 0.4 * 40 * 100
