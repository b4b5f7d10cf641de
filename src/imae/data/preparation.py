"""How rows become inputs of a network: fitted on training rows, stored as plain values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from imae.data.arrays import UNIT_SCALE
from imae.data.encoding import (
    ColumnEncoding,
    RawTable,
    describe_encodings,
    encode_table,
    fit_encoding,
    read_encodings,
)
from imae.data.features import HashedText, Table
from imae.data.image_files import ImageFiles
from imae.data.images import ArrayImages, channel_statistics
from imae.data.split import Data, Inputs, Split
from imae.data.torch_dataset import DatasetInputs
from imae.errors import DataError

_WIDEST = 20.0  # range of a standardised column
_BLOCK = 4096  # rows that are standardised at the same time
# Differences below this share of the largest value are rounding errors. Times in seconds since 1970
# need nine digits, which float64 has.
_ROUNDING = {"float32": 1e-6, "float64": 1e-10}


def fit_preparation(data: Data) -> Data:
    """The data with its numbers standardised by statistics of the training rows.

    Columns of a table become numbers (see ``imae.data.encoding``), and all numbers get mean 0 and
    deviation 1 in training; images in memory get the channel means and deviations of the training
    images. Other inputs are returned unchanged.

    Raises:
        DataError: If a row is too far from the training rows to be standardised.

    Examples:
        >>> table = Table(np.array([[1.0], [3.0]], np.float32))
        >>> split = Split(table, np.array([0, 1]), np.array(["a", "b"]), ("x", "y"))
        >>> fit_preparation(Data("pairs", split)).train.inputs.values.ravel().tolist()
        [-1.0, 1.0]
    """
    return data.map_splits(fit_scale(data.train, source=data.name))


def is_fitted(inputs: Inputs) -> bool:
    """Whether the inputs are prepared as ``fit_preparation`` does it, or need no preparation."""
    if isinstance(inputs, Table):
        return inputs.mean is not None
    if isinstance(inputs, HashedText):
        return inputs.weights is not None
    if isinstance(inputs, ArrayImages):
        return not inputs.mean == inputs.std == UNIT_SCALE * len(inputs.mean)
    return not isinstance(inputs, RawTable)


def fit_scale(fitted: Split, *, source: str) -> Callable[[Split], Split]:
    """A function that standardises any split like these rows; see ``fit_preparation``.

    Args:
        fitted: Rows that the statistics are taken from.
        source: Where the rows come from, for messages.
    """
    train = fitted.inputs
    if isinstance(train, RawTable):
        encodings = fit_encoding(train)
        encoded = fit_scale(_encoded(fitted, encodings), source=source)
        return lambda split: encoded(_encoded(split, encodings))
    if isinstance(train, Table):
        centre, scale = _statistics(train.values)

        def scaled(split: Split) -> Split:
            assert isinstance(split.inputs, Table), "all splits of one source are of one kind"
            table = standardise(split.inputs, centre, scale, row_ids=split.row_ids, source=source)
            return replace(split, inputs=table)

        return scaled
    if isinstance(train, HashedText):
        weights = train.fit_weights()
        return lambda split: _weighted(split, weights)
    if isinstance(train, ArrayImages):
        mean, std = channel_statistics(train.pixels)
        return lambda split: _normalised(split, mean, std)
    return lambda split: split


def _encoded(split: Split, encodings: Sequence[ColumnEncoding]) -> Split:
    assert isinstance(split.inputs, RawTable), "all splits of one source are of one kind"
    return replace(split, inputs=encoded_table(split.inputs, encodings))


def encoded_table(raw: RawTable, encodings: Sequence[ColumnEncoding]) -> Table:
    """The table of features of these rows, not yet standardised."""
    values, names = encode_table(raw, encodings)
    return Table(values, columns=names, encoding=tuple(encodings))


def _statistics(
    values: NDArray[np.float32] | NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale of every column.

    The scale is the standard deviation, but at least a twentieth of the range, so that a single row
    of 10,000 that differs from the others becomes 20 and not 100. A column whose values are equal
    except for rounding keeps its scale: dividing by almost 0 would turn it into noise.
    """
    centre = values.mean(axis=0, dtype=np.float64)
    spread = values.max(axis=0).astype(np.float64) - values.min(axis=0)
    scale = np.maximum(values.std(axis=0, dtype=np.float64), spread / _WIDEST)
    rounding = _ROUNDING[values.dtype.name] * np.abs(values).max(axis=0)
    return centre, np.where(spread <= rounding, 1.0, scale)


def standardise(
    table: Table,
    mean: Sequence[float] | NDArray[np.float64],
    std: Sequence[float] | NDArray[np.float64],
    *,
    row_ids: NDArray[np.str_],
    source: str,
) -> Table:
    """The table minus the mean, over the deviation, of the rows that were trained on.

    Args:
        table: Features as they were written, shape (N, F).
        mean: Mean of every feature in training, shape (F,).
        std: Deviation of every feature in training, shape (F,), positive.
        row_ids: Ids of the rows, shape (N,), for messages.
        source: Where the rows come from, for messages.

    Raises:
        DataError: If a number becomes too large for float32; the message names the row.

    Examples:
        >>> table = Table(np.array([[5.0]], np.float32))
        >>> standardise(table, [1.0], [2.0], row_ids=np.array(["a"]), source="new").values
        array([[2.]], dtype=float32)
    """
    centre, scale = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    values = np.empty(table.values.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(values), _BLOCK):  # in float64: not for all rows at once
            block = slice(start, start + _BLOCK)
            values[block] = (table.values[block] - centre) / scale
        # A sum is finite only if all of it is: no mask of the table's size.
        is_finite = np.isfinite(values.sum(axis=1, dtype=np.float64))
    if not is_finite.all():
        row = int(is_finite.argmin())
        column = int(np.isfinite(values[row]).argmin())
        name = column if table.columns is None else repr(table.columns[column])
        raise DataError(
            f"{source}: row {str(row_ids[row])!r}, column {name}: {table.values[row, column]:g} is "
            f"too far from the rows trained on (mean {centre[column]:g}, deviation "
            f"{scale[column]:g}); fix or remove it"
        )
    return replace(table, values=values, mean=tuple(centre.tolist()), std=tuple(scale.tolist()))


def _normalised(split: Split, mean: tuple[float, ...], std: tuple[float, ...]) -> Split:
    assert isinstance(split.inputs, ArrayImages), "all splits of one source are of one kind"
    return replace(split, inputs=replace(split.inputs, mean=mean, std=std))


def _weighted(split: Split, weights: NDArray[np.float32]) -> Split:
    assert isinstance(split.inputs, HashedText), "all splits of one source are of one kind"
    return replace(split, inputs=replace(split.inputs, weights=weights))


def describe_preparation(inputs: Inputs) -> dict[str, Any]:
    """How these inputs are prepared, as values that JSON can hold.

    ``kind`` is "images" (with ``mean`` and ``std`` of each channel, ``blue_first`` if the channels
    are blue, green, red, and either the ``shape`` of
    images in memory or ``resize`` and ``crop`` of those in files), "features" (with ``columns``,
    their names or None, ``mean`` and ``std``, and ``encoding``, how they were made from the columns
    of a file), "texts" (with ``num_features`` and their ``weights``) or "tensors"
    (inputs of a torch data set, used as they are, with their ``shape``).

    Examples:
        >>> texts = HashedText(np.zeros(1), np.zeros(0), np.zeros(0), 16, column="review")
        >>> described = describe_preparation(texts)
        >>> described["kind"], described["num_features"], described["column"]
        ('texts', 16, 'review')
    """
    if isinstance(inputs, HashedText):
        weights = None if inputs.weights is None else inputs.weights.tolist()
        names = ("num_features", "ngrams", "length", "log_counts", "column")
        return (
            {"kind": "texts"}
            | {name: getattr(inputs, name) for name in names}
            | {"weights": weights}
        )
    if isinstance(inputs, Table):
        assert inputs.mean is not None, "a table that is trained on is brought to one scale"
        assert inputs.std is not None
        columns = None if inputs.columns is None else list(inputs.columns)
        described: dict[str, Any] = {"mean": list(inputs.mean), "std": list(inputs.std)}
        if inputs.encoding is not None:
            described["encoding"] = describe_encodings(inputs.encoding)
        return {"kind": "features", "columns": columns, **described}
    if isinstance(inputs, DatasetInputs):
        return {"kind": "tensors", "shape": list(inputs.shape)}
    assert isinstance(inputs, ArrayImages | ImageFiles)
    described = {"kind": "images", "mean": list(inputs.mean), "std": list(inputs.std)}
    if inputs.blue_first:
        described["blue_first"] = True
    if isinstance(inputs, ImageFiles):
        return described | {"resize": inputs.resize, "crop": inputs.crop}
    return described | {"shape": list(inputs.shape)}


def without_rows(described: Mapping[str, Any]) -> Inputs:
    """Inputs without any rows, prepared as described: a template for new rows.

    Args:
        described: A result of ``describe_preparation``.

    Raises:
        DataError: If it is not one.

    Examples:
        >>> images = without_rows({"kind": "images", "mean": [0.5], "std": [1], "shape": [1, 8, 8]})
        >>> len(images), images.shape
        (0, (1, 8, 8))
    """
    try:
        kind = described["kind"]
        if kind == "texts":
            return _texts_without_rows(described)
        if kind == "tensors":
            example = TensorDataset(torch.zeros(1, *map(_whole, described["shape"])))
            return DatasetInputs(example, np.zeros(0, np.int64))
        mean, std = _numbers(described["mean"]), _numbers(described["std"])
        if len(mean) != len(std) or min(std, default=0) <= 0:
            raise ValueError("mean and std must have the same length, and std must be positive")
        if kind == "features":
            columns = described["columns"]
            names = None if columns is None else tuple(map(str, columns))
            encoding = described.get("encoding")
            return Table(
                np.zeros((0, len(mean)), np.float32),
                columns=names,
                mean=mean,
                std=std,
                encoding=None if encoding is None else read_encodings(encoding),
            )
        if kind != "images":
            raise ValueError(f"unknown kind {kind!r}")
        if "crop" in described:
            resize, crop = _whole(described["resize"]), _whole(described["crop"])
            files = ImageFiles(Path(), (), resize=resize, crop=crop, mean=mean, std=std)
            return replace(files, blue_first=described.get("blue_first") is True)
        channels, height, width = map(_whole, described["shape"])
        pixels = np.zeros((0, channels, height, width), np.uint8)
        blue_first = described.get("blue_first") is True
        return ArrayImages(pixels, mean=mean, std=std, blue_first=blue_first)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the preparation of rows is not understood ({error})") from error


def _texts_without_rows(described: Mapping[str, Any]) -> HashedText:
    number = _whole(described["num_features"])
    weights = described.get("weights")  # runs of the first version have none, and pairs of words
    if weights is not None and len(weights) != number:
        raise ValueError(f"{number} features have {len(weights)} weights")
    nothing = np.zeros(0, np.int64)
    return HashedText(
        np.zeros(1, np.int64),
        nothing,
        nothing.astype(np.float32),
        number,
        ngrams=_whole(described.get("ngrams", 2)),
        length=_numbers([described.get("length", 5.0)])[0],  # that of earlier versions
        log_counts=described.get("log_counts", False) is True,
        column=described.get("column"),
        weights=None if weights is None else np.array(_numbers(weights), np.float32),
    )


def _numbers(values: Any) -> tuple[float, ...]:
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return numbers


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is not a size")
    return value
