"""Neighbours and duplicates, against brute force."""

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit.scores import (
    compressed,
    duplicates,
    nearest,
    neighbour_disbelief,
)
from imae.errors import DataError


def test_the_nearest_rows_are_those_of_all_pairs():
    unit = compressed(seeded(1).normal(size=(1500, 6)))  # more than one block
    near, similarity = nearest(unit, 4)
    pairs = (unit @ unit.T).numpy()
    np.fill_diagonal(pairs, -2)
    np.testing.assert_allclose(similarity, -np.sort(-pairs, axis=1)[:, :4], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(pairs, near, 1), similarity, atol=1e-5)


def test_a_row_is_never_its_own_neighbour_and_few_rows_have_few_neighbours():
    near, _ = nearest(compressed(seeded(1).normal(size=(5, 3))), 25)
    assert near.shape == (5, 4)
    assert not (near == np.arange(5)[:, None]).any()


def test_compressed_features_keep_who_is_near():
    draws = seeded(1)
    centres = draws.normal(size=(4, 60)) * 4
    rows = np.repeat(np.arange(4), 25)
    unit = compressed(centres[rows] + draws.normal(size=(100, 60)), width=8)
    assert unit.shape == (100, 8)
    near, _ = nearest(unit, 10)
    assert (rows[near] == rows[:, None]).mean() > 0.99


def test_features_that_are_not_finite_are_refused():
    features = np.eye(3)
    features[1, 1] = np.nan
    with pytest.raises(DataError, match="row 1"):
        compressed(features)
    with pytest.raises(DataError, match="shape"):
        compressed(np.ones(3))


def test_disbelief_weighs_near_neighbours_more():
    given = np.array([0, 1, 0])
    neighbours = np.array([[1, 2], [0, 2], [0, 1]], np.int32)
    similarity = np.array([[1.0, 0.5]] * 3, np.float32)
    found = neighbour_disbelief(given, neighbours, similarity)
    np.testing.assert_allclose(found, [1 / 1.0625, 1, 0.0625 / 1.0625])


def test_near_duplicates_with_one_label_are_no_group():
    neighbours = np.array([[1], [0], [3], [2], [0]], np.int32)
    similarity = np.array([[0.99], [0.99], [0.99], [0.99], [0.5]], np.float32)
    given = np.array([0, 1, 2, 2, 0])
    assert duplicates(given, near=(neighbours, similarity)).tolist() == [0, 0, -1, -1, -1]


def test_a_chain_of_duplicates_is_one_group():
    number = 40
    neighbours = ((np.arange(number) + 1) % number)[:, None].astype(np.int32)
    similarity = np.ones((number, 1), np.float32)
    given = np.zeros(number, np.int64)
    given[17] = 1
    assert (duplicates(given, near=(neighbours, similarity)) == 0).all()


def test_exact_duplicates_are_found_by_content():
    hashes = np.array([5, 3, 5, 4, 4], np.uint64)
    found = duplicates(np.array([0, 0, 1, 1, 1]), hashes=hashes)
    assert found.tolist() == [0, -1, 0, -1, -1]


def test_an_exact_and_a_near_duplicate_join_into_one_group():
    hashes = np.array([5, 5, 6], np.uint64)
    near = np.array([[2], [2], [1]], np.int32), np.array([[0.1], [0.99], [0.99]], np.float32)
    found = duplicates(np.array([0, 0, 1]), hashes=hashes, near=near)
    assert found.tolist() == [0, 0, 0]
