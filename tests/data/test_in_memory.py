import numpy as np
import pytest
from PIL import Image

from imae.data.assemble import load_image_folder
from imae.data.images import ArrayImages, read_into_memory
from imae.data.split import Data
from imae.errors import ArgumentError, DataError


@pytest.fixture
def tiles(tmp_path, photo):
    for split in ("train", "test"):
        for label in ("a", "b"):
            for index in range(2):
                photo(tmp_path / split / label / f"{index}.png", width=9, height=7, seed=index)
    return tmp_path


def test_images_keep_their_own_size_and_pixels(tiles):
    data = read_into_memory(load_image_folder(tiles, flip=False))
    images = data.test.inputs
    assert isinstance(images, ArrayImages)
    assert images.shape == (3, 7, 9)
    assert not images.flip
    written = np.asarray(Image.open(tiles / "test" / "b" / "1.png"))
    assert np.array_equal(images.pixels[3], written.transpose(2, 0, 1))
    assert data.test.row_ids[3] == "test/b/1.png"


@pytest.mark.parametrize("split", ["train", "test"])
def test_another_size_in_any_split_is_named(tiles, photo, split):
    photo(tiles / split / "b" / "1.png", width=7, height=9)
    with pytest.raises(DataError, match=r"b/1\.png: is 7 x 9, others are 9 x 7"):
        read_into_memory(load_image_folder(tiles))


def test_other_inputs_are_refused(table_split):
    with pytest.raises(ArgumentError, match="in_memory is for images in files"):
        read_into_memory(Data("t", table_split([0, 1])))
