import os
import shutil

import numpy as np
import pytest

from imae.data.assemble import load_image_folder
from imae.errors import DataError


def test_class_folders_become_labels(photo_folder):
    data = load_image_folder(photo_folder, resize=20, crop=16)
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert data.train.row_ids.tolist()[:4] == ["cat/0.jpg", "cat/1.jpg", "cat/2.jpg", "dog/0.jpg"]
    assert data.train.inputs.batch(np.arange(7), generator=None).shape == (7, 3, 16, 16)
    assert data.test is None


def test_split_folders_become_splits(photo_folder, tmp_path):
    root = tmp_path / "all"
    for split in ("train", "val", "test"):
        shutil.copytree(photo_folder, root / split)
    data = load_image_folder(root)
    assert {name: len(split) for name, split in data.splits().items()} == {
        "train": 7,
        "validation": 7,
        "test": 7,
    }
    assert data.test.row_ids[0] == "test/cat/0.jpg"
    assert data.class_names == ("cat", "dog")


def test_train_may_be_the_name_of_a_class(photo_folder):
    (photo_folder / "dog").rename(photo_folder / "train")
    assert load_image_folder(photo_folder).class_names == ("cat", "train")


def test_what_is_no_image_is_left_out(photo_folder, photo):
    (photo_folder / "cat" / "notes.txt").write_text("x")
    (photo_folder / "cat" / ".hidden.jpg").write_bytes(b"x")
    (photo_folder / ".git").mkdir()
    (photo_folder / "README.md").write_text("x")
    photo(photo_folder / "cat" / "deep" / "7.PNG".lower())
    photo(photo_folder / "cat" / ".thumbs" / "8.jpg")
    data = load_image_folder(photo_folder)
    assert len(data.train) == 8
    assert "cat/deep/7.png" in data.train.row_ids


def test_suffixes_count_in_any_case(photo_folder):
    path = photo_folder / "cat" / "0.jpg"
    path.rename(path.with_name("0.JPG"))
    assert "cat/0.JPG" in load_image_folder(photo_folder).train.row_ids


def test_links_may_lead_out_if_the_root_allows(photo_folder, tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "links" / label).mkdir(parents=True)
        link = tmp_path / "links" / label / "a.jpg"
        link.symlink_to(photo_folder / label / "0.jpg")
    with pytest.raises(DataError, match="points outside"):
        load_image_folder(tmp_path / "links")
    data = load_image_folder(tmp_path / "links", root=tmp_path)
    assert data.train.row_ids.tolist() == ["cat/a.jpg", "dog/a.jpg"]
    assert data.train.inputs.names == ("pets/cat/0.jpg", "pets/dog/0.jpg")


def test_an_empty_class_folder_is_named(photo_folder):
    (photo_folder / "owl").mkdir()
    with pytest.raises(
        DataError, match=r"owl: class folder holds no image; each folder in .*pets must be a class"
    ):
        load_image_folder(photo_folder)


def test_a_class_never_seen_in_training_is_named(photo_folder, tmp_path, photo):
    root = tmp_path / "all"
    shutil.copytree(photo_folder, root / "train")
    photo(root / "test" / "owl" / "0.jpg")
    with pytest.raises(DataError, match=r"row 'test/owl/0\.jpg': label 'owl' was never seen"):
        load_image_folder(root)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ([], "holds no class folders"),
        (["test/a", "val/a"], "none called train"),
        (["train"], "train: holds no class folders"),
    ],
)
def test_folders_that_are_not_laid_out_so_are_refused(tmp_path, folders, message):
    root = tmp_path / "all"
    root.mkdir()
    for folder in folders:
        (root / folder).mkdir(parents=True)
    with pytest.raises(DataError, match=message):
        load_image_folder(root)


def test_one_class_alone_is_refused(photo_folder):
    shutil.rmtree(photo_folder / "dog")
    with pytest.raises(DataError, match="'cat' is the only class"):
        load_image_folder(photo_folder)


@pytest.mark.parametrize("other", ["test", "val"])
def test_split_folders_beside_others_are_not_taken_for_classes(photo_folder, tmp_path, other):
    for name in ("train", other, "unlabelled"):
        shutil.copytree(photo_folder, tmp_path / "all" / name)
    with pytest.raises(DataError, match=r"all: has .*train.* and also unlabelled; move"):
        load_image_folder(tmp_path / "all")


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_left_out(photo_folder, monkeypatch):
    (photo_folder / "cat" / "deep").mkdir()
    scan = os.scandir

    def refusing(path):
        if os.fspath(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DataError, match=r"cat/deep: cannot be listed \(Permission denied\)"):
        load_image_folder(photo_folder)
    with pytest.raises(DataError, match=r"cat/deep: cannot be listed"):
        load_image_folder(photo_folder / "cat" / "deep")
