"""Archives, the hostile ones too: nothing is written anywhere, each fault is one line."""

import gzip
import io
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from imae.data.sources import archive as archive_module
from imae.data.sources.archive import read_archive, read_tar
from imae.data.sources.digits import gunzip
from imae.errors import DataError

WANTED = {"set/a.bin": 1_000, "set/b.bin": 1_000}


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(data))


def good(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", b"first")
    add(archive, "set/b.bin", b"second")


def write(path: Path, fill: Callable[[tarfile.TarFile], None], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        fill(archive)
    return path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_reads_wanted_members_only(tmp_path: Path, mode: str) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        add(archive, "readme.html", b"text")
        good(archive)

    path = write(tmp_path / "set.tar", fill, mode)
    assert read_archive(path, WANTED) == {"set/a.bin": b"first", "set/b.bin": b"second"}


def test_leading_dot_of_debian_packages_is_the_same_name(tmp_path: Path) -> None:
    path = write(tmp_path / "set.tar", lambda archive: add(archive, "./set/a.bin", b"x"))
    assert read_archive(path, {"set/a.bin": 1}) == {"set/a.bin": b"x"}


def test_size_limit_is_inclusive(tmp_path: Path) -> None:
    path = write(tmp_path / "set.tar", lambda archive: add(archive, "set/a.bin", b"12345"))
    assert read_archive(path, {"set/a.bin": 5}) == {"set/a.bin": b"12345"}
    with pytest.raises(DataError, match="5 bytes, limit 4"):
        read_archive(path, {"set/a.bin": 4})


def symbolic_link(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    add(archive, "set/b.bin", b"second")


def hard_link(archive: tarfile.TarFile) -> None:
    add(archive, "set/b.bin", b"second")
    add(archive, "set/a.bin", type=tarfile.LNKTYPE, linkname="set/b.bin")


def device(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", type=tarfile.CHRTYPE, devmajor=1, devminor=5)


def pipe(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", type=tarfile.FIFOTYPE)


def folder(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", type=tarfile.DIRTYPE)


def twice(archive: tarfile.TarFile) -> None:
    good(archive)
    add(archive, "set/a.bin", b"other")


def many_members(archive: tarfile.TarFile) -> None:
    for number in range(1_001):
        add(archive, f"other/{number}")
    good(archive)


def bomb_in_a_wanted_member(archive: tarfile.TarFile) -> None:
    add(archive, "set/a.bin", bytes(2_000_000))


def bomb_beside_the_members(archive: tarfile.TarFile) -> None:
    add(archive, "other.bin", bytes(70 << 20))
    good(archive)


def bomb_in_a_header(archive: tarfile.TarFile) -> None:
    add(archive, "pax", b"9" * (5 << 20), type=tarfile.XHDTYPE)
    good(archive)


def nothing(archive: tarfile.TarFile) -> None:
    add(archive, "other.bin", b"x")


HOSTILE = [
    (symbolic_link, "set/a.bin is not a regular file"),
    (hard_link, "set/a.bin is not a regular file"),
    (device, "set/a.bin is not a regular file"),
    (pipe, "set/a.bin is not a regular file"),
    (folder, "set/a.bin is not a regular file"),
    (twice, "set/a.bin appears twice"),
    (many_members, "more than 1000 members"),
    (bomb_in_a_wanted_member, "2000000 bytes, limit 1000"),
    (bomb_beside_the_members, "more than the data set can hold"),
    (bomb_in_a_header, "more than the data set can hold"),
    (nothing, "no member set/a.bin"),
]


@pytest.mark.parametrize(("fill", "reason"), HOSTILE, ids=[fill.__name__ for fill, _ in HOSTILE])
def test_hostile_archive_is_one_line_and_writes_nothing(
    tmp_path: Path,
    fill: Callable[[tarfile.TarFile], None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fill is bomb_in_a_header:  # the bomb beside the members is larger than the real limit
        monkeypatch.setattr(archive_module, "_OTHER_BYTES", 4 << 20)
    path = write(tmp_path / "set.tar.gz", fill)
    tracemalloc.start()
    with pytest.raises(DataError, match=reason) as error:
        read_archive(path, WANTED)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.tar.gz"]
    assert peak < 300 << 20


# Names and links that lead an extractor out of its folder have nothing to lead here.
OUTSIDE = {
    "absolute": [("/imae-outside", tarfile.REGTYPE, "")],
    "parent": [("../imae-outside", tarfile.REGTYPE, "")],
    "deep parent": [("set/../../imae-outside", tarfile.REGTYPE, "")],
    "link, then through it": [
        ("set/link", tarfile.SYMTYPE, "../.."),
        ("set/link/imae-outside", tarfile.REGTYPE, ""),
    ],
    "hard link to a file outside": [("set/link", tarfile.LNKTYPE, "../imae-outside")],
    # The chain of CVE-2025-4517: a path too long to resolve, then a link through it.
    "long path": [
        *(("/".join(["d" * 247] * depth), tarfile.DIRTYPE, "") for depth in range(1, 17)),
        ("/".join(["d" * 247] * 16 + ["l" * 254]), tarfile.SYMTYPE, "../" * 16),
        ("escape", tarfile.SYMTYPE, "/".join(["d" * 247] * 16 + ["l" * 254]) + "/../.."),
        ("escape/imae-outside", tarfile.REGTYPE, ""),
    ],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=OUTSIDE)
def test_members_that_lead_outside_are_passed_over(
    tmp_path: Path, members: list[tuple[str, bytes, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        for name, kind, link in members:
            add(archive, name, b"x" if kind == tarfile.REGTYPE else b"", type=kind, linkname=link)
        good(archive)

    path = write(tmp_path / "set.tar.gz", fill)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert read_archive(path, WANTED)["set/a.bin"] == b"first"
    assert list(here.iterdir()) == []
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["here", "set.tar.gz"]
    assert not os.path.lexists("/imae-outside")


@pytest.mark.parametrize("kept", [0, 1, 10, 60, 100])
def test_cut_off_archive(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "set.tar.gz", good)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"set\.tar\.gz: the archive"):
        read_archive(path, WANTED)


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = write(tmp_path / "set.tar.gz", good)
    data = bytearray(path.read_bytes())
    refused = 0
    for at in range(10, len(data)):  # the first ten bytes hold the time and the system
        changed = bytearray(data)
        changed[at] ^= 0x55
        path.write_bytes(changed)
        try:
            assert read_archive(path, WANTED)["set/a.bin"] == b"first"
        except DataError:
            refused += 1
    assert refused > len(data) // 2


def test_text_is_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "set.tar.gz"
    path.write_text("<html>sign in</html>" * 100)
    with pytest.raises(DataError, match="cut off or damaged"):
        read_archive(path, WANTED)


def test_read_tar_takes_any_stream() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        good(archive)
    file.seek(0)
    assert read_tar(file, {"set/b.bin": 6}, source="pipe") == {"set/b.bin": b"second"}


def test_gunzip() -> None:
    packed = gzip.compress(b"12345")
    assert gunzip(packed, limit=5, source="f") == b"12345"
    with pytest.raises(DataError, match="f: unpacks to more than 4 bytes"):
        gunzip(packed, limit=4, source="f")
    with pytest.raises(DataError, match="f: the gzip file is cut off"):
        gunzip(packed[:-3], limit=5, source="f")
    with pytest.raises(DataError, match="f: damaged gzip file"):
        gunzip(b"\x1f\x8bnot really", limit=5, source="f")


def test_gunzip_does_not_set_a_bomb_off() -> None:
    packed = gzip.compress(bytes(50 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="more than 1000 bytes"):
        gunzip(packed, limit=1_000, source="f")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
