import os

import numpy as np
import pytest

from imae.data.assemble import load_image_folder
from imae.data.image_files import check_present
from imae.data.images import drop_unreadable
from imae.data.split import Data
from imae.errors import ArgumentError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def tear(path):
    path.write_bytes(path.read_bytes()[:400])


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_left_out_listed_and_counted(photo_folder, workers):
    data = load_image_folder(photo_folder)
    tear(photo_folder / "cat" / "1.jpg")
    (photo_folder / "dog" / "0.jpg").write_bytes(b"")
    (photo_folder / "dog" / "2.jpg").unlink()
    cleaned = drop_unreadable(data, workers=workers)
    assert [skipped.row_id for skipped in cleaned.skipped] == [
        "cat/1.jpg",
        "dog/0.jpg",
        "dog/2.jpg",
    ]
    reasons = [skipped.reason for skipped in cleaned.skipped]
    assert "cannot be read as an image" in reasons[0]
    assert "0 bytes" in reasons[1]
    assert "No such file" in reasons[2]
    assert cleaned.train.row_ids.tolist() == ["cat/0.jpg", "cat/2.jpg", "dog/1.jpg", "dog/3.jpg"]
    assert cleaned.train.labels.tolist() == [0, 0, 1, 1]
    assert cleaned.train.inputs.batch(np.arange(4), generator=None).shape[0] == 4


def test_readable_images_and_other_inputs_stay(photo_folder, table_split):
    data = load_image_folder(photo_folder)
    assert drop_unreadable(data).train is data.train
    table = Data("t", table_split([0, 1]))
    assert drop_unreadable(table).train is table.train
    check_present(table)


def test_a_pipe_is_not_waited_for(photo_folder):
    data = load_image_folder(photo_folder)
    (photo_folder / "cat" / "0.jpg").unlink()
    os.mkfifo(photo_folder / "cat" / "0.jpg")
    assert "not a regular file" in drop_unreadable(data).skipped[0].reason
    with pytest.raises(DataError, match="not a regular file"):
        check_present(data)


def test_a_class_that_is_lost_is_named(photo_folder):
    data = load_image_folder(photo_folder)
    for path in (photo_folder / "cat").iterdir():
        tear(path)
    with pytest.raises(DataError, match="no image of class 'cat' can be read"):
        drop_unreadable(data)


def test_a_split_that_is_lost_is_an_error(photo_folder):
    data = load_image_folder(photo_folder)
    for path in photo_folder.glob("*/*.jpg"):
        tear(path)
    with pytest.raises(DataError, match="pets: no image can be read; the first: "):
        drop_unreadable(data)


def test_missing_images_are_counted_at_once(photo_folder):
    data = load_image_folder(photo_folder)
    check_present(data)
    for name in ("cat/2.jpg", "dog/0.jpg", "dog/1.jpg"):
        (photo_folder / name).unlink()
    with pytest.raises(DataError, match=r"row 'cat/2\.jpg': .* \(and 2 more rows\)"):
        check_present(data)


def test_the_number_of_workers_is_checked(photo_folder):
    data = load_image_folder(photo_folder)
    with pytest.raises(ArgumentError, match="workers must be at least 0, got -1"):
        drop_unreadable(data, workers=-1)
