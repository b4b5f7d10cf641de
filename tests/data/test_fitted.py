from dataclasses import replace

import numpy as np
import pytest

from imae.data.array_images import ArrayImages, channel_statistics
from imae.data.fitted import fit_preparation
from imae.data.hashed_text import hash_text
from imae.data.split import Data
from imae.data.table import Table


def data_of(table_split, train, test) -> Data:
    first = table_split([0, 1, 1])
    return Data("x", replace(first, inputs=train), test=replace(first, inputs=test))


def test_features_are_scaled_by_the_training_rows_alone(table_split):
    train = np.array([[1, 5, 100], [2, 5, 300], [3, 5, 200]], np.float32)
    data = fit_preparation(data_of(table_split, Table(train), Table(train + 1)))
    values = data.train.inputs.values
    assert values.mean(0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert values.std(0) == pytest.approx([1, 0, 1], abs=1e-6)
    assert data.test.inputs.values == pytest.approx(
        (train + 1 - train.mean(0)) / [0.8165, 1, 81.65], 1e-3
    )


def test_large_offsets_keep_their_differences(table_split):
    train = np.array([[1e6], [1e6 + 1], [1e6 + 2]], np.float32)
    data = fit_preparation(data_of(table_split, Table(train), Table(train)))
    assert data.train.inputs.values.ravel() == pytest.approx([-1.2247, 0, 1.2247], abs=1e-3)


def test_images_get_the_statistics_of_the_training_images(table_split, images):
    train = images.take(np.arange(3))
    test = images.take(np.arange(3, 6))
    data = fit_preparation(data_of(table_split, train, test))
    for split in data.splits().values():
        assert isinstance(split.inputs, ArrayImages)
        assert (split.inputs.mean, split.inputs.std) == channel_statistics(train.pixels)
        assert split.inputs.pad == 2


def test_other_inputs_stay_as_they_are(table_split):
    texts = hash_text(["a", "b", "c"])
    data = data_of(table_split, texts, texts)
    assert fit_preparation(data) is data
