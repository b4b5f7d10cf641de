import numpy as np
import pytest
import torch

from imae.data.features import Table
from imae.data.split import Split
from imae.errors import ArgumentError
from imae.noise import NoiseSpec, instance_dependent, pairs, symmetric
from imae.train.relabel import corrupt_split

ROWS = 3000
LABELS = np.arange(ROWS) % 3
FEATURES = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4) % 7 - 3


@pytest.fixture
def split():
    return Split(
        inputs=Table(FEATURES),
        labels=LABELS,
        row_ids=np.array([f"photo {row}.png" for row in range(ROWS)]),
        class_names=("cat", "dog", "fox"),
    )


def test_the_labels_are_those_of_the_library(split):
    noisy = corrupt_split(split, NoiseSpec("symmetric", 0.4), seed=1)
    expected = symmetric(LABELS, rate=0.4, num_classes=3, seed=1)
    assert np.array_equal(noisy.labels, expected.labels)


def test_a_map_by_name_and_number(split):
    noisy = corrupt_split(split, NoiseSpec("pairs", 0.4), seed=1, mapping="cat:dog,2:0", exact=True)
    mapping = {0: 1, 2: 0}
    expected = pairs(LABELS, rate=0.4, mapping=mapping, num_classes=3, seed=1, exact=True)
    assert np.array_equal(noisy.labels, expected.labels)


def test_inputs_of_several_batches_are_features(split):
    noisy = corrupt_split(split, NoiseSpec("instance_dependent", 0.4), seed=1)
    expected = instance_dependent(LABELS, features=FEATURES, rate=0.4, num_classes=3, seed=1)
    assert np.array_equal(noisy.labels, expected.labels)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (NoiseSpec("pairs", 0.4), {}, "needs a map FROM:TO"),
        (NoiseSpec("symmetric", 0.4), {"mapping": "cat:dog"}, "takes no map; leave it out"),
        (NoiseSpec("instance_dependent", 0.4), {"exact": True}, "leave that out"),
        (NoiseSpec("pairs", 0.4), {"mapping": "cat:wolf"}, "'wolf'"),
        (NoiseSpec("cifar10_asymmetric", 0.4), {}, "is for 10 classes"),
    ],
)
def test_what_does_not_fit_is_refused(split, spec, options, message):
    with pytest.raises(ArgumentError, match=message):
        corrupt_split(split, spec, seed=1, **options)


def test_the_global_generators_are_left_alone(split):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    corrupt_split(split, NoiseSpec("instance_dependent", 0.4), seed=1)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
