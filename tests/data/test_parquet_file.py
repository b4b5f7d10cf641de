import resource
import tracemalloc

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.data import load
from imae.data.table_file import ParquetFile
from imae.errors import DataError


def write(tmp_path, **columns):
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_the_index_of_pandas_is_no_column(tmp_path):
    path = write(tmp_path, label=["a", "b"], x=[1.0, 2.0], __index_level_0__=[5, 9])
    assert ParquetFile(path).names == ("label", "x")


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
    assert numbers.dtype == np.float64
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


def test_many_rows_in_few_bytes_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    schema = pyarrow.schema([("x", pyarrow.int64())])
    block = pyarrow.table({"x": np.zeros(2**20, np.int64)}, schema=schema)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(40):
            writer.write_table(block)
    with pytest.raises(DataError, match="refused"):
        ParquetFile(path).read([], ["x"])


@pytest.mark.parametrize("is_dictionary", [False, True])
@pytest.mark.parametrize("as_value", [True, False])
def test_a_long_text_repeated_in_few_bytes_is_refused(tmp_path, as_value, is_dictionary):
    words = pyarrow.DictionaryArray.from_arrays(np.zeros(600, np.int32), ["a" * 2**20])
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": words}), path, store_schema=is_dictionary)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="refused"):
        ParquetFile(path).read(*(["text"], [])[:: 1 if as_value else -1])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 * 1024


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
def test_every_kind_of_text_is_kept_once(tmp_path, kind):
    texts = pyarrow.array(["a", None, "a"]).cast(getattr(pyarrow, kind)())
    values = ParquetFile(write(tmp_path, x=texts)).read(["x"], [])[0]["x"]
    assert values == texts.to_pylist()
    assert values[0] is values[2]


def test_texts_with_gaps_in_several_groups_come_in_order(tmp_path):
    path = tmp_path / "x.parquet"
    texts = ["a", None, "b", "a", "", "c", None, "b"]
    table = pyarrow.table({"text": texts, "bytes": [text and text.encode() for text in texts]})
    pyarrow.parquet.write_table(table, path, row_group_size=3)
    values, _ = ParquetFile(path).read(["text", "bytes"], [])
    assert values["text"] == texts
    assert values["bytes"] == [text if text is None else text.encode() for text in texts]


@pytest.mark.parametrize(
    "column", [[[1], [2]], [{"a": 1}, {"a": 2}], pyarrow.array([b"ab", b"cd"], pyarrow.binary(2))]
)
def test_columns_that_are_not_flat_are_refused(tmp_path, column):
    with pytest.raises(DataError, match=r"column 'x' holds .*; .*drop it"):
        ParquetFile(write(tmp_path, x=column)).read(["x"], [])


def test_a_dot_in_a_name_is_a_letter_like_others(tmp_path):
    path = write(tmp_path, **{"sepal.length": [1.0, 2.0], "sepal": [3.0, 4.0]})
    file = ParquetFile(path)
    assert file.read([], ["sepal.length"])[1].ravel().tolist() == [1, 2]
    assert file.read([], ["sepal"])[1].ravel().tolist() == [3, 4]


def test_changed_bytes_never_escape_as_another_error(tmp_path):
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"text": ["a b", "c", "d"] * 9, "number": ["1", "2", "3"] * 9})
    pyarrow.parquet.write_table(table, path, compression="none", store_schema=False)
    good = path.read_bytes()
    refusals = []
    for place in range(len(good)):
        path.write_bytes(good[:place] + b"\xff" + good[place + 1 :])
        try:
            file = ParquetFile(path)
            if {"text", "number"} <= set(file.names):
                file.read(["text"], ["number"])
        except DataError as error:
            refusals.append(str(error))
    assert len(refusals) > len(good) // 4
    assert not any("\n" in refusal for refusal in refusals)


def test_a_small_file_of_very_many_labels_is_refused(tmp_path):
    """Each value becomes an object of Python: 20 KB would have taken some hundred megabytes."""
    rows = 3_000_000
    path = write(tmp_path, row_id=np.zeros(rows, np.int8), label=np.zeros(rows, np.int8))
    assert path.stat().st_size < 30_000
    tracemalloc.start()
    with pytest.raises(DataError, match="would unpack"):
        ParquetFile(path).read(["row_id", "label"], [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_many_booleans_and_few_words_take_little_room_and_are_read(tmp_path):
    draws = np.random.default_rng(1).random((30_000, 40)) < 0.5
    columns = {f"is{number}": column for number, column in enumerate(draws.T)}
    columns |= {"label": np.where(draws[:, 0], "a", "b"), "word": np.where(draws[:, 1], "x", "y")}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "set.parquet")
    assert len(load(str(tmp_path / "set.parquet")).train) == 30_000
