import json
from dataclasses import replace

import numpy as np
import polars
import pytest
import torch
from PIL import Image

from imae.data import Table, Unlabelled, from_dataset, load, load_unlabelled
from imae.data.preparation import describe_preparation, without_rows
from imae.errors import ArgumentError, DataError


def everything(inputs):
    return inputs.batch(np.arange(len(inputs)), generator=None)


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,height,label\n30,1.5,ill\n50,1.9,well\n40,1.6,ill\n20,1.8,well\n")
    return path


@pytest.fixture
def tiles(tmp_path):
    pixels = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (8, 5, 5), dtype=np.uint8)
    path = tmp_path / "tiles.npz"
    np.savez(path, x=pixels, y=np.arange(8) % 2)
    return path


def read(path, source, **options):
    given = {name: options.pop(name) for name in ("root",) if name in options}
    described = json.loads(json.dumps(describe_preparation(load(source, **options).train.inputs)))
    return load_unlabelled(path, like=without_rows(described), options=options, **given)


def test_rows_without_labels_become_a_split():
    rows = Unlabelled(Table(np.ones((2, 1), np.float32)), np.array(["a", "b"]))
    split = rows.split(["x", "y"])
    assert len(rows) == len(split) == 2
    assert split.class_names == ("x", "y")


@pytest.mark.parametrize("name", ["people.csv", "tiles.npz", "pets"])
def test_the_training_file_itself_is_prepared_as_in_training(
    name, people, tiles, photo_folder, tmp_path
):
    assert {people.name, tiles.name, photo_folder.name} == {"people.csv", "tiles.npz", "pets"}
    source = str(tmp_path / name)
    rows, training = read(source, source), load(source)
    assert rows.row_ids.tolist() == training.train.row_ids.tolist()
    assert everything(rows.inputs).equal(everything(training.train.inputs))


def test_features_are_found_by_name_whatever_else_is_there(people, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("id,note,height,age\nann,tall,1.9,50\nbob,small,1.5,30\n")
    rows = read(new, people)
    assert rows.row_ids.tolist() == ["ann", "bob"]
    assert everything(rows.inputs).equal(everything(load(people).train.inputs)[[1, 0]])


def test_a_feature_may_be_called_as_an_id_is(tmp_path):
    source = tmp_path / "source.csv"
    source.write_text("id,weight,label\n1,2,a\n3,4,b\n")
    rows = read(source, source, feature_columns=["id", "weight"])
    assert rows.row_ids.tolist() == ["0", "1"]
    assert rows.inputs.values.tolist() == [[-1, -1], [1, 1]]


def test_parquet_and_arrays_fit_a_table_too(people, tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"height": [1.9], "age": [50]})
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet")
    np.save(tmp_path / "new.npy", np.array([[50.0, 1.9]]))
    np.save(tmp_path / "row_ids.npy", np.array(["ann"]))
    expected = everything(load(people).train.inputs)[[1]]
    for name, row_id in (("new.parquet", "0"), ("new.npy", "ann")):
        rows = read(tmp_path / name, people)
        assert rows.row_ids.tolist() == [row_id]
        assert everything(rows.inputs).equal(expected)


def test_a_table_fits_a_run_on_arrays_by_its_number_of_columns(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.array([[1.0, 2.0], [3.0, 6.0]]), y=[0, 1])
    new = tmp_path / "new.csv"
    new.write_text("row_id,first,second,label\na,3,6,none\n")
    rows = read(new, tmp_path / "set.npz")
    assert rows.inputs.values.tolist() == [[1, 1]]


def test_texts(tmp_path):
    source, new = tmp_path / "source.csv", tmp_path / "new.csv"
    source.write_text("review,label\ngood film,yes\nbad film,no\n")
    new.write_text("text\nbad film\n")
    rows = read(new, source, text_column="review")
    expected = everything(load(source, text_column="review").train.inputs)[[1]]
    assert everything(rows.inputs).equal(expected)


def test_a_folder_of_photos_flat_or_nested(photo_folder, photo, tmp_path):
    photo(tmp_path / "new" / "b.jpg", seed=5)
    photo(tmp_path / "new" / "deep" / "er" / "a.png", seed=6)
    (tmp_path / "new" / "notes.txt").write_text("no image")
    rows = read(tmp_path / "new", photo_folder, resize=20, crop=16)
    assert rows.row_ids.tolist() == ["b.jpg", "deep/er/a.png"]
    assert everything(rows.inputs).shape == (2, 3, 16, 16)


def test_paths_in_a_file(photo_folder, tmp_path):
    new = tmp_path / "lists" / "new.csv"
    new.parent.mkdir()
    new.write_text("path\ncat/1.jpg\ndog/0.jpg\n")
    with pytest.raises(DataError, match=r"new\.csv: row 'cat/1\.jpg': .*cannot be opened"):
        read(new, photo_folder)
    rows = read(new, photo_folder, root=photo_folder)
    training = load(photo_folder).train
    places = [training.row_ids.tolist().index(name) for name in rows.row_ids]
    assert everything(rows.inputs).equal(everything(training.inputs)[places])
    new.write_text("path\n../../outside.jpg\n")
    with pytest.raises(DataError, match="points outside"):
        read(new, photo_folder)


def test_files_for_a_run_on_grey_images_in_memory(tiles, tmp_path):
    with np.load(tiles) as arrays:
        pixels = arrays["x"]
    (tmp_path / "new").mkdir()
    Image.fromarray(pixels[3]).save(tmp_path / "new" / "grey.png")
    colour = np.stack([pixels[4], pixels[5], pixels[6]], axis=2)
    Image.fromarray(colour).save(tmp_path / "new" / "colour.png")
    rows = read(tmp_path / "new", tiles)
    assert rows.row_ids.tolist() == ["colour.png", "grey.png"]
    assert rows.inputs.pixels[0, 0].tolist() == (
        np.asarray(Image.fromarray(colour).convert("L")).tolist()
    )
    assert rows.inputs.pixels[1, 0].tolist() == pixels[3].tolist()
    assert everything(rows.inputs)[1].equal(everything(load(tiles).train.inputs)[3])


def test_colour_images_read_into_memory(photo, tmp_path):
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        photo(tmp_path / "set" / name, width=6, height=6, seed=ord(name[2]))
    rows = read(tmp_path / "set" / "b", tmp_path / "set", in_memory=True)
    expected = everything(load(tmp_path / "set", in_memory=True).train.inputs)[[2]]
    assert everything(rows.inputs).equal(expected)


def test_arrays_for_a_run_on_files(photo_folder, tmp_path):
    np.save(tmp_path / "new.npy", np.zeros((2, 16, 16, 3), np.uint8))
    rows = read(tmp_path / "new.npy", photo_folder, resize=20, crop=16)
    files = load(photo_folder).train.inputs
    assert (rows.inputs.mean, rows.inputs.std) == (files.mean, files.std)
    with pytest.raises(DataError, match=r"\(3, 16, 16\); .* images of shape \(3, 227, 227\)"):
        read(tmp_path / "new.npy", photo_folder)


def test_a_known_set_gives_its_test_rows_in_the_training_scale():
    training = load("digits")
    like = replace(training.train.inputs, mean=(0.5,), std=(0.5,))
    rows = load_unlabelled("digits", like=like)
    assert rows.row_ids.tolist() == training.test.row_ids.tolist()
    assert (rows.inputs.mean, rows.inputs.std) == ((0.5,), (0.5,))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("new.csv", "age,size\n1,2\n", "no column 'height'; trained on 'age', 'height', given"),
        ("new.csv", "age,height\n", "holds no rows"),
        ("new.csv", "age,height\n1,tall\n", "line 2, column 'height': 'tall' is not a number"),
        ("new.csv", "age,height\n1,1\n1,3e38\n", "row '1', column 'height': 3e.38 is too far"),
        ("new.csv", "row_id,id,age,height\n1,1,1,1\n", "both row_id and id"),
        ("new.csv", "id,age,height\na,1,1\na,1,1\n", "row id 'a' appears twice"),
        ("new.npy", np.zeros((2, 3)), r"features of shape \(3,\); .* features of shape \(2,\)"),
        ("new.npy", np.zeros((2, 4, 4), np.uint8), r"holds images of shape \(1, 4, 4\)"),
        ("new.npy", np.zeros((0, 2)), "holds no rows"),
        ("new.txt", "", "neither a folder nor a file of a known kind"),
        ("new", None, "new: holds no image"),
    ],
)
def test_rows_that_do_not_fit_are_one_line(people, tmp_path, name, content, message):
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    with pytest.raises(DataError, match=message) as caught:
        read(path, people)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_ids_beside_an_array_must_be_as_many(people, tmp_path):
    np.save(tmp_path / "new.npy", np.zeros((2, 2)))
    np.save(tmp_path / "row_ids.npy", np.array(["a"]))
    with pytest.raises(DataError, match=r"2 rows of inputs but row_ids of shape \(1,\)"):
        read(tmp_path / "new.npy", people)


def test_texts_and_paths_need_their_column(tiles, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("name\nx\n")
    with pytest.raises(DataError, match="no column 'path', as rows of images need; given 'name'"):
        read(new, tiles)
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "nowhere", tiles)


def test_messages_about_new_rows_name_what_helps(people, tmp_path):
    path = tmp_path / "new.csv"
    like = load(people).train.inputs
    lines = people.read_text().splitlines()
    path.write_text("\n".join([lines[0], ",".join("z" for _ in lines[0].split(","))]))
    with pytest.raises(DataError, match="the run was trained on this column; correct it") as caught:
        load_unlabelled(path, like=like)
    assert "--drop" not in str(caught.value)
    texts = tmp_path / "texts.csv"
    texts.write_text("text,label\n" + "good film,a\nbad film,b\n" * 3)
    path.write_text("words\ngood\n")
    with pytest.raises(DataError, match="there is no column 'text', as rows of texts need"):
        load_unlabelled(path, like=load(texts).train.inputs)


def test_columns_of_a_frame_are_found_by_their_names(people):
    frame = polars.DataFrame({"height": [1.5, 1.9], "pet": [0, 0], "age": [30, 50]})
    found = everything(read(frame, people).inputs)
    assert torch.equal(found, everything(load(people).train.inputs)[:2])
    with pytest.raises(DataError, match="the rows given: there is no column 'age'; trained on"):
        read(frame.drop("age"), people)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_is_read_as_a_file_of_the_same_cells(library, tmp_path):
    frames = pytest.importorskip(library)
    path, new = tmp_path / "messy.csv", tmp_path / "new.parquet"
    cells = ["red,$1.50,2024-01-01,0.5", "blue,,2024-02-01,", "red,$20,,1", "blue,$3,2024-03-05,2"]
    lines = [f"{cell},{'ab'[row % 2]}" for row, cell in enumerate(cells * 4)]
    path.write_text("\n".join(["colour,price,day,size,label", *lines]))
    frame = frames.read_csv(path)
    frame.to_parquet(new) if library == "pandas" else frame.write_parquet(new)
    found = read(frame, path)
    assert torch.equal(everything(found.inputs), everything(read(new, path).inputs))
    assert torch.equal(everything(found.inputs), everything(load(path).train.inputs))
    assert found.row_ids.tolist() == [str(row) for row in range(16)]
    with pytest.raises(DataError, match="'price' was a number in training and is not one here"):
        read(frames.DataFrame({**{n: ["x"] for n in frame.columns}, "size": [1.0]}), path)
    texts = tmp_path / "texts.csv"
    texts.write_text("text,label\n" + "good film,a\nbad film,b\n" * 3)
    same = read(frames.DataFrame({"text": ["good film", "bad film"]}), texts)
    assert torch.equal(everything(same.inputs), everything(read(texts, texts).inputs)[:2])


def test_no_rows_in_memory_are_refused(tiles):
    with pytest.raises(DataError, match="the rows given: there are none"):
        read(torch.utils.data.TensorDataset(torch.zeros(0, 5, 5)), tiles)


def test_tensors_are_taken_where_a_data_set_was_trained_on():
    pairs = torch.utils.data.TensorDataset(torch.eye(4), torch.arange(4) % 2)
    rows = load_unlabelled(2 * torch.eye(4), like=from_dataset(pairs).train.inputs)
    assert torch.equal(everything(rows.inputs), 2 * torch.eye(4))
    assert rows.row_ids.tolist() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("rows", [5, object()])
def test_what_is_no_rows_is_refused(tiles, rows):
    with pytest.raises(ArgumentError, match="must be an array, a data frame or a map-style data"):
        read(rows, tiles)


def test_a_run_that_skipped_bad_images_skips_new_ones(tmp_path):
    for name in ("old/a/1.png", "old/b/2.png", "new/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / name)
    (tmp_path / "new" / "bad.png").write_bytes(b"no image")
    rows = read(tmp_path / "new", tmp_path / "old", on_bad_image="skip")
    assert rows.row_ids.tolist() == ["3.png"]
    assert rows.notes[0].startswith("1 images cannot be read and are skipped")
