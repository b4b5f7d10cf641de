"""How rows become inputs of a network, as plain values that a file can hold."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from imae.data.array_images import ArrayImages
from imae.data.hashed_text import HashedText
from imae.data.image_files import ImageFiles
from imae.data.split import Inputs
from imae.data.table import Table
from imae.errors import DataError


def describe_preparation(inputs: Inputs) -> dict[str, Any]:
    """How these inputs are prepared, in values that JSON knows.

    ``kind`` is "images" (with ``mean`` and ``std`` of each channel, and either the ``shape`` of
    images in memory or ``resize`` and ``crop`` of those in files), "features" (with ``columns``,
    their names or None, and ``mean`` and ``std``) or "texts" (with ``num_features``).

    Examples:
        >>> describe_preparation(HashedText(np.zeros(1), np.zeros(0), np.zeros(0), 16))
        {'kind': 'texts', 'num_features': 16}
    """
    if isinstance(inputs, HashedText):
        return {"kind": "texts", "num_features": inputs.num_features}
    if isinstance(inputs, Table):
        assert inputs.mean is not None, "a table that is trained on is brought to one scale"
        assert inputs.std is not None
        columns = None if inputs.columns is None else list(inputs.columns)
        statistics = {"mean": list(inputs.mean), "std": list(inputs.std)}
        return {"kind": "features", "columns": columns, **statistics}
    assert isinstance(inputs, ArrayImages | ImageFiles)
    described = {"kind": "images", "mean": list(inputs.mean), "std": list(inputs.std)}
    if isinstance(inputs, ImageFiles):
        return described | {"resize": inputs.resize, "crop": inputs.crop}
    return described | {"shape": list(inputs.shape)}


def without_rows(described: Mapping[str, Any]) -> Inputs:
    """Inputs without a single row, prepared as described: what new rows are to be like.

    Args:
        described: What ``describe_preparation`` gave.

    Raises:
        DataError: If it is not what that gives.

    Examples:
        >>> images = without_rows({"kind": "images", "mean": [0.5], "std": [1], "shape": [1, 8, 8]})
        >>> len(images), images.shape
        (0, (1, 8, 8))
    """
    try:
        kind = described["kind"]
        if kind == "texts":
            number = _whole(described["num_features"])
            nothing = np.zeros(0, np.int64)
            return HashedText(np.zeros(1, np.int64), nothing, nothing.astype(np.float32), number)
        mean, std = _numbers(described["mean"]), _numbers(described["std"])
        if len(mean) != len(std) or min(std, default=0) <= 0:
            raise ValueError("as many means as positive deviations are needed")
        if kind == "features":
            columns = described["columns"]
            names = None if columns is None else tuple(map(str, columns))
            return Table(np.zeros((0, len(mean)), np.float32), columns=names, mean=mean, std=std)
        if kind != "images":
            raise ValueError(f"no rows are of kind {kind!r}")
        if "crop" in described:
            resize, crop = _whole(described["resize"]), _whole(described["crop"])
            return ImageFiles(Path(), (), resize=resize, crop=crop, mean=mean, std=std)
        channels, height, width = map(_whole, described["shape"])
        pixels = np.zeros((0, channels, height, width), np.uint8)
        return ArrayImages(pixels, mean=mean, std=std)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the preparation of rows is not understood ({error})") from error


def _numbers(values: Any) -> tuple[float, ...]:
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a mean or deviation is not finite")
    return numbers


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is no size")
    return value
