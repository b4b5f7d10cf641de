import os
from pathlib import Path

import pytest

from imae.data.image_files import confined_names
from imae.errors import DataError


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.jpg").touch()
    (tmp_path / "outside.jpg").touch()
    (tmp_path / "root-beside").mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("deep/a.jpg", "deep/a.jpg"),
        ("./deep//a.jpg", "deep/a.jpg"),
        ("deep/../deep/a.jpg", "deep/a.jpg"),
        ("absent.jpg", "absent.jpg"),
        ("..a.jpg", "..a.jpg"),
        ("größe 🐈.jpg", "größe 🐈.jpg"),
    ],
)
def test_names_inside_are_tidied(root, name, found):
    assert confined_names(root, [name], source="x.csv") == (found,)


def test_an_absolute_name_inside_is_fine(root):
    assert confined_names(root, [str(root / "deep/a.jpg")], source="x.csv") == ("deep/a.jpg",)


def test_a_link_inside_is_followed(root):
    (root / "link.jpg").symlink_to("deep/a.jpg")
    (root / "folder").symlink_to("deep")
    found = confined_names(root, ["link.jpg", "folder/a.jpg"], source="x.csv")
    assert found == ("deep/a.jpg", "deep/a.jpg")


def test_the_root_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert confined_names(tmp_path / "alias", ["deep/a.jpg"], source="x") == ("deep/a.jpg",)


@pytest.mark.parametrize(
    "name",
    [
        "../outside.jpg",
        "deep/../../outside.jpg",
        "..",
        ".",
        "deep/..",
        "/etc/passwd",
        "../root-beside/a.jpg",
    ],
)
def test_names_that_leave_are_refused(root, name):
    with pytest.raises(DataError, match=r"x\.csv: row 1 \(counted from 0\) points outside"):
        confined_names(root, ["deep/a.jpg", name], source="x.csv")


def test_links_that_leave_are_refused(root, tmp_path):
    (root / "file.jpg").symlink_to(tmp_path / "outside.jpg")
    (root / "up").symlink_to(tmp_path)
    (root / "chain.jpg").symlink_to("file.jpg")
    for name in ("file.jpg", "up/outside.jpg", "chain.jpg", "up/absent.jpg"):
        with pytest.raises(DataError, match="points outside"):
            confined_names(root, [name], source="x.csv")


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_names_that_are_none_are_refused(root, name):
    with pytest.raises(DataError, match=r"row 0 .* has no usable path"):
        confined_names(root, [name], source="x.csv")


def test_the_root_of_everything_holds_everything(root):
    name = os.path.realpath(root / "deep/a.jpg")
    assert confined_names(Path("/"), [name], source="x") == (name[1:],)
