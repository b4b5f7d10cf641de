"""Preparation that is learnt from the training rows and used on all."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from imae.data.array_images import ArrayImages, channel_statistics
from imae.data.split import Data, Split
from imae.data.table import Table
from imae.errors import DataError


def fit_preparation(data: Data) -> Data:
    """The data with its numbers brought to one scale by statistics of the training rows alone.

    Features get mean 0 and deviation 1 in training; images in memory get the channel means and
    deviations of the training images. Other inputs come back as they are.

    Raises:
        DataError: If a row is too far from the training rows to be brought to their scale.

    Examples:
        >>> table = Table(np.array([[1.0], [3.0]], np.float32))
        >>> split = Split(table, np.array([0, 1]), np.array(["a", "b"]), ("x", "y"))
        >>> fit_preparation(Data("pairs", split)).train.inputs.values.ravel().tolist()
        [-1.0, 1.0]
    """
    train = data.train.inputs
    if isinstance(train, Table):
        centre = train.values.mean(axis=0, dtype=np.float64)
        scale = train.values.std(axis=0, dtype=np.float64)
        # A column of one value says nothing; its deviation is 0 but for rounding.
        scale[train.values.min(axis=0) == train.values.max(axis=0)] = 1.0

        def scaled(split: Split) -> Split:
            assert isinstance(split.inputs, Table), "all splits of one source are of one kind"
            table = standardise(
                split.inputs, centre, scale, row_ids=split.row_ids, source=data.name
            )
            return replace(split, inputs=table)

        return data.map_splits(scaled)
    if isinstance(train, ArrayImages):
        mean, std = channel_statistics(train.pixels)
        return data.map_splits(lambda split: _normalised(split, mean, std))
    return data


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
    with np.errstate(over="ignore", invalid="ignore"):
        values = ((table.values - centre) / scale).astype(np.float32)
        # A sum is finite only if all of it is: no mask of the table's size.
        is_finite = np.isfinite(values.sum(axis=1, dtype=np.float64))
    if not is_finite.all():
        row = int(is_finite.argmin())
        column = int(np.isfinite(values[row]).argmin())
        name = column if table.columns is None else repr(table.columns[column])
        raise DataError(
            f"{source}: row {str(row_ids[row])!r}, column {name}: {table.values[row, column]:g} is "
            f"too far from the rows trained on (mean {centre[column]:g}, deviation "
            f"{scale[column]:g}); mend or remove it"
        )
    return replace(table, values=values, mean=tuple(centre.tolist()), std=tuple(scale.tolist()))


def _normalised(split: Split, mean: tuple[float, ...], std: tuple[float, ...]) -> Split:
    assert isinstance(split.inputs, ArrayImages), "all splits of one source are of one kind"
    return replace(split, inputs=replace(split.inputs, mean=mean, std=std))
