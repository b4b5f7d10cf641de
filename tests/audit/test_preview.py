"""What is shown of a row, by kind of data."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from imae.audit import cards
from imae.audit.cards import Rows
from imae.errors import DataError


def rows_of(name, row_ids, **options):
    return Rows.of_run({"data": {"name": str(name), "options": options}}, row_ids)


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
    preview = rows_of(photos, ["cat/1.png"]).preview
    kind, content, image = opened(preview("cat/1.png"))
    assert kind == "data:image/jpeg"
    assert image.size == (224, 134)
    assert len(content) <= 24_000
    assert preview("cat/9.png") is None


def test_a_photo_that_was_damaged_since_is_not_shown(photos):
    preview = rows_of(photos, ["cat/1.png", "cat/2.png"]).preview
    (photos / "cat" / "1.png").write_bytes(b"nothing")
    assert preview("cat/1.png") is None
    assert preview("cat/2.png") is not None


def test_tiny_images_keep_their_pixels():
    row_id = previewed_id()
    preview = rows_of("digits", [row_id]).preview
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
    rows = rows_of(tmp_path / "texts.csv", [expected])
    assert rows.preview(expected).text == rows.source(expected) == "text 1"


def test_tables_show_the_cells_of_the_file(tmp_path):
    """With ids first, gaps as gaps, and columns that are not trained on."""
    header = "width,when,key,colour,label,note"
    lines = [f"{'' if row == 3 else 1.50},2024-01-0{row},k{row},red,{'ab'[row % 2]},n{row}"
             for row in range(1, 7)]  # fmt: skip
    (tmp_path / "table.csv").write_text("\n".join([header, *lines]))
    rows = rows_of(tmp_path / "table.csv", ["k3", "k4"], id_column="key", drop=["note", "when"])
    assert rows.preview("k3").cells == (
        ("key", "k3"), ("width", ""), ("when", "2024-01-03"), ("colour", "red"), ("note", "n3")
    )  # fmt: skip
    assert dict(rows.preview("k4").cells)["width"] == "1.5"
    assert set(rows.cells) == {"k3", "k4"}  # others would fill memory


def test_a_large_table_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "_CELLS_AT_ONCE", 7)
    monkeypatch.setattr(cards, "_MOST_CELLS", 3)
    lines = [f"{row},{row},{row},{row},{'ab'[row % 2]}" for row in range(6)]
    (tmp_path / "table.csv").write_text("\n".join(["w,x,v,z,label", *lines]))
    rows = rows_of(tmp_path / "table.csv", ["2"])
    expected = (("w", "2"), ("x", "2"), ("v", "2"), ("...", "1 more columns"))
    assert rows.preview("2").cells == expected


def test_a_photo_can_be_enlarged(photos):
    rows = rows_of(photos, ["cat/1.png"])
    image = Image.open(io.BytesIO(rows.picture("cat/1.png")))
    assert image.size == (500, 300)
    assert rows.source("cat/1.png") == str(photos / "cat" / "1.png")
    assert rows.picture("nobody") is None


def test_settings_without_data_are_refused():
    with pytest.raises(DataError, match="name no data"):
        Rows.of_run({"model": {"name": "mlp"}}, [])
