import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imae.data.sources.image_set import ImageSet, Layout, array_digest
from imae.errors import DataError


def decode(contents: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Labels from files of bytes, and images of the same value."""
    arrays = {}
    for part in ("train", "test"):
        if not contents[f"{part}.bin"]:
            raise DataError(f"{part}.bin: empty")
        labels = np.frombuffer(contents[f"{part}.bin"], np.uint8)
        arrays[f"{part}_labels"] = labels
        arrays[f"{part}_images"] = np.broadcast_to(
            labels[:, None, None, None], (len(labels), 1, 2, 2)
        )
    return arrays


FILES = {"train.bin": b"\0\1\1", "test.bin": b"\1\0"}
SMALL = ImageSet(
    name="small",
    layouts=(
        Layout("small.tar.gz", "inner", {"train.bin": 3, "test.bin": 3}, decode),
        Layout(None, "raw", {"train": 3}, decode),
    ),
    digests={name: array_digest(array) for name, array in decode(FILES).items()},
    class_names=("no", "yes"),
    mean=(0.5,),
    std=(0.25,),
    pad=1,
    flip=False,
)


def put(folder: Path, files: Mapping[str, bytes] = FILES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("place", ["", "small", "small/inner", "inner"])
def test_files_are_found_where_they_may_lie(tmp_path: Path, place: str) -> None:
    assert SMALL.locate(tmp_path) is None
    put(tmp_path / place)
    assert SMALL.locate(tmp_path) == tmp_path / place
    assert SMALL.data(tmp_path).train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("place", ["small.tar.gz", "small/small.tar.gz"])
def test_archive_is_found_and_read(tmp_path: Path, writers: Any, place: str) -> None:
    writers.tar(tmp_path / place, {f"inner/{name}": data for name, data in FILES.items()})
    assert SMALL.locate(tmp_path) == tmp_path / place
    assert SMALL.verify(tmp_path) == SMALL.digests
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["small.tar.gz"]


def test_system_folder_comes_last(tmp_path: Path) -> None:
    put(tmp_path / "system")
    item = replace(SMALL, system_folder=str(tmp_path / "system"))
    assert item.locate(tmp_path / "root") == tmp_path / "system"
    put(tmp_path / "root")
    assert item.locate(tmp_path / "root") == tmp_path / "root"


def test_half_of_the_files_is_not_the_set(tmp_path: Path) -> None:
    put(tmp_path, {"train.bin": b"\0"})
    assert SMALL.locate(tmp_path) is None
    fetch = re.escape(f"`imae data fetch small --root {tmp_path}`")
    with pytest.raises(DataError, match=f"small is not in .*: get it with {fetch}"):
        SMALL.read(tmp_path)


def test_the_usual_folder_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"get it with `imae data fetch small`$"):
        SMALL.read(tmp_path)


def test_other_contents_are_refused(tmp_path: Path) -> None:
    put(tmp_path, {"train.bin": b"\0\1\0", "test.bin": b"\1\0"})
    with pytest.raises(DataError, match=r"train labels .* are not the published ones"):
        SMALL.data(tmp_path)


def test_errors_of_decoding_name_the_place(tmp_path: Path) -> None:
    put(tmp_path, {"train.bin": b"", "test.bin": b""})
    with pytest.raises(DataError) as error:
        SMALL.read(tmp_path)
    assert str(error.value) == f"{tmp_path}: train.bin: empty"


def test_files_have_a_size_limit(tmp_path: Path) -> None:
    put(tmp_path, {"train.bin": b"\0\1\1\1", "test.bin": b"\1\0"})
    with pytest.raises(DataError, match=r"train\.bin: has more than 3 bytes"):
        SMALL.read(tmp_path)


def test_split_keeps_the_official_order_in_its_row_ids(tmp_path: Path) -> None:
    put(tmp_path)
    data = SMALL.data(tmp_path)
    assert data.name == "small"
    assert data.train.row_ids.tolist() == ["train/00000", "train/00001", "train/00002"]
    assert data.test is not None
    assert data.test.row_ids.tolist() == ["test/00000", "test/00001"]
    assert data.train.labels.dtype == np.int64
    assert data.train.clean_labels is None
    batch = data.train.inputs.batch(np.array([1]), generator=None)
    np.testing.assert_allclose(batch, np.full((1, 1, 2, 2), (1 / 255 - 0.5) / 0.25), rtol=1e-5)


def test_split_takes_other_labels() -> None:
    arrays = decode(FILES)
    split = SMALL.split(
        arrays,
        "train",
        labels=np.array([2, 2, 0], np.uint8),
        class_names=("a", "b", "c"),
        clean_labels=arrays["train_labels"],
    )
    assert split.labels.tolist() == [2, 2, 0]
    assert split.class_names == ("a", "b", "c")
    assert split.clean_labels is not None
    assert split.clean_labels.tolist() == [0, 1, 1]
