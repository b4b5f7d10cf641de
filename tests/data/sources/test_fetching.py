"""Fetching: origins in order, the hash decides, a failure is one line and leaves nothing."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

from imae.data.sources import catalog as module
from imae.data.sources.catalog import NamedSet, fetch, fetch_set, named_set, verify
from imae.data.sources.cifar import CIFAR10
from imae.data.sources.download import Origin, RemoteFile, WebOrigin
from imae.data.sources.image_set import array_digest
from imae.errors import ArgumentError, DataError

Arrays = dict[str, np.ndarray]


@final
@dataclass(frozen=True)
class Given(Origin):
    """An origin that writes these files, or fails."""

    files: dict[str, bytes] = field(default_factory=dict)
    error: Exception | None = None
    label: str = "given"

    def fetch(self, folder: Path) -> tuple[Path, ...]:
        if self.error is not None:
            raise self.error
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return tuple(folder / name for name in self.files)


def small_set(arrays: Arrays, *origins: Origin) -> NamedSet:
    """CIFAR-10 as if these arrays were the official ones and these the places to get it."""
    images = replace(CIFAR10, digests={name: array_digest(array) for name, array in arrays.items()})
    return replace(
        named_set("cifar10"), locate=images.locate, verify=images.verify, origins=origins
    )


@pytest.fixture
def archive(tmp_path: Path, writers: Any, small_cifar: Arrays) -> bytes:
    files = writers.cifar10_binary(small_cifar)
    members = {f"cifar-10-batches-bin/{name}": data for name, data in files.items()}
    path = writers.tar(tmp_path / "made" / "cifar-10-binary.tar.gz", members)
    data: bytes = path.read_bytes()
    path.unlink()
    return data


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


NAME = "cifar-10-binary.tar.gz"


def test_first_origin_that_works(tmp_path: Path, small_cifar: Arrays, archive: bytes) -> None:
    root = tmp_path / "root"
    bad = Given(error=DataError("away"))
    item = small_set(small_cifar, bad, Given({NAME: archive}), Given(error=AssertionError()))
    assert fetch_set(item, root) == root / "cifar10" / NAME
    assert listing(root) == ["cifar10", f"cifar10/{NAME}"]


def test_what_is_there_is_verified_and_not_fetched(
    tmp_path: Path, small_cifar: Arrays, archive: bytes
) -> None:
    (tmp_path / NAME).write_bytes(archive)
    item = small_set(small_cifar, Given(error=AssertionError()))
    assert fetch_set(item, tmp_path) == tmp_path / NAME
    (tmp_path / NAME).write_bytes(archive[:-50])
    with pytest.raises(DataError, match=r"cut off or damaged .*: delete it and fetch it again"):
        fetch_set(item, tmp_path)
    assert (tmp_path / NAME).exists()  # a user's file is the user's to delete


def test_files_with_other_contents_are_removed(
    tmp_path: Path, small_cifar: Arrays, archive: bytes
) -> None:
    root = tmp_path / "root"
    item = small_set(small_cifar, Given({NAME: archive[:-50]}), Given({NAME: archive}))
    fetch_set(item, root)
    assert (root / "cifar10" / NAME).read_bytes() == archive
    small_cifar["train_images"][0] ^= 1
    wrong = small_set(small_cifar, Given({NAME: archive}))
    with pytest.raises(DataError, match=r"no source worked: .*are not the published ones"):
        fetch_set(wrong, tmp_path / "other")
    assert not (tmp_path / "other" / "cifar10").exists()


def test_all_fail_in_one_line_with_every_reason(tmp_path: Path, small_cifar: Arrays) -> None:
    item = small_set(
        small_cifar,
        Given(error=DataError("first.org is away"), label="first.org"),
        Given(error=OSError(28, "No space left on device"), label="second.org"),
        Given(error=DataError("two\nlines"), label="npm third"),
    )
    with pytest.raises(DataError) as error:
        fetch_set(item, tmp_path)
    assert str(error.value) == (
        "cifar10: no source worked: first.org is away; "
        "second.org: [Errno 28] No space left on device; npm third: two lines"
    )
    assert listing(tmp_path) == []


def test_from_the_web_404_then_a_break_then_the_set(
    tmp_path: Path, server: Any, small_cifar: Arrays, archive: bytes
) -> None:
    server.files[f"/b/{NAME}"] = archive
    server.break_after = [100, 200]
    digest = hashlib.sha256(archive).hexdigest()
    origins = [
        WebOrigin((RemoteFile(f"{server.url}/{letter}/{NAME}", len(archive), digest),))
        for letter in "ab"
    ]
    root = tmp_path / "root"
    fetch_set(small_set(small_cifar, *origins), root)
    assert listing(root) == ["cifar10", f"cifar10/{NAME}"]
    assert [path for path, _ in server.requests] == [f"/a/{NAME}", *[f"/b/{NAME}"] * 3]


def test_wrong_hash_then_the_next_source(
    tmp_path: Path, server: Any, small_cifar: Arrays, archive: bytes
) -> None:
    digest = hashlib.sha256(archive).hexdigest()
    server.files = {f"/a/{NAME}": archive[:-1] + b"x", f"/b/{NAME}": archive}
    origins = [
        WebOrigin((RemoteFile(f"{server.url}/{letter}/{NAME}", len(archive), digest),))
        for letter in "ab"
    ]
    fetch_set(small_set(small_cifar, *origins), tmp_path / "root")
    assert (tmp_path / "root" / "cifar10" / NAME).read_bytes() == archive


def test_a_part_outlives_a_failure_and_not_a_success(
    tmp_path: Path, server: Any, small_cifar: Arrays, archive: bytes
) -> None:
    root = tmp_path / "root"
    server.files[f"/{NAME}"] = archive
    server.break_after = [10] * 5
    digest = hashlib.sha256(archive).hexdigest()
    web = WebOrigin((RemoteFile(f"{server.url}/{NAME}", len(archive), digest),))
    with pytest.raises(DataError, match="broke off after 50 bytes"):
        fetch_set(small_set(small_cifar, web), root)
    assert listing(root) == ["cifar10", f"cifar10/{NAME}.part"]
    server.break_after = [10] * 5
    fetch_set(small_set(small_cifar, web, Given({NAME: archive})), root)
    assert listing(root) == ["cifar10", f"cifar10/{NAME}"]


def test_needed_sets_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def note(item: NamedSet, root: Path) -> Path:
        asked.append((item.name, root))
        return root

    monkeypatch.setattr(module, "fetch_set", note)
    fetch("cifar10n", tmp_path)
    assert asked == [("cifar10", tmp_path), ("cifar10n", tmp_path)]


def test_sets_that_are_had_by_hand(tmp_path: Path) -> None:
    for name in ("clothing1m", "mars"):
        with pytest.raises(DataError, match=f"{name} cannot be fetched: .*ROOT/{name}"):
            fetch(name, tmp_path)
    assert listing(tmp_path) == []


def test_unknown_name(tmp_path: Path) -> None:
    for function in (fetch, verify):
        with pytest.raises(ArgumentError, match="unknown data set 'cifra10'; did you mean cifar10"):
            function("cifra10", tmp_path)


def test_verify_gives_the_published_digests(tmp_path: Path) -> None:
    assert verify("digits", tmp_path).keys() == {"images", "labels"}
    with pytest.raises(DataError, match="cifar10 is not in"):
        verify("cifar10", tmp_path)
