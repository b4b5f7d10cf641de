"""Clothing1M on a small tree of the official layout."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from imae.cli.app import main
from imae.data.sources.photo_sets import (
    CLASSES,
    clothing1m,
    locate_clothing1m,
    verify_clothing1m,
)
from imae.errors import ArgumentError, DataError

LISTS = {
    "noisy_train_key_list.txt": ["images/0/00/1,2.jpg", "images/0/01/3.jpg", "images/9/99/4.jpg"],
    "clean_train_key_list.txt": ["images/1/10/5.jpg", "images/1/11/6.jpg"],
    "clean_val_key_list.txt": ["images/2/20/7.jpg"],
    "clean_test_key_list.txt": ["images/3/30/8.jpg"],
    "noisy_label_kv.txt": [
        "images/0/00/1,2.jpg 13",
        "images/0/01/3.jpg 0",
        "images/9/99/4.jpg 5",
        "images/1/11/6.jpg 2",
    ],
    "clean_label_kv.txt": [
        "images/1/10/5.jpg 1",
        "images/1/11/6.jpg 3",
        "images/2/20/7.jpg 4",
        "images/3/30/8.jpg 6",
    ],
}


@pytest.fixture(params=["clothing1m", "clothing1m/annotations", ".", "annotations"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A root with the set: lists beside the images, or in the folder of annotations."""
    lists = tmp_path / request.param
    lists.mkdir(parents=True, exist_ok=True)
    for name, lines in LISTS.items():
        (lists / name).write_text("\n".join(lines) + "\n")
    base = tmp_path / request.param.removesuffix("annotations")
    for name, keys in LISTS.items():
        for key in keys if "key_list" in name else ():
            (base / key).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 30), (int(key[-5]) * 20, 0, 0)).save(base / key)
    return tmp_path


def lists_of(folder: Path) -> Path:
    return next(folder.rglob("noisy_label_kv.txt")).parent


def test_the_command_does_not_call_it_the_published_set(folder: Path, capsys) -> None:
    assert main(["data", "verify", "clothing1m", "--root", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "clothing1m is complete"


def test_noisy_training_and_clean_evaluation(folder: Path) -> None:
    data = clothing1m(folder)
    assert data.num_classes == 14
    assert data.train.row_ids.tolist() == LISTS["noisy_train_key_list.txt"]
    assert data.train.labels.tolist() == [13, 0, 5]
    assert data.train.clean_labels is None
    assert data.validation is not None
    assert data.test is not None
    assert data.validation.labels.tolist() == [4]
    assert data.test.labels.tolist() == [6]


def test_photos_are_decoded_when_asked_for(folder: Path) -> None:
    batch = clothing1m(folder).train.inputs.batch(np.array([2, 0]), generator=None)
    assert batch.shape == (2, 3, 227, 227)
    assert batch[0, 0].mean() > batch[1, 0].mean()  # photo 4 is redder than photo 2


def test_clean_rows(folder: Path) -> None:
    data = clothing1m(folder, variant="clean")
    assert data.train.row_ids.tolist() == LISTS["clean_train_key_list.txt"]
    assert data.train.labels.tolist() == [1, 3]


def test_rows_with_both_labels(folder: Path) -> None:
    train = clothing1m(folder, variant="both").train
    assert train.row_ids.tolist() == ["images/1/11/6.jpg"]
    assert train.labels.tolist() == [2]
    assert train.clean_labels is not None
    assert train.clean_labels.tolist() == [3]


def test_class_names() -> None:
    assert len(set(CLASSES)) == 14


def test_verify_finds_missing_photos(folder: Path) -> None:
    assert verify_clothing1m(folder).keys() == {"train", "validation", "test"}
    next(folder.rglob("3.jpg")).unlink()
    with pytest.raises(DataError, match=r"1 of 3 images are missing, .* images/0/01/3\.jpg"):
        verify_clothing1m(folder)


def test_verify_sees_labels(folder: Path) -> None:
    before = verify_clothing1m(folder)
    path = lists_of(folder) / "noisy_label_kv.txt"
    path.write_text(path.read_text().replace(" 13", " 12"))
    after = verify_clothing1m(folder)
    assert after["train"] != before["train"]
    assert after["test"] == before["test"]


@pytest.mark.parametrize("label", ["14", "-1", "x", "1.0", "", "999999999999"])
def test_bad_label(folder: Path, label: str) -> None:
    path = lists_of(folder) / "noisy_label_kv.txt"
    path.write_text(path.read_text().replace(" 13", f" {label}"))
    with pytest.raises(DataError, match=r"noisy_label_kv\.txt: line 1: .*label from 0 to 13"):
        clothing1m(folder)


def test_photo_without_a_label(folder: Path) -> None:
    path = lists_of(folder) / "clean_label_kv.txt"
    path.write_text("\n".join(LISTS["clean_label_kv.txt"][:-1]))
    with pytest.raises(DataError, match=r"test_key_list\.txt: images/3/30/8\.jpg has no label"):
        clothing1m(folder)


def test_photo_outside_the_folder(folder: Path) -> None:
    path = lists_of(folder) / "noisy_train_key_list.txt"
    path.write_text("images/../../secret.jpg\n")
    with pytest.raises(DataError, match=r"line 1: .* is outside the folder"):
        clothing1m(folder)


def test_photo_that_appears_twice(folder: Path) -> None:
    path = lists_of(folder) / "noisy_train_key_list.txt"
    path.write_text("images/0/01/3.jpg\n" * 2)
    with pytest.raises(DataError, match="appears 2 times"):
        clothing1m(folder)


def test_missing_list(folder: Path) -> None:
    (lists_of(folder) / "clean_val_key_list.txt").unlink()
    with pytest.raises(DataError, match=r"clean_val_key_list\.txt: no such list"):
        clothing1m(folder)


def test_no_photo_with_both_labels(folder: Path) -> None:
    path = lists_of(folder) / "clean_train_key_list.txt"
    path.write_text("images/1/10/5.jpg\n")
    with pytest.raises(DataError, match="no photo has both"):
        clothing1m(folder, variant="both")


def test_not_there(tmp_path: Path) -> None:
    assert locate_clothing1m(tmp_path) is None
    with pytest.raises(DataError, match=r"clothing1m is not in .*: ask its authors"):
        clothing1m(tmp_path)


def test_unknown_variant(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="variant must be one of noisy, clean, both"):
        clothing1m(tmp_path, variant="dirty")
