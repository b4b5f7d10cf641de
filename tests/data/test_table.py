import numpy as np
import pytest
import torch

from imae.data.features import Table
from imae.errors import DataError


def test_batch_is_the_rows_and_needs_no_generator():
    table = Table(np.arange(6, dtype=np.float32).reshape(3, 2))
    rows = np.array([2, 0])
    assert table.batch(rows, generator=None).tolist() == [[4, 5], [0, 1]]
    assert torch.equal(
        table.batch(rows, generator=torch.Generator()), table.batch(rows, generator=None)
    )
    assert table.shape == (2,)


def test_batch_is_a_copy():
    table = Table(np.zeros((2, 1), np.float32))
    table.batch(np.array([0]), generator=None).fill_(1)
    assert table.values.sum() == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 2), np.int64), "must be float32 or float64"),
        (np.zeros(2, np.float32), "shape"),
        (np.array([[0, 1], [0, np.nan]], np.float32), "row 1, column 1 is nan"),
        (np.array([[np.inf], [-np.inf]], np.float32), "row 0, column 0 is inf"),
    ],
)
def test_refuses(values, message):
    with pytest.raises(DataError, match=message):
        Table(values)


def test_the_largest_float32_is_finite():
    assert len(Table(np.full((3, 1), np.finfo(np.float32).max))) == 3


def test_content_hash_sees_values_and_shape():
    ones = np.ones((2, 3), np.float32)
    other = ones.copy()
    other[1, 2] = 2
    hashes = {Table(values).content_hash() for values in (ones, other, ones.reshape(3, 2))}
    assert len(hashes) == 3
    assert Table(ones).content_hash() == Table(ones.copy()).content_hash()
    assert Table(ones).take(np.array([1])).content_hash() == Table(ones[:1]).content_hash()
