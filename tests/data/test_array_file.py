import numpy as np
import pytest

from imae.data.arrays import load_array_file, read_inputs
from imae.data.features import Table
from imae.data.images import ArrayImages
from imae.errors import DataError

Y = np.array([0, 1, 1, 0])


def pixels(*shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(1)).integers(0, 256, shape, dtype=np.uint8)


def save(tmp_path, **arrays):
    np.savez(tmp_path / "set.npz", **arrays)
    return tmp_path / "set.npz"


@pytest.mark.parametrize(
    ("shape", "one"),
    [((4, 6, 5), (1, 6, 5)), ((4, 6, 5, 3), (3, 6, 5)), ((4, 1, 6, 5), (1, 6, 5))],
)
def test_images_in_any_order_of_dimensions(tmp_path, shape, one):
    values = pixels(*shape)
    data = load_array_file(save(tmp_path, x=values, y=Y), pad=1, flip=False)
    images = data.train.inputs
    assert isinstance(images, ArrayImages)
    assert images.shape == one
    assert (images.pad, images.flip) == (1, False)
    expected = values.transpose(0, 3, 1, 2) if shape[-1] == 3 else values.reshape(4, *one)
    assert np.array_equal(images.pixels, expected)
    assert data.train.row_ids.tolist() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("inputs", ["x", "images", "features"])
@pytest.mark.parametrize("labels", ["y", "labels"])
def test_all_names_are_known(tmp_path, inputs, labels):
    data = load_array_file(save(tmp_path, **{inputs: np.eye(4), labels: Y}))
    assert isinstance(data.train.inputs, Table)
    assert data.train.inputs.values.tolist() == np.eye(4).tolist()
    assert data.name == "set"


def test_all_optional_arrays(tmp_path):
    path = save(
        tmp_path,
        x=np.eye(4, dtype=np.int16),
        y=np.array([b"a", b"b", b"a", b"b"]),
        row_ids=np.array(["p", "q", "r", "s"]),
        clean_labels=np.array(["b", "b", "a", "b"]),
        split=np.array(["train", "train", "test", "val"]),
        weights=np.array([1.0, 2.0, 3.0, 4.0]),
        class_names=np.array(["a", "b", "c"]),
    )
    data = load_array_file(path)
    assert data.class_names == ("a", "b", "c")
    assert data.train.row_ids.tolist() == ["p", "q"]
    assert data.train.clean_labels.tolist() == [1, 1]
    assert data.validation.weights.tolist() == [4]
    assert data.test.inputs.values.tolist() == [[0, 0, 1, 0]]


def test_npy_files_side_by_side(tmp_path):
    np.save(tmp_path / "pictures.npy", pixels(4, 3, 6, 5))
    np.save(tmp_path / "labels.npy", Y)
    np.save(tmp_path / "row_ids.npy", np.array([10, 11, 12, 13]))
    data = load_array_file(tmp_path / "pictures.npy")
    assert data.train.labels.tolist() == Y.tolist()
    assert data.train.row_ids.tolist() == ["10", "11", "12", "13"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.eye(4)}, "needs one array called y or labels, has none"),
        ({"y": Y}, "needs one array called x or images or features, has none"),
        ({"x": np.eye(4), "images": np.eye(4), "y": Y}, "has x and images"),
        ({"x": np.eye(4), "y": Y, "labels": Y}, "has y and labels"),
        ({"x": np.eye(3), "y": Y}, r"3 rows of inputs but y of shape \(4,\)"),
        ({"x": np.eye(4), "y": Y[:, None]}, r"y of shape \(4, 1\)"),
        ({"x": np.eye(4), "y": Y, "row_ids": np.array(["a"])}, "row_ids of shape"),
        ({"x": np.arange(4.0), "y": Y}, r"inputs of shape \(4,\)"),
        ({"x": np.float32(pixels(4, 6, 5)), "y": Y}, "images must be uint8"),
        ({"x": pixels(4, 6, 5, 2), "y": Y}, "need 1 or 3 channels"),
        ({"x": pixels(4, 3, 5, 3), "y": Y}, "need 1 or 3 channels"),
        ({"x": pixels(4, 0, 5), "y": Y}, r"inputs of shape \(4, 0, 5\)"),
        ({"x": np.array([["a"]] * 4), "y": Y}, "must be numbers, got <U1"),
        ({"x": np.diag([1, 1, np.nan, 1]), "y": Y}, "row 2 .* holds nan"),
        ({"x": np.eye(4), "y": Y, "weights": np.array([1, 1, 1, np.inf])}, "row 3 .* holds inf"),
        ({"x": np.eye(4), "y": Y + 0.5}, "row '0': label 0.5 is neither"),
        ({"x": np.eye(4), "y": Y, "class_names": np.array("cat")}, "class_names must be a list"),
    ],
)
def test_refuses(tmp_path, arrays, message):
    path = save(tmp_path, **arrays)
    with pytest.raises(DataError, match=message) as caught:
        load_array_file(path)
    assert str(caught.value).startswith(str(path))


def test_inputs_and_ids_without_labels(tmp_path):
    inputs, ids = read_inputs(save(tmp_path, features=np.eye(2), row_ids=["a", "b"], y=["x"]))
    assert inputs.values.tolist() == [[1, 0], [0, 1]]
    assert ids.tolist() == ["a", "b"]
    assert read_inputs(save(tmp_path, x=pixels(3, 4, 4)))[1].tolist() == ["0", "1", "2"]
    with pytest.raises(DataError, match=r"2 rows of inputs but row_ids of shape \(1,\)"):
        read_inputs(save(tmp_path, x=np.eye(2), row_ids=["a"]))


def test_predicting_needs_no_labels_that_can_be_read(tmp_path):
    path = tmp_path / "x.npz"
    labels = np.array([None, "a"], object)
    np.savez(path, x=np.eye(2), y=labels, class_names=labels, row_ids=np.array(["p", "q"]))
    inputs, ids = read_inputs(path)
    assert (len(inputs), ids.tolist()) == (2, ["p", "q"])
