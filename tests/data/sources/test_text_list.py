from pathlib import Path

import pytest

from imae.data.sources.image_set import check_files, check_relative, read_lines, read_names
from imae.errors import DataError


@pytest.mark.parametrize(
    "data",
    [b"a/1.jpg\nb.jpg\n", b"a/1.jpg\r\nb.jpg\r\n", b"\xef\xbb\xbfa/1.jpg\n\nb.jpg"],
    ids=["plain", "CRLF", "BOM and an empty line"],
)
def test_names(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(data)
    assert read_names(tmp_path / "list.txt") == ["a/1.jpg", "b.jpg"]


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a 1\n\nb 2\n")
    assert read_lines(tmp_path / "list.txt") == ["a 1", "", "b 2", ""]


@pytest.mark.parametrize("data", [b"", b"\n\n"])
def test_empty_list(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(data)
    with pytest.raises(DataError, match=r"list\.txt: the list is empty"):
        read_names(tmp_path / "list.txt")


def test_missing_list_and_binary_list(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"list\.txt: no such list"):
        read_names(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_bytes(b"ab\xff\xd8")
    with pytest.raises(DataError, match=r"list\.txt: not a text file \(byte 2\)"):
        read_names(tmp_path / "list.txt")


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x.jpg", "a/../../x.jpg", "..", "\\x.jpg", "C:\\x.jpg", "a\\..\\x", "a\0b"],
)
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is outside the folder"):
        check_relative(name, "f")
    (tmp_path / "list.txt").write_text(f"a.jpg\n{name}\n")
    with pytest.raises(DataError, match=r"list\.txt: line 2: "):
        read_names(tmp_path / "list.txt")


@pytest.mark.parametrize("name", ["a..b.jpg", "images/0/00/1,2.jpg", "...", "ü/🙂.jpg"])
def test_names_that_stay(name: str) -> None:
    check_relative(name, "f")


def test_check_files(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    check_files(tmp_path, ["a.jpg"])
    with pytest.raises(DataError, match=r"2 of 3 images are missing, the first is b\.jpg"):
        check_files(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
