import numpy as np
import pytest

from imae.noise.by_class import symmetric, uniform

CLEAN = np.arange(5000) % 10


def test_symmetric_matrix_is_that_of_the_paper():
    transition = symmetric(CLEAN, rate=0.36, num_classes=10, seed=1).transition
    assert np.allclose(np.diagonal(transition), 0.64)
    assert np.allclose(transition[~np.eye(10, dtype=bool)], 0.04)


def test_uniform_matrix_counts_the_clean_class_too():
    transition = uniform(CLEAN, rate=0.4, num_classes=10, seed=1).transition
    assert np.allclose(np.diagonal(transition), 0.64)
    assert np.allclose(transition[~np.eye(10, dtype=bool)], 0.04)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.8, 0.9999])
def test_exact_symmetric_noise_is_exact(rate):
    noisy = symmetric(CLEAN, rate=rate, num_classes=10, seed=1, exact=True)
    assert noisy.is_flipped.sum() == round(rate * len(CLEAN))


@pytest.mark.parametrize("corrupt", [symmetric, uniform])
def test_noise_is_not_exact_unless_asked(corrupt):
    counts = {
        corrupt(CLEAN, rate=0.5, num_classes=10, seed=seed).is_flipped.sum() for seed in range(5)
    }
    assert len(counts) > 1


def test_exact_uniform_noise_bounds_the_flips():
    noisy = uniform(CLEAN, rate=0.4, num_classes=10, seed=1, exact=True)
    drawn_anew = 0.4 * len(CLEAN)
    assert 0.85 * drawn_anew < noisy.is_flipped.sum() < drawn_anew


def test_two_classes_swap():
    noisy = symmetric([0, 1, 0, 1], rate=0.75, num_classes=2, seed=1, exact=True)
    assert noisy.is_flipped.sum() == 3


def test_a_lower_rate_changes_a_part_of_the_same_rows_in_the_same_way():
    low, high = (symmetric(CLEAN, rate=rate, num_classes=10, seed=1) for rate in (0.2, 0.6))
    assert (low.is_flipped <= high.is_flipped).all()
    assert np.array_equal(low.labels[low.is_flipped], high.labels[low.is_flipped])
