import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.data.parquet_file import ParquetFile
from imae.errors import DataError


def write(tmp_path, **columns):
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_columns_come_as_values_and_numbers(tmp_path):
    path = write(
        tmp_path,
        label=["cat", None, "🐕"],
        number=[1, 2, 3],
        flag=[True, False, True],
        value=[0.5, 1.5, 2.5],
        written=["1", "2", "3.5"],
    )
    file = ParquetFile(path)
    values, numbers = file.read(["label", "number"], ["value", "number", "flag", "written"])
    assert values == {"label": ["cat", None, "🐕"], "number": [1, 2, 3]}
    assert numbers.tolist() == [[0.5, 1, 1, 1], [1.5, 2, 0, 2], [2.5, 3, 1, 3.5]]
    assert numbers.dtype == np.float32
    assert file.names == ("label", "number", "flag", "value", "written")


def test_dictionaries_are_read_as_their_values(tmp_path):
    path = write(tmp_path, label=pyarrow.array(["a", "b", "a"]).dictionary_encode())
    assert ParquetFile(path).read(["label"], [])[0] == {"label": ["a", "b", "a"]}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, None], r"row 1 \(counted from 0\), column 'x' is nan"),
        ([float("inf"), 1.0], r"row 0 \(counted from 0\), column 'x' is inf"),
        (["a", "b"], "column 'x' holds string, not numbers"),
        ([[1.0], [2.0]], "column 'x' holds list<.*>, not numbers"),
    ],
)
def test_what_is_no_number_is_named(tmp_path, column, message):
    with pytest.raises(DataError, match=message):
        ParquetFile(write(tmp_path, x=column)).read([], ["x"])


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -20])
def test_a_cut_file_is_refused(tmp_path, keep):
    path = write(tmp_path, x=list(range(100)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"x\.parquet: is (empty|cut off)") as caught:
        ParquetFile(path).read([], ["x"])
    assert "\n" not in str(caught.value)


def test_many_rows_in_few_bytes_are_a_trap(tmp_path):
    path = tmp_path / "x.parquet"
    schema = pyarrow.schema([("x", pyarrow.int64())])
    block = pyarrow.table({"x": np.zeros(2**20, np.int64)}, schema=schema)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(40):
            writer.write_table(block)
    with pytest.raises(DataError, match="refused as a trap"):
        ParquetFile(path).read([], ["x"])
