import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles
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
