from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from imae.data.features import Table
from imae.data.images import ArrayImages
from imae.data.split import Split


@pytest.fixture
def table_split() -> Callable[..., Split]:
    """Makes a split of rows whose only feature is their position."""

    def make(labels: list[int], **columns: object) -> Split:
        values = np.arange(len(labels), dtype=np.float32)[:, None]
        names = tuple("abcdefghij"[: max(labels) + 1])
        ids = np.array([f"row {row}" for row in range(len(labels))])
        return Split(Table(values), np.array(labels), ids, names, **columns)

    return make


@pytest.fixture
def images() -> ArrayImages:
    """Forty images of 6 x 5 in three channels, no pixel black."""
    pixels = np.random.Generator(np.random.PCG64(3)).integers(1, 256, (40, 3, 6, 5), dtype=np.uint8)
    return ArrayImages(pixels, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), pad=2)


@pytest.fixture
def photo() -> Callable[..., Path]:
    """Writes a photo of noise on a gradient, and returns its path."""

    def write(path: Path, *, width: int = 40, height: int = 30, seed: int = 0) -> Path:
        generator = np.random.Generator(np.random.PCG64(seed))
        pixels = generator.integers(0, 60, (height, width, 3))
        pixels[..., 0] += np.linspace(0, 190, width, dtype=np.int64)
        pixels[..., 1] += np.linspace(0, 190, height, dtype=np.int64)[:, None]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        return path

    return write


@pytest.fixture
def photo_folder(tmp_path: Path, photo: Callable[..., Path]) -> Path:
    """Three photos of cats and four of dogs, of several sizes."""
    for label, number in (("cat", 3), ("dog", 4)):
        for index in range(number):
            photo(tmp_path / "pets" / label / f"{index}.jpg", width=40 + index, seed=index)
    return tmp_path / "pets"
