"""Preparation that is learnt from the training rows and used on all."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from imae.data.array_images import ArrayImages, channel_statistics
from imae.data.split import Data, Split
from imae.data.table import Table


def fit_preparation(data: Data) -> Data:
    """The data with its numbers brought to one scale by statistics of the training rows alone.

    Features get mean 0 and deviation 1 in training; images in memory get the channel means and
    deviations of the training images. Other inputs come back as they are.

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
        scale[scale == 0] = 1.0  # a column of one value says nothing
        return data.map_splits(lambda split: _standardised(split, centre, scale))
    if isinstance(train, ArrayImages):
        mean, std = channel_statistics(train.pixels)
        return data.map_splits(lambda split: _normalised(split, mean, std))
    return data


def _standardised(split: Split, centre: NDArray[np.float64], scale: NDArray[np.float64]) -> Split:
    assert isinstance(split.inputs, Table), "all splits of one source are of one kind"
    values = ((split.inputs.values - centre) / scale).astype(np.float32)
    return replace(split, inputs=Table(values))


def _normalised(split: Split, mean: tuple[float, ...], std: tuple[float, ...]) -> Split:
    assert isinstance(split.inputs, ArrayImages), "all splits of one source are of one kind"
    return replace(split, inputs=replace(split.inputs, mean=mean, std=std))
