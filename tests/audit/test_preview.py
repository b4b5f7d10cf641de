"""What is shown of a row, by kind of data."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from imae.audit.cards import previews_of
from imae.errors import DataError


def opened(preview):
    kind, _, content = preview.picture.partition(";base64,")
    content = base64.b64decode(content, validate=True)
    return kind, content, Image.open(io.BytesIO(content))


@pytest.fixture
def photos(tmp_path):
    generator = np.random.Generator(np.random.PCG64(1))
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = generator.integers(0, 256, (300, 500, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
    return tmp_path / "photos"


def test_photos_become_small_pictures_of_bounded_size(photos):
    preview = previews_of({"data": {"name": str(photos)}})
    kind, content, image = opened(preview("cat/1.png"))
    assert kind == "data:image/jpeg"
    assert image.size == (224, 134)
    assert len(content) <= 24_000
    assert preview("cat/9.png") is None


def test_a_photo_that_was_damaged_since_is_not_shown(photos):
    preview = previews_of({"data": {"name": str(photos)}})
    (photos / "cat" / "1.png").write_bytes(b"nothing")
    assert preview("cat/1.png") is None
    assert preview("cat/2.png") is not None


def test_tiny_images_keep_their_pixels():
    preview = previews_of({"data": {"name": "digits"}})
    row_id = previewed_id()
    kind, _, image = opened(preview(row_id))
    assert kind == "data:image/png"
    assert image.size == (8, 8)
    assert preview(row_id).is_small


def previewed_id():
    from imae.data import load

    return str(load("digits").train.row_ids[0])


@pytest.mark.parametrize(("column", "expected"), [("row_id,", "r1"), ("", "1")])
def test_texts_are_read_from_the_file_again(tmp_path, column, expected):
    ids = ["r0,", "r1,", "r2,", "r3,"] if column else [""] * 4
    lines = [f"{ids[row]}text {row},{'ab'[row % 2]}" for row in range(4)]
    (tmp_path / "texts.csv").write_text("\n".join([f"{column}text,label", *lines]))
    preview = previews_of({"data": {"name": str(tmp_path / "texts.csv")}})
    assert preview(expected).text == "text 1"


def test_tables_show_the_values_of_the_file(tmp_path):
    lines = [f"{row},{1000 + row * 0.5},{'ab'[row % 2]}" for row in range(6)]
    (tmp_path / "table.csv").write_text("\n".join(["row_id,width,label", *lines]))
    preview = previews_of({"data": {"name": str(tmp_path / "table.csv")}})
    assert preview("3").cells == (("width", "1001.5"),)


def test_settings_without_data_are_refused():
    with pytest.raises(DataError, match="name no data"):
        previews_of({"model": {"name": "mlp"}})
