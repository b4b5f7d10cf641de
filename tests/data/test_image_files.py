from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from imae._draws import row_draws, torch_generator
from imae.data import image_files
from imae.data.image_files import ImageFiles, decode, normalise
from imae.errors import ArgumentError, DataError

NAMES = ("cat/0.jpg", "dog/0.jpg", "dog/3.jpg")


def key() -> torch.Generator:
    return torch_generator(1, "augment", 0)


def small(folder: Path) -> ImageFiles:
    return ImageFiles(folder, NAMES, resize=32, crop=28)


def warped(path: Path) -> np.ndarray:
    image = Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    return np.asarray(image).astype(int)


def test_evaluation_is_the_centre_of_the_warped_image(photo_folder):
    batch = small(photo_folder).gather(np.arange(3), generator=None).numpy().astype(int)
    for index, name in enumerate(NAMES):
        # Pillow adds up in whole numbers, so the last digit may differ.
        assert np.abs(batch[index] - warped(photo_folder / name)[2:30, 2:30]).max() <= 1


def test_training_crops_and_mirrors_each_image_its_own_way(photo_folder):
    rows = np.array([2, 0, 1])
    top, left, mirror = row_draws(rows, (5, 5, 2), generator=key())
    batch = small(photo_folder).gather(rows, generator=key()).numpy().astype(int)
    for index, row in enumerate(rows):
        whole = warped(photo_folder / NAMES[row])
        crop = whole[top[index] : top[index] + 28, left[index] : left[index] + 28]
        crop = crop[:, ::-1] if mirror[index] else crop
        assert np.abs(batch[index] - crop).max() <= 1
    assert 0 < mirror.sum() < 3


def test_a_share_of_a_batch_is_a_share_of_the_same_batch(photo_folder):
    files = small(photo_folder)
    whole = files.batch(np.arange(3), generator=key())
    parts = [files.batch(np.array([row]), generator=key()) for row in range(3)]
    assert torch.equal(whole, torch.cat(parts))


def test_batch_is_float_and_channels_first(photo_folder):
    files = small(photo_folder)
    batch = files.batch(np.arange(3), generator=None)
    gathered = files.gather(np.arange(3), generator=None)
    assert batch.shape == (3, *files.shape) == (3, 3, 28, 28)
    assert torch.equal(batch, normalise(gathered.permute(0, 3, 1, 2), files.mean, files.std))


def test_the_papers_sizes_are_the_default(photo_folder):
    files = ImageFiles(photo_folder, NAMES)
    assert (files.resize, files.shape) == (256, (3, 227, 227))


def test_no_mirror_when_it_is_switched_off(photo_folder):
    files = replace(small(photo_folder), crop=32, flip=False)
    assert torch.equal(
        files.batch(np.arange(3), generator=key()), files.batch(np.arange(3), generator=None)
    )


@pytest.mark.parametrize(("crop", "allowed"), [(0, False), (1, True), (32, True), (33, False)])
def test_crop_is_at_most_resize(crop, allowed):
    if allowed:
        assert ImageFiles(Path(), (), resize=32, crop=crop).shape == (3, crop, crop)
    else:
        with pytest.raises(ArgumentError, match="crop must be"):
            ImageFiles(Path(), (), resize=32, crop=crop)


def test_content_hash_sees_bytes_order_and_preparation(photo_folder, photo):
    files = small(photo_folder)
    hashes = [
        files.content_hash(),
        files.take(np.array([2, 0, 1])).content_hash(),
        replace(files, crop=27).content_hash(),
    ]
    photo(photo_folder / NAMES[0], seed=99)
    assert len({*hashes, files.content_hash()}) == 4


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    Image.new(mode, (8, 6)).save(path)
    assert decode(path).mode == "RGB"


def test_a_palette_with_transparency_raises_no_warning(tmp_path):
    image = Image.new("P", (8, 6))
    image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(tmp_path / "x.png", transparency=b"\x00\x80")
    assert decode(tmp_path / "x.png").size == (8, 6)


def test_a_large_jpeg_is_decoded_small_and_looks_the_same(tmp_path, photo):
    path = photo(tmp_path / "large.jpg", width=1200, height=900)
    quick = decode(path, size=64)
    assert quick.width < 1200
    assert min(quick.size) >= 128
    files = ImageFiles(tmp_path, ("large.jpg",), resize=64, crop=64)
    exact = np.asarray(Image.open(path).resize((64, 64), Image.Resampling.BILINEAR)).astype(int)
    got = files.gather(np.array([0]), generator=None)[0].numpy().astype(int)
    assert np.abs(got - exact).mean() < 3


def test_a_truncated_image_is_named(tmp_path, photo):
    path = photo(tmp_path / "torn.jpg")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"torn\.jpg: cannot be read as an image") as caught:
        decode(path)
    assert "\n" not in str(caught.value)


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: no such image"):
        decode(tmp_path / "gone.jpg")


def test_formats_that_start_programs_are_not_read(tmp_path):
    path = tmp_path / "x.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    with pytest.raises(DataError, match="cannot be read as an image"):
        decode(path)


@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.pgm"])
def test_sixteen_bits_keep_their_range(tmp_path, name):
    levels = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    if name == "x.pgm":
        (tmp_path / name).write_bytes(b"P5 16 16 65535\n" + levels.astype(">u2").tobytes())
    else:
        Image.fromarray(levels).save(tmp_path / name)
    image = np.asarray(decode(tmp_path / name))
    assert np.array_equal(image[..., 0], np.arange(256).reshape(16, 16))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_of_no_known_range_are_refused(tmp_path, dtype):
    Image.fromarray(np.ones((4, 4), dtype)).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif: .*unknown range; save it with 8 or 16 bits"):
        decode(tmp_path / "x.tif")


def test_row_keys_are_equal_for_equal_files_and_read_few_of_them(tmp_path, monkeypatch):
    long = b"x" * 5000
    contents = [b"a" + long, b"b" + long, b"a" + long, long + b"aa", b"a" + long[:9], b"", b""]
    names = tuple(f"{number}.jpg" for number in range(len(contents)))
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    read = []
    whole = image_files._file_bytes

    def counted(path, *, last=None):
        read.extend([path.name] if last is None else [])
        return whole(path, last=last)

    monkeypatch.setattr(image_files, "_file_bytes", counted)
    keys = ImageFiles(tmp_path, names).row_keys()
    for one, key_of_one in zip(contents, keys, strict=True):
        for other, key_of_other in zip(contents, keys, strict=True):
            assert (key_of_one == key_of_other) == (one == other)
    assert read == ["0.jpg", "1.jpg", "2.jpg", "5.jpg", "6.jpg"]  # not 3, of the same size


def test_content_hash_names_a_file_that_has_gone(photo_folder):
    files = small(photo_folder)
    (photo_folder / NAMES[1]).unlink()
    with pytest.raises(DataError, match=r"dog/0\.jpg: cannot be read"):
        files.content_hash()


def drawing(mode: str) -> Image.Image:
    """A black square on a transparent ground, in a mode that knows transparency."""
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (2, 2, 6, 6))
    if mode == "P":
        palette = Image.new("P", (8, 8), 0)
        palette.putpalette([0, 0, 0, 0, 0, 0])
        palette.paste(1, (2, 2, 6, 6))
        palette.info["transparency"] = 0
        return palette
    return image.convert(mode)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("RGBA", "png"), ("LA", "png"), ("P", "png"), ("P", "gif"), ("RGBA", "webp")],
)
def test_transparent_pixels_are_white(tmp_path, mode, suffix):
    path = tmp_path / f"drawing.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {}
    drawing(mode).save(path, **options)
    pixels = np.asarray(decode(path))
    assert (pixels[3:5, 3:5] == 0).all()
    assert (pixels[0] == 255).all()


def test_half_transparent_pixels_are_mixed_with_white(tmp_path):
    Image.new("RGBA", (4, 4), (0, 0, 0, 128)).save(tmp_path / "grey.png")
    assert np.abs(np.asarray(decode(tmp_path / "grey.png")).astype(int) - 127).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_as_their_orientation_says(tmp_path, orientation):
    upright = Image.new("RGB", (64, 32))
    upright.paste((255, 255, 255), (0, 0, 32, 16))  # white is in the upper left quarter
    stored = {
        1: [], 2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM], 5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90], 7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }[orientation]  # fmt: skip
    image = upright
    for step in stored:
        image = image.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "photo.jpg", exif=exif, quality=95)
    decoded = np.asarray(decode(tmp_path / "photo.jpg", size=16)).astype(int)
    assert decoded.shape[0] * 2 == decoded.shape[1]
    high, wide = decoded.shape[:2]
    assert decoded[: high // 2 - 2, : wide // 2 - 2].min() > 200
    assert decoded[high // 2 + 2 :].max() < 50


def test_damaged_metadata_does_not_make_a_photo_unreadable(tmp_path):
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (16, 8), (200, 0, 0)).save(path, exif=exif)
    content = path.read_bytes()
    for at in range(content.index(b"Exif"), content.index(b"Exif") + 32):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        assert decode(path).size in {(16, 8), (8, 16)}
