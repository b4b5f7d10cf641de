import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.data import table
from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles
from imae.data.loading import load, load_unscaled
from imae.data.table import load_manifest
from imae.errors import DataError


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def test_paths_become_images(photo_folder):
    path = write(photo_folder / "list.csv", "path,label\ncat/0.jpg,cat\ndog/1.jpg,dog\n")
    data = load_manifest(path, resize=20, crop=16, flip=False)
    assert isinstance(data.train.inputs, ImageFiles)
    assert data.name == "list"
    assert data.train.row_ids.tolist() == ["cat/0.jpg", "dog/1.jpg"]
    assert data.train.inputs.batch(np.arange(2), generator=None).shape == (2, 3, 16, 16)
    assert not data.train.inputs.flip


def test_paths_are_relative_to_the_root_that_is_given(photo_folder, tmp_path):
    path = write(tmp_path / "list.csv", "path,label\ncat/0.jpg,a\ndog/1.jpg,b\n")
    data = load_manifest(path, root=photo_folder)
    assert data.train.inputs.root == photo_folder


def test_texts_become_hashed_words(tmp_path):
    path = write(tmp_path / "reviews.csv", 'text,label\n"good, very",1\nbad,0\n')
    data = load_manifest(path)
    expected = hash_text(["good, very", "bad"])
    assert data.train.inputs.content_hash() == expected.content_hash()
    assert data.train.row_ids.tolist() == ["0", "1"]
    assert data.train.labels.tolist() == [1, 0]


def test_numbers_become_a_table(tmp_path):
    path = write(tmp_path / "t.csv", "id,a,label,b\nr7,1,x,2\nr8,3,y,4\n")
    data = load_manifest(path)
    assert isinstance(data.train.inputs, Table)
    assert data.train.inputs.values.tolist() == [[1, 2], [3, 4]]
    assert data.train.row_ids.tolist() == ["r7", "r8"]


def test_all_optional_columns(tmp_path):
    path = write(
        tmp_path / "t.csv",
        "row_id,a,label,clean_label,split,weight\n"
        "p,1,x,y,train,0.5\nq,2,y,y,train,1\nr,3,x,x,val,2\ns,4,y,x,test,3\n",
    )
    data = load_manifest(path)
    assert data.train.clean_labels.tolist() == [1, 1]
    assert data.train.weights.tolist() == [0.5, 1]
    assert data.train.inputs.values.tolist() == [[1], [2]]
    assert data.validation.row_ids.tolist() == ["r"]
    assert (data.test.labels.tolist(), data.test.clean_labels.tolist()) == ([1], [0])


def test_parquet_gives_the_same_as_csv(tmp_path):
    columns = {
        "id": ["p", "q", "r"],
        "a": [1.0, 2.0, 3.5],
        "label": [3, 1, 3],
        "split": ["train", "train", "test"],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(map(str, row)) for row in [tuple(columns), *rows]]
    write(tmp_path / "t.csv", "\n".join(lines))
    for name in ("t.csv", "t.parquet"):
        data = load_manifest(tmp_path / name)
        assert data.train.labels.tolist() == [1, 0]
        assert data.class_names == ("1", "3")
        assert data.train.inputs.values.tolist() == [[1], [2]]
        assert data.test.row_ids.tolist() == ["r"]


def test_bytes_in_parquet_are_text(tmp_path):
    table = pyarrow.table({"text": [b"good", b"bad"], "label": [b"x", b"y"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    data = load_manifest(tmp_path / "t.parquet")
    assert data.class_names == ("x", "y")
    assert data.train.inputs.content_hash() == hash_text(["good", "bad"]).content_hash()


def test_rows_are_needed(tmp_path):
    with pytest.raises(DataError, match=r"t\.csv: has a header and no rows"):
        load_manifest(write(tmp_path / "t.csv", "a,label\n"))


def stored(columns, folder):
    """The columns as a CSV file, a Parquet file, and frames of polars, of pandas and of Arrow."""
    polars = pytest.importorskip("polars")
    pytest.importorskip("pandas")
    frame = polars.DataFrame(columns)
    frame.write_csv(folder / "rows.csv")
    frame.write_parquet(folder / "rows.parquet")
    plain = frame.to_pandas()
    arrow = plain.convert_dtypes(dtype_backend="pyarrow")
    return [folder / "rows.csv", folder / "rows.parquet", frame, plain, arrow]


ANSWERS = [True, None, False, True]


@pytest.mark.parametrize("answers", [ANSWERS, [True, False, False, True]], ids=["missing", "all"])
@pytest.mark.parametrize("words", [{}, {"colour": ["red", "blue"] * 8}], ids=["numbers", "words"])
def test_booleans_are_words_in_files_and_frames(tmp_path, answers, words):
    columns = {"size": np.arange(16.0) ** 2, "member": answers * 4, **words, "label": [0, 1] * 8}
    kinds = stored(columns, tmp_path)
    uses = {use for each in kinds for name, use in load(each).columns if name == "member"}
    assert uses == {f"category of 2 words{', 4 cells empty' if None in answers else ''}"}
    found = [load(each).train.inputs for each in kinds]
    for each in found:
        assert [name.lower() for name in each.columns] == [x.lower() for x in found[0].columns]
        np.testing.assert_array_equal(each.values, found[0].values)


def test_booleans_are_not_weights(tmp_path):
    columns = {"x": [1.0, 2.0], "weight": [True, False], "label": [0, 1]}
    for each in stored(columns, tmp_path):
        with pytest.raises(DataError, match=r"column 'weight'.*(number|booleans)"):
            load(each)


def test_typed_numbers_with_empty_cells_are_not_read_cell_by_cell(tmp_path, monkeypatch):
    draws = np.random.default_rng(0)
    numbers = draws.normal(size=(50, 3)).round(3).tolist()
    numbers[7][1] = numbers[9][1] = None
    columns = {f"x{index}": [row[index] for row in numbers] for index in range(3)}
    columns["count"] = list(range(0, 100, 2))
    kinds = stored({**columns, "label": [0, 1] * 25}, tmp_path)
    found = [load_unscaled(each)[0] for each in kinds]
    for each in found:
        assert each.train.inputs.content_hash() == found[0].train.inputs.content_hash()
        assert each.columns == found[0].columns
        assert each.notes == found[0].notes
    monkeypatch.setattr(table, "as_column", None)
    for each in kinds[1:]:
        load_unscaled(each)
    with pytest.raises(TypeError):
        load_unscaled(kinds[0])  # of text, where it is needed


@pytest.mark.parametrize("wrong", [float("inf"), -1e39])
def test_numbers_that_do_not_fit_are_named_beside_empty_cells(tmp_path, wrong):
    columns = {"x": [1.0, 2.0, wrong], "z": [None, 1.0, 2.0], "label": [0, 1, 0]}
    for each in stored(columns, tmp_path):
        with pytest.raises(DataError, match=r"(row 2 .*|line 4), column 'x' is (inf|-1e\+39);"):
            load(each)


def test_rows_of_a_table_are_whole_in_memory_if_a_column_is_left_out(tmp_path):
    columns = {"x": [1.5, 2.5] * 15, "number": range(30), "z": [0.5] * 30, "label": [0, 1] * 15}
    for each in stored(columns, tmp_path):
        data = load(each)
        assert data.train.inputs.columns == ("x", "z")
        assert data.train.inputs.values.flags.c_contiguous  # batches are rows of it


@pytest.mark.parametrize("seed", range(40))
def test_far_cells_are_found_as_by_sorting_all_cells(seed):
    draws = np.random.default_rng(seed)
    values = draws.standard_t(1.2 + seed % 4, size=draws.integers(1, 4000))
    values = values.round(int(draws.integers(0, 4)))
    if seed % 3 == 0:
        values[: len(values) // 500] = 10.0 ** draws.integers(1, 5)
    low, high = np.percentile(values, (25, 75))
    expected = low < high and values.std() > 20 * (high - low)
    assert bool(table._far_cells("x", values)) == expected
    assert table._least_width(values) <= high - low
