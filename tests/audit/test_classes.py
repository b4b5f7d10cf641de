"""Likely classes of rows, against dense matrices."""

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit.evidence import TopClasses, likely_classes, voted_classes
from imae.errors import DataError
from imae.records import EpochDynamics


def epochs(predicted):
    ones = np.ones(np.shape(predicted)[1], np.float32)
    return [EpochDynamics(ones, np.array(each, np.int32), ones) for each in predicted]


def test_votes_are_shares_of_the_epochs():
    found = voted_classes(epochs([[0, 3], [0, 1], [2, 1], [0, 1]]), num_classes=4)
    assert found.classes[:, 0].tolist() == [0, 1]
    np.testing.assert_allclose(found.share_of(np.array([2, 3])), [0.25, 0.25])
    np.testing.assert_allclose(found.dense(np.arange(2)), [[0.75, 0, 0.25, 0], [0, 0.75, 0, 0.25]])


def test_more_classes_than_slots_keep_the_frequent_ones():
    predicted = [[each] for each in (7, 1, 7, 2, 7, 3, 7, 4, 7)]
    found = voted_classes(epochs(predicted), num_classes=9, k=2)
    assert found.classes.shape == (1, 2)
    assert found.classes[0, 0] == 7
    assert found.shares.sum() == pytest.approx(1)


def test_an_epoch_that_did_not_see_a_row_has_no_vote():
    found = voted_classes(epochs([[1], [-1], [1]]), num_classes=3)
    np.testing.assert_allclose(found.dense(np.arange(1)), [[0, 1, 0]])


def test_a_class_outside_and_no_epoch_are_refused():
    with pytest.raises(DataError, match="outside the 3 classes"):
        voted_classes(epochs([[3]]), num_classes=3)
    with pytest.raises(DataError, match="no dynamics"):
        voted_classes([], num_classes=3)


def test_the_likeliest_classes_of_probabilities_come_in_order():
    probabilities = seeded(1).dirichlet(np.ones(8), 50)
    found = likely_classes(probabilities, k=3)
    expected = np.argsort(-probabilities, axis=1)[:, :3]
    np.testing.assert_array_equal(found.classes, expected)
    np.testing.assert_allclose(
        found.dense(np.arange(50)).sum(1), np.ones(50), rtol=1e-6
    )  # the rest is spread


def test_mixing_with_neighbours_equals_the_dense_mean():
    probabilities = seeded(1).dirichlet(np.ones(4), 30)
    neighbours = seeded(2).integers(0, 30, (30, 5)).astype(np.int32)
    mixed = likely_classes(probabilities, k=4).mixed(neighbours, weight=0.25)
    expected = 0.75 * probabilities + 0.25 * probabilities[neighbours].mean(1)
    np.testing.assert_allclose(mixed.dense(np.arange(30)), expected, atol=1e-6)


def test_a_class_that_is_not_kept_has_share_zero():
    found = TopClasses(np.array([[2]], np.int32), np.array([[0.9]], np.float32), 3)
    assert found.share_of(np.array([1])).tolist() == [0.0]
