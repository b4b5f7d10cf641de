import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imae.errors import ArgumentError
from imae.noise.by_class import symmetric
from imae.noise.catalog import open_set

IMAGES = np.zeros((1000, 3, 4, 4), dtype=np.uint8)
OUTSIDE = np.arange(1, 201, dtype=np.uint8)[:, None, None, None] * np.ones(
    (1, 3, 4, 4), dtype=np.uint8
)


def test_the_realised_rate_is_within_four_sigma():
    bound = 4 * np.sqrt(0.3 * 0.7 / 1000)
    for seed in range(100):
        result = open_set(IMAGES, rate=0.3, seed=seed)
        assert result.is_replaced.mean() == pytest.approx(0.3, abs=bound), seed


@settings(deadline=None)  # a busy machine is no failure
@given(
    rows=st.integers(1, 30),
    rate=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**64),
    outside=st.none() | st.integers(1, 20),
    exact=st.booleans(),
)
def test_only_replaced_rows_change(rows, rate, seed, outside, exact):
    images = np.full((rows, 1, 8, 8), 255, dtype=np.uint8)
    other = None if outside is None else np.zeros((outside, 1, 8, 8), dtype=np.uint8)
    result = open_set(images, rate=rate, seed=seed, outside=other, exact=exact)
    changed = (result.images != 255).any(axis=(1, 2, 3))
    assert np.array_equal(changed, result.is_replaced)
    assert (images == 255).all()
    if exact:
        assert result.is_replaced.sum() == round(rate * rows)


def test_outside_images_are_used_evenly():
    result = open_set(IMAGES, rate=0.5, seed=1, outside=OUTSIDE, exact=True)
    used = np.bincount(result.images[result.is_replaced, 0, 0, 0], minlength=201)[1:]
    assert used.sum() == 500
    assert set(used.tolist()) == {2, 3}


def test_outside_images_come_in_random_order():
    result = open_set(IMAGES, rate=0.1, seed=1, outside=OUTSIDE, exact=True)
    used = result.images[result.is_replaced, 0, 0, 0]
    assert len(np.unique(used)) == 100
    assert not (np.diff(used.astype(int)) > 0).all()


def test_replaced_rows_are_not_those_whose_label_changes_under_the_same_seed():
    replaced = open_set(IMAGES, rate=0.3, seed=1).is_replaced
    flipped = symmetric(np.zeros(1000, int), rate=0.3, num_classes=2, seed=1).is_flipped
    both = (replaced & flipped).mean()
    assert both == pytest.approx(0.09, abs=4 * np.sqrt(0.09 * 0.91 / 1000))


def test_noise_images_are_uniform_bytes():
    result = open_set(np.zeros((200, 3, 32, 32), np.uint8), rate=0.5, seed=1, exact=True)
    counts = np.bincount(result.images[result.is_replaced].ravel(), minlength=256)
    expected = 100 * 3 * 32 * 32 / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 150 < chi_square < 380  # 255 degrees of freedom, both tails beyond 1e-6


def test_one_seed_gives_the_same_bytes_everywhere():
    images = np.zeros((20, 1, 3, 3), dtype=np.uint8)
    replaced = open_set(images, rate=0.5, seed=1).images
    digest = hashlib.sha256(replaced.tobytes()).hexdigest()
    assert digest == "1730ddc7b8e92305e4366e45084a2f7536fcf8b237055e3342ee903434ef03bb"


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 3, 4, 4)), "uint8 array, got float64"),
        ([[0]], "uint8 array, got list"),
        (np.zeros((2, 4, 4), np.uint8), "shape"),
        (np.zeros((0, 3, 4, 4), np.uint8), "shape"),
    ],
)
def test_bad_images_are_refused(images, message):
    with pytest.raises(ArgumentError, match=f"images must .*{message}"):
        open_set(images, rate=0.3, seed=1)
    with pytest.raises(ArgumentError, match=f"outside must .*{message}"):
        open_set(IMAGES, rate=0.3, seed=1, outside=images)


def test_outside_images_of_another_size_are_refused():
    with pytest.raises(ArgumentError, match=r"size \(3, 4, 4\), got \(3, 4, 5\)"):
        open_set(IMAGES, rate=0.3, seed=1, outside=np.zeros((2, 3, 4, 5), np.uint8))


@pytest.mark.parametrize("rate", [-1e-9, 1.0])
def test_rates_outside_are_refused(rate):
    with pytest.raises(ArgumentError, match=r"rate must be in \[0, 1\)"):
        open_set(IMAGES, rate=rate, seed=1)
