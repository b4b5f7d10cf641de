import random

import numpy as np
import polars
import pytest
import scipy.sparse
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from imae.data.batches import Batches
from imae.data.features import Table, hash_text
from imae.data.images import ArrayImages
from imae.data.loading import as_data
from imae.data.torch_dataset import DatasetInputs, from_arrays, from_dataset
from imae.errors import ArgumentError, DataError


class Jittered(Dataset):
    """Items with noise from torch's global generator, as transforms have it."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, item: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(item)) + torch.rand(2), item % 2


class Listed(Dataset):
    """Items from a list, with labels beside them if given."""

    def __init__(self, items, targets=None):
        self.items = items
        if targets is not None:
            self.targets = targets

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, item: int):
        return self.items[item]


def test_a_tensor_data_set_becomes_data():
    train = TensorDataset(torch.eye(4), torch.tensor([0, 1, 1, 0]))
    test = TensorDataset(torch.ones(2, 4), torch.tensor([1, 0]))
    data = from_dataset(train, test=test, name="pairs")
    assert data.name == "pairs"
    assert data.train.labels.tolist() == [0, 1, 1, 0]
    assert data.test.labels.tolist() == [1, 0]
    assert data.train.row_ids.tolist() == ["0", "1", "2", "3"]
    assert data.train.inputs.shape == (4,)
    assert data.train.inputs.batch(np.array([2, 0]), generator=None).tolist() == [
        [0, 0, 1, 0],
        [1, 0, 0, 0],
    ]


def test_random_transforms_become_reproducible_in_any_number_of_workers():
    data = from_dataset(Jittered())
    before = torch.get_rng_state()
    epochs = [
        [batch.inputs for batch in Batches(data.train, 5, seed=1, workers=workers).epoch(epoch)]
        for workers, epoch in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert torch.equal(before, torch.get_rng_state())
    same, again, helped, later = (torch.cat(epoch) for epoch in epochs)
    assert torch.equal(same, again)
    assert torch.equal(same, helped)
    assert not torch.equal(same, later)
    assert len(torch.unique(same - same.floor())) == 24


def test_targets_are_used_instead_of_reading_all_items():
    data = from_dataset(Listed([(np.zeros(2), "never read")] * 4, targets=["b", "a", "b", "a"]))
    assert data.class_names == ("a", "b")
    assert data.train.labels.tolist() == [1, 0, 1, 0]
    tensors = from_dataset(Listed([(np.zeros(2), 9)] * 2, targets=torch.tensor([1, 0])))
    assert tensors.train.labels.tolist() == [1, 0]


def test_class_names_can_be_given():
    dataset = TensorDataset(torch.eye(2), torch.tensor([0, 1]))
    assert from_dataset(dataset, class_names=["x", "y", "z"]).num_classes == 3


def test_take_and_content_hash():
    inputs = from_dataset(TensorDataset(torch.eye(3), torch.tensor([0, 1, 0]))).train.inputs
    taken = inputs.take(np.array([2, 1]))
    assert taken.batch(np.array([0]), generator=None).tolist() == [[0, 0, 1]]
    assert taken.content_hash() != inputs.content_hash()
    assert inputs.take(np.arange(3)).content_hash() == inputs.content_hash()


def test_uint8_inputs_become_float():
    dataset = TensorDataset(torch.full((2, 3), 7, dtype=torch.uint8), torch.tensor([0, 1]))
    batch = from_dataset(dataset).train.inputs.batch(np.array([0]), generator=None)
    assert batch.dtype == torch.float32
    assert batch.tolist() == [[7, 7, 7]]


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(ArgumentError, match="map-style"):
        from_dataset(Stream())


def test_mixed_shapes_name_the_item():
    data = from_dataset(Listed([(torch.zeros(2), 0), (torch.zeros(3), 1)]))
    with pytest.raises(DataError, match=r"item 1 of the data set has shape \(3,\)"):
        data.train.inputs.batch(np.arange(2), generator=None)


def test_inputs_that_are_no_numbers_name_the_item():
    data = from_dataset(Listed([("text", 0), ("more", 1)]))
    with pytest.raises(DataError, match="item 0 of the data set is a str"):
        data.train.inputs.batch(np.arange(1), generator=None)


def test_a_label_never_seen_in_training_names_the_row():
    train = TensorDataset(torch.eye(2), torch.tensor([0, 1]))
    test = TensorDataset(torch.eye(2), torch.tensor([0, 2]))
    with pytest.raises(DataError, match="dataset, test: row '1': label 2 was never seen"):
        from_dataset(train, test=test)


def test_labels_go_through_the_transform_of_the_targets():
    dataset = Listed([(np.zeros(2), item % 2) for item in range(4)], targets=[0, 1, 2, 3])
    dataset.target_transform = lambda label: label % 2
    assert from_dataset(dataset).train.labels.tolist() == [0, 1, 0, 1]
    dataset.target_transform = None
    assert from_dataset(dataset).train.labels.tolist() == [0, 1, 2, 3]


def test_a_label_of_several_numbers_names_the_row():
    one_hot = torch.eye(2)
    items = [(torch.zeros(3), one_hot[item]) for item in range(2)]
    with pytest.raises(DataError, match=r"dataset, train: row '0': label .* is neither a name nor"):
        from_dataset(Listed(items))


class Shaken(Jittered):
    """Items with noise from Python's global generator, which the workers' seeds decide."""

    def __getitem__(self, item: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([random.random()]), item % 2


def test_foreign_randomness_is_not_the_same_in_every_epoch():
    batches = Batches(from_dataset(Shaken()).train, 12, seed=1, shuffle=False, workers=1)
    first, second, again = (next(batches.epoch(epoch)).inputs for epoch in (0, 1, 0))
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_arrays_become_features_images_or_inputs_as_they_are():
    labels = ["a", "b", "a"]
    table = from_arrays(np.arange(6).reshape(3, 2), labels).train
    assert isinstance(table.inputs, Table)
    assert table.inputs.mean is None
    assert table.class_names == ("a", "b")
    images = from_arrays(np.zeros((3, 8, 8, 3), np.uint8), labels).train.inputs
    assert isinstance(images, ArrayImages)
    assert images.shape == (3, 8, 8)
    ready = from_arrays(torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 1])).train
    assert isinstance(ready.inputs, DatasetInputs)
    assert ready.inputs.shape == (1, 4, 4)


def test_arrays_of_other_lengths_or_types_are_refused():
    with pytest.raises(DataError, match="3 rows of inputs but labels of shape"):
        from_arrays(np.eye(3), [0, 1])
    with pytest.raises(DataError, match="must be numbers"):
        from_arrays(np.array([["a"], ["b"]]), [0, 1])
    with pytest.raises(ArgumentError, match="an array, a data frame or a map-style data set"):
        from_arrays(3, [0, 1])


def test_data_in_any_form_is_taken():
    pairs = TensorDataset(torch.eye(4), torch.arange(4) % 2)
    data = as_data(pairs)
    assert as_data(data) is data
    frame = polars.DataFrame({"x": [1.0, 2.0], "label": ["cat", "dog"], "z": [3.0, 4.0]})
    found = as_data(frame).train
    assert found.class_names == ("cat", "dog")
    assert found.inputs.columns == ("x", "z")
    arrays = as_data((np.eye(4), np.arange(4) % 2)).train
    assert arrays.labels.tolist() == data.train.labels.tolist() == [0, 1, 0, 1]


def test_a_frame_has_columns_of_any_name_and_type_of_number():
    frames = pytest.importorskip("pandas")
    frame = frames.DataFrame({0: [1.5, 2.0], "label": ["cat", "dog"]})
    frame[2] = frames.array([3, 4], dtype="Int64")
    found = as_data(frame).train.inputs
    assert found.columns == ("0", "2")
    assert found.values.tolist() == [[1.5, 3.0], [2.0, 4.0]]
    with pytest.raises(DataError, match=r"frame: row 1 .*, column '3' is inf; numbers must be fin"):
        as_data(frame.assign(**{"3": [1.0, float("inf")]}))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_cells_that_hold_several_values_are_one_line(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
    with pytest.raises(DataError, match="frame: column 'x' holds a list in each cell, not numbers"):
        as_data(frame)
    if library == "pandas":
        frame = frames.DataFrame({"x": [1 + 2j, 3 + 4j], "label": [0, 1]})
        words = as_data(frame).train.inputs.columns[0]
        assert words.kind == "category", "no part of a complex number is left out"


def test_objects_that_are_numbers_are_numbers():
    numbers = np.array([[1, 2.5], [True, "4"]], dtype=object)
    assert from_arrays(numbers, [0, 1]).train.inputs.values.tolist() == [[1, 2.5], [1, 4]]
    with pytest.raises(DataError, match=r"objects that are not all numbers .*give a data frame"):
        from_arrays(np.array([[1, "red"], [2, None]], dtype=object), [0, 1])
    with pytest.raises(DataError, match="arrays: the rows are not all of one length"):
        from_arrays([[1, 2], [3]], [0, 1])


@pytest.mark.parametrize("item", [{"x": 1, "label": 0}, torch.zeros(2), "ab", 3])
def test_items_that_are_no_pairs_are_one_line(item):
    with pytest.raises(DataError, match=f"item 0 of the data set is a {type(item).__name__}, not"):
        from_dataset(Listed([item] * 4))


def test_items_without_a_label_are_inputs():
    inputs = DatasetInputs(Listed([torch.ones(3), np.zeros(3)]), np.arange(2))
    assert inputs.batch(np.arange(2), generator=None).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_an_input_of_one_number_is_one_line():
    with pytest.raises(DataError, match="item 0 of the data set is one number; inputs have at"):
        from_dataset(Listed([(0.5, 0), (0.25, 1)])).train.inputs.shape  # noqa: B018


def test_texts_are_rows():
    texts = ["good film", "bad film", None]
    found = from_arrays(texts, ["yes", "no", "no"]).train.inputs
    expected = hash_text(["good film", "bad film", ""])
    assert found.content_hash() == expected.content_hash()
    assert from_arrays(np.array(texts[:2]), [0, 1]).train.inputs.texts == ("good film", "bad film")
    one = polars.DataFrame({"text": texts})
    assert from_arrays(one, ["yes", "no", "no"]).train.inputs.column == "text"
    assert from_arrays(one["text"], [0, 1, 1]).train.inputs.texts == ("good film", "bad film", "")


def test_masked_values_are_not_read():
    mask = np.zeros((3, 2), bool)
    rows = np.ma.masked_array(np.arange(6.0).reshape(3, 2), mask)
    labels = np.ma.masked_array([0, 1, 9], [False, False, True])
    with pytest.raises(DataError, match=r"arrays: row '2': the label is missing; fill it in or"):
        from_arrays(rows, labels)
    assert from_arrays(rows, [0, 1, 1]).train.inputs.values[2, 1] == 5
    mask[2, 1] = True
    rows = np.ma.masked_array(rows, mask)
    with pytest.raises(
        DataError, match=r"arrays: 1 values are masked, the first in row 2 \(counted"
    ):
        from_arrays(rows, [0, 1, 1])


def test_missing_labels_of_pandas_are_missing():
    frames = pytest.importorskip("pandas")
    rows = np.eye(3)
    for labels in (
        frames.Series([1, 0, None], dtype="Int64"),
        frames.Series(["a", "b", None], dtype="string"),
        frames.Series(["a", "b", None], dtype="category"),
        frames.Series([True, False, None], dtype="boolean"),
        np.array(["a", "b", frames.NA], dtype=object),
        np.array(["a", "b", frames.NaT], dtype=object),
        frames.to_datetime(frames.Series(["2024-01-01", "2024-01-02", None])).astype(object),
    ):
        with pytest.raises(DataError, match=r"row '2': the label is missing|row '0': label Timest"):
            from_arrays(rows, labels)
    whole = from_arrays(rows, frames.Series([1, 0, 5], dtype="Int64"))
    assert whole.class_names == ("0", "1", "5")


@pytest.mark.parametrize(
    ("labels", "names", "kind"),
    [
        (np.array([1, -1, 1]), ("-1", "1"), "integer"),
        (np.array([7.0, 3.0, 7.0]), ("3", "7"), "integer"),
        (np.array([True, False, True]), ("False", "True"), "boolean"),
        (np.array([np.True_, False, np.int64(1)], dtype=object), ("0", "1"), "integer"),
        (["9", "10", "9"], ("9", "10"), "name"),
        (np.array(["b", "a", "b"]), ("a", "b"), "name"),
    ],
)
def test_any_labels_are_classes_in_sorted_order(labels, names, kind):
    data = from_arrays(np.eye(3), labels)
    assert (data.class_names, data.label_kind) == (names, kind)
    assert data.train.labels.tolist() == ([0, 1, 0] if names == ("9", "10") else [1, 0, 1])


def test_minus_one_is_a_class_and_a_note_says_so_where_it_may_mean_no_label():
    (note,) = as_data((np.eye(6), [0, 1, 2, -1, 0, 1])).notes[:1]
    assert note.startswith("1 training rows have the label -1, which counts as a class; remove")
    assert as_data((np.eye(4), [-1, 1, 1, -1])).notes == ()
    with pytest.raises(DataError, match="row '3': label -100 means no label in PyTorch; remove"):
        from_arrays(np.eye(4), [0, 1, 0, -100])
    named = from_arrays(np.eye(2), [True, False], class_names=["no", "yes"])
    assert named.train.labels.tolist() == [1, 0]


def test_numbers_that_numpy_does_not_have():
    rows = torch.tensor([[0.5, 1.0], [2.0, 4.0]])
    found = from_arrays(rows.bfloat16(), [0, 1]).train.inputs
    assert found.values.tolist() == rows.tolist()
    for sparse in (rows.to_sparse(), scipy.sparse.csr_matrix(rows.numpy())):
        with pytest.raises(ArgumentError, match="must not be sparse; give"):
            from_arrays(sparse, [0, 1])


@pytest.mark.parametrize(
    "rows",
    [
        np.eye(3),
        torch.eye(3),
        [1, 2, 3],
        5,
        object(),
        scipy.sparse.csr_matrix(np.eye(3)),
        polars.DataFrame({"x": [1], "label": [0]}).lazy(),
        polars.DataFrame({"x": [1], "label": [0]}).to_arrow(),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_what_has_no_labels_is_refused(rows):
    with pytest.raises(ArgumentError, match=f"data must be .* got {type(rows).__name__}"):
        as_data(rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["x", "z"], r"frame: has no column label .*; say which holds the labels with label_col"),
        (
            ["label", "target"],
            r"has both label and target; .* with label_column \(--label-column label\)",
        ),
    ],
)
def test_a_frame_needs_one_column_of_labels(columns, message):
    frame = polars.DataFrame({name: [0, 1] for name in columns})
    with pytest.raises(DataError, match=message):
        as_data(frame)
