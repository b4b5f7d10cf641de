import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from imae._draws import row_draws, torch_generator
from imae.data.image_files import normalise
from imae.data.images import channel_statistics
from imae.errors import ArgumentError, DataError

ROWS = np.array([5, 31, 0, 17, 39, 8])


def key() -> torch.Generator:
    return torch_generator(1, "augment", 0)


def test_evaluation_is_the_plain_normalised_image(images):
    batch = images.batch(ROWS, generator=None)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (images.mean, images.std))
    for index, row in enumerate(ROWS):
        plain = (torch.from_numpy(images.pixels[row]).float() / 255 - mean) / std
        torch.testing.assert_close(batch[index], plain)
    assert batch.dtype == torch.float32
    assert batch.is_contiguous()


def test_augmentation_equals_a_slow_loop_over_images(images):
    top, left, mirror = row_draws(ROWS, (5, 5, 2), generator=key())
    batch = images.gather(ROWS, generator=key())
    for index, row in enumerate(ROWS):
        padded = np.pad(images.pixels[row], ((0, 0), (2, 2), (2, 2)))
        crop = padded[:, top[index] : top[index] + 6, left[index] : left[index] + 5]
        crop = crop[:, :, ::-1] if mirror[index] else crop
        assert np.array_equal(batch[index].numpy(), crop)
    assert 0 < mirror.sum() < len(ROWS)


def test_every_image_has_its_own_crop(images):
    same = replace(images, pixels=np.repeat(images.pixels[:1], 40, axis=0))
    batch = same.gather(np.arange(40), generator=key()).numpy()
    assert len({image.tobytes() for image in batch}) > 20


def test_all_crops_and_both_mirrors_occur(images):
    one = replace(images, pixels=np.repeat(images.pixels[:1], 2000, axis=0))
    batch = one.gather(np.arange(2000), generator=key()).numpy()
    assert len({image.tobytes() for image in batch}) == 5 * 5 * 2


def test_a_share_of_a_batch_is_a_share_of_the_same_batch(images):
    whole = images.batch(ROWS, generator=key())
    halves = [images.batch(part, generator=key()) for part in (ROWS[:2], ROWS[2:])]
    assert torch.equal(whole, torch.cat(halves))


def test_switched_off_augmentation_is_the_plain_image(images):
    still = replace(images, pad=0, flip=False)
    assert torch.equal(still.batch(ROWS, generator=key()), still.batch(ROWS, generator=None))


def test_the_stored_pixels_are_never_changed(images):
    before = images.pixels.copy()
    images.batch(np.arange(40), generator=key()).zero_()
    replace(images, pad=0).batch(np.arange(40), generator=key())
    assert np.array_equal(images.pixels, before)


def test_the_same_seed_gives_the_same_bytes_for_ever(images):
    batch = images.batch(ROWS, generator=key()).numpy()
    assert hashlib.sha256(batch.tobytes()).hexdigest()[:16] == GOLDEN


GOLDEN = "4a4724c1130746ea"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pixels": np.zeros((2, 3, 4, 4), np.float32)}, DataError, "must be uint8"),
        ({"pixels": np.zeros((2, 4, 4), np.uint8)}, DataError, "shape"),
        ({"mean": (0.5,)}, DataError, "3 channels need as many"),
        ({"std": (0.5, 0.5)}, DataError, "3 channels need as many"),
        ({"std": (0.5, 0.0, 0.5)}, DataError, "positive"),
        ({"pad": -1}, ArgumentError, "pad must be at least 0"),
    ],
)
def test_refuses(images, change, error, message):
    with pytest.raises(error, match=message):
        replace(images, **change)


def test_take_and_content_hash(images):
    assert images.take(ROWS).pixels.tolist() == images.pixels[ROWS].tolist()
    hashes = [
        images.content_hash(),
        images.take(ROWS).content_hash(),
        replace(images, mean=(0.1, 0.1, 0.1)).content_hash(),
    ]
    assert len(set(hashes)) == 3
    # Augmentation is no part of what evaluation sees.
    assert replace(images, pad=0, flip=False).content_hash() == hashes[0]
    assert images.shape == (3, 6, 5)


def test_normalise_takes_any_memory_layout(images):
    pixels = torch.from_numpy(images.pixels[:4])
    strided = pixels.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(
        normalise(strided, images.mean, images.std), normalise(pixels, images.mean, images.std)
    )


def test_channel_statistics_equal_numpys(images):
    mean, std = channel_statistics(images.pixels)
    scaled = images.pixels / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)))
    assert std == pytest.approx(scaled.std((0, 2, 3)))


def test_a_flat_channel_has_deviation_one():
    assert channel_statistics(np.full((2, 1, 3, 3), 255, np.uint8)) == ((1.0,), (1.0,))
