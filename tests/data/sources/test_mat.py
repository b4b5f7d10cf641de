"""The MATLAB reader against files that scipy writes."""

import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from imae.data.sources.photo_sets import read_mat
from imae.errors import DataError

TABLE = np.array([[1, 16, 1, 1], [17, 95, -1, 6], [96, 70_000, 1500, 2]])


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"])
def test_tables_of_every_type(tmp_path: Path, dtype: str, is_packed: bool) -> None:
    table = np.arange(24).reshape(6, 4).astype(dtype)
    savemat(tmp_path / "f.mat", {"track_test_info": table}, do_compression=is_packed)
    found = read_mat(tmp_path / "f.mat")
    np.testing.assert_array_equal(found["track_test_info"], table)
    assert found["track_test_info"].dtype == np.int64


@pytest.mark.parametrize("is_packed", [True, False])
def test_only_tables_of_whole_numbers_are_read(tmp_path: Path, is_packed: bool) -> None:
    variables = {
        "a": TABLE,
        "words": np.array(["text"], object),
        "text": "text",
        "row": np.array([[7]]),
        "halves": np.array([[0.5]]),
        "missing": np.array([[np.nan]]),
        "complex": np.array([[1j]]),
        "nothing": np.zeros((0, 0)),
        "z": TABLE.T,
    }
    savemat(tmp_path / "f.mat", variables, do_compression=is_packed)
    found = read_mat(tmp_path / "f.mat")
    assert found.keys() == {"a", "row", "z", "nothing"}
    np.testing.assert_array_equal(found["a"], TABLE)
    np.testing.assert_array_equal(found["z"], TABLE.T)
    np.testing.assert_array_equal(found["row"], [[7]])


@pytest.mark.parametrize("is_packed", [True, False])
def test_cut_off_anywhere_is_one_line(tmp_path: Path, is_packed: bool) -> None:
    path = tmp_path / "f.mat"
    savemat(path, {"query_IDX": TABLE}, do_compression=is_packed)
    data = path.read_bytes()
    for kept in [0, 100, *range(136, len(data) - 1, 7)]:
        path.write_bytes(data[:kept])
        with pytest.raises(DataError, match=r"f\.mat: ") as error:
            read_mat(path)
        assert "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.mat"
    path.write_bytes(b"<html>" * 100)
    with pytest.raises(DataError, match="not a little-endian MATLAB file"):
        read_mat(path)
    path.write_bytes(b"MATLAB 7.3".ljust(124) + b"\x00\x02IM" + bytes(400))
    with pytest.raises(DataError, match="of version 5 to 7"):
        read_mat(path)
    savemat(path, {"a": TABLE}, format="4")
    with pytest.raises(DataError, match="not a little-endian MATLAB file"):
        read_mat(path)


def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    path = tmp_path / "f.mat"
    savemat(path, {"track_test_info": TABLE})
    data = path.read_bytes()
    refused = 0
    for at in range(124, len(data)):
        for change in (0xFF, 0x01, 0x80):
            changed = bytearray(data)
            changed[at] ^= change
            path.write_bytes(changed)
            try:
                read_mat(path)
            except DataError:
                refused += 1
    assert refused > 50


def test_bomb(tmp_path: Path) -> None:
    content = zlib.compress(bytes(200 << 20))
    element = (15).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
    path = tmp_path / "f.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + element)
    tracemalloc.start()
    with pytest.raises(DataError, match="larger than any track table"):
        read_mat(path)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_file_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "f.mat"
    path.write_bytes(bytes((16 << 20) + 1))
    with pytest.raises(DataError, match="which no track table has"):
        read_mat(path)
