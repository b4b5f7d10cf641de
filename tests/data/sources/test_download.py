"""Downloads from a real server on this machine that breaks off, lies and refuses."""

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest

from imae.data.sources import download as module
from imae.data.sources.download import RemoteFile, WebOrigin, download
from imae.errors import DataError

CONTENT = bytes(range(256)) * 4_000  # about a megabyte
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def remote(server: Any, sha256: str | None = SHA256, limit: int = len(CONTENT)) -> RemoteFile:
    return RemoteFile(f"{server.url}/set.bin", limit, sha256)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_whole_download(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    path = download(remote(server), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "set.bin"
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["set.bin"]


def test_a_right_file_is_not_fetched_again(server: Any, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(CONTENT)
    download(remote(server), tmp_path)
    assert server.requests == []


def test_a_wrong_file_is_replaced(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    (tmp_path / "set.bin").write_bytes(b"old")
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_breaks_are_resumed_in_one_call(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    server.break_after = [300_000, 0, 200_000]
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [
        None,
        "bytes=300000-",
        "bytes=300000-",
        "bytes=500000-",
    ]


def test_the_next_call_resumes(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    server.break_after = [1_000] * 5
    with pytest.raises(DataError, match=r"broke off after 5000 bytes .* run the command again"):
        download(remote(server), tmp_path)
    assert names(tmp_path) == ["set.bin.part"]
    server.requests.clear()
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("/set.bin", "bytes=5000-")]
    assert names(tmp_path) == ["set.bin"]


def test_a_server_that_cannot_resume_starts_again(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    server.ranges = False
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1_000])
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    (tmp_path / "set.bin.part").write_bytes(b"x" * 1_000)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == ["bytes=1000-", None]


@pytest.mark.parametrize("extra", [0, 5])
def test_a_part_that_is_too_long_is_thrown_away(server: Any, tmp_path: Path, extra: int) -> None:
    server.files["/set.bin"] = CONTENT
    (tmp_path / "set.bin.part").write_bytes(CONTENT + b"x" * extra)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_wrong_hash_leaves_nothing(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT[:-1] + b"x"
    with pytest.raises(DataError, match=r"set\.bin: is not the published file \(sha256 ") as error:
        download(remote(server), tmp_path)
    assert names(tmp_path) == []
    assert "\n" not in str(error.value)


def test_longer_file_is_cut_short(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT * 3
    with pytest.raises(DataError, match=f"has more than {len(CONTENT)} bytes"):
        download(remote(server), tmp_path)
    assert names(tmp_path) == []


def test_empty_file(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = b""
    with pytest.raises(DataError, match="is empty"):
        download(remote(server, sha256=None), tmp_path)
    assert names(tmp_path) == []


def test_without_a_published_hash_the_limit_holds(server: Any, tmp_path: Path) -> None:
    server.files["/set.bin"] = CONTENT
    with pytest.raises(DataError, match="has more than"):
        download(remote(server, sha256=None, limit=len(CONTENT) - 1), tmp_path)
    assert download(remote(server, sha256=None), tmp_path).read_bytes() == CONTENT


def test_missing_file_is_not_asked_for_twice(server: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server says 404 Not Found"):
        download(remote(server), tmp_path)
    assert len(server.requests) == 1
    assert names(tmp_path) == []


def test_nobody_answers(tmp_path: Path) -> None:
    file = RemoteFile("http://127.0.0.1:1/set.bin", 5, SHA256)
    with pytest.raises(DataError, match=r"cannot be reached \(.*refused"):
        download(file, tmp_path)
    assert names(tmp_path) == []


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/set.bin"
        with pytest.raises(DataError, match=r"cannot be reached \(timed out\)"):
            download(RemoteFile(url, 5, SHA256), tmp_path)


def test_interrupt_leaves_the_part_only(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/set.bin"] = CONTENT
    real = module._copy

    def stop(response: Any, output: Any, **keywords: Any) -> None:
        real(response, output, **{**keywords, "limit": 1_000, "total": None})
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_copy", stop)
    with pytest.raises(KeyboardInterrupt):
        download(remote(server), tmp_path)
    assert names(tmp_path) == ["set.bin.part"]
    monkeypatch.undo()
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_web_origin_fetches_all_its_files(server: Any, tmp_path: Path) -> None:
    files = []
    for name in ("a.gz", "b.gz"):
        server.files[f"/{name}"] = name.encode()
        digest = hashlib.sha256(name.encode()).hexdigest()
        files.append(RemoteFile(f"{server.url}/{name}", 10, digest))
    origin = WebOrigin(tuple(files))
    assert origin.fetch(tmp_path) == (tmp_path / "a.gz", tmp_path / "b.gz")
    assert origin.label == server.url.removeprefix("http://")
