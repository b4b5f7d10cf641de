from typing import Any

import numpy as np
import pytest

from imae.data.sources.digits import read_idx
from imae.errors import DataError


@pytest.mark.parametrize("shape", [(5,), (4, 2, 3), (0,), (2, 1, 1, 2)])
def test_round_trip(writers: Any, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(read_idx(writers.idx(values), source="f"), values)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\x08", b"\x01\0\x08\x01", b"\0\0\x0d\x01\0\0\0\0", b"\0\0\x08\xff", b"<html>"],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^f: not an IDX file of bytes"):
        read_idx(data, source="f")


@pytest.mark.parametrize("change", [-1, 1])
def test_length_must_fit_the_header(writers: Any, change: int) -> None:
    data = writers.idx(np.arange(6, dtype=np.uint8).reshape(2, 3))
    changed = data[:-1] if change < 0 else data + b"x"
    with pytest.raises(
        DataError, match=rf"shape \(2, 3\) needs 18 bytes, the file has {18 + change}"
    ):
        read_idx(changed, source="f")


def test_a_header_of_a_billion_rows_costs_nothing() -> None:
    with pytest.raises(DataError, match="needs"):
        read_idx(b"\0\0\x08\x04" + b"\xff\xff\xff\xff" * 4, source="f")


def test_a_cut_off_header_is_refused() -> None:
    with pytest.raises(DataError, match="cut off or damaged"):
        read_idx(b"\0\0\x08\x03\0\0", source="f")
