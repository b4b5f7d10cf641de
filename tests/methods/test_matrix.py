import numpy as np
import pytest

from imae.errors import ArgumentError, DataError
from imae.methods.matrix import read_matrix

MATRIX = [[0.9, 0.1], [0.25, 0.75]]


def test_rows_of_numbers_are_taken_as_they_are():
    np.testing.assert_array_equal(read_matrix("matrix", MATRIX), np.array(MATRIX))


def test_a_text_file_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf0.9, 0.1\r\n0.25,0.75\r\n\r\n")
    np.testing.assert_array_equal(read_matrix("matrix", str(path)), np.array(MATRIX))


def test_an_array_file_is_read(tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.array(MATRIX, dtype=np.float32))
    np.testing.assert_allclose(read_matrix("matrix", str(path)), np.array(MATRIX))
    np.save(path, np.eye(3, dtype=bool))
    np.testing.assert_array_equal(read_matrix("matrix", str(path)), np.eye(3))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("estimated", "a path that ends in .csv or .npy, got 'estimated'"),
        ([[1.0, 0.0]], r"shape \(C, C\) with C at least 2, got \(1, 2\)"),
        ([[1.0]], r"got \(1, 1\)"),
        ([[1.0, 0.0], [0.0]], "must be an array of numbers"),
        ([["a", "b"], ["c", "d"]], "must hold finite numbers"),
        ([[1.0, float("nan")], [0.0, 1.0]], "must hold finite numbers"),
    ],
)
def test_what_is_no_matrix_is_refused(source, says):
    with pytest.raises(ArgumentError, match=says):
        read_matrix("matrix", source)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"0.9,0.1\n0.2,x\n", r"t\.csv, line 2: could not convert string to float: 'x'"),
        (b"cat,dog\n1,0\n", "line 1: .*without a header"),
        (b"1,0\n\n0,1,0\n", "line 3: 3 numbers, but the first line has 2"),
        (b"\xff\xfe1,0", "not a text file of numbers"),
    ],
)
def test_a_text_file_that_is_broken_is_named_with_its_line(tmp_path, content, says):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_matrix("matrix", str(path))
    assert "\n" not in str(caught.value)


def test_an_empty_text_file_is_refused(tmp_path):
    (tmp_path / "t.csv").touch()
    with pytest.raises(ArgumentError, match=r"t\.csv\) must have shape"):
        read_matrix("matrix", str(tmp_path / "t.csv"))


def test_an_array_file_that_is_broken_is_named(tmp_path):
    path = tmp_path / "t.npy"
    with pytest.raises(DataError, match=r"t\.npy: No such file"):
        read_matrix("matrix", str(path))
    path.touch()
    with pytest.raises(DataError, match=r"t\.npy: not an array file"):
        read_matrix("matrix", str(path))
    np.save(path, np.array([{"code": 1}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"t\.npy: not an array file"):
        read_matrix("matrix", str(path))
    np.save(path, np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"must have shape \(C, C\), got \(2, 3\)"):
        read_matrix("matrix", str(path))
