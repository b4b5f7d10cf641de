from dataclasses import replace

import numpy as np
import pytest

from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles
from imae.data.images import ArrayImages, channel_statistics
from imae.data.preparation import fit_preparation, standardise
from imae.data.split import Data, Split
from imae.errors import DataError


def data_of(table_split, train, test) -> Data:
    first = table_split([0, 1, 1])
    return Data("x", replace(first, inputs=train), test=replace(first, inputs=test))


def test_features_are_scaled_by_the_training_rows_alone(table_split):
    train = np.array([[1, 5, 100], [2, 5, 300], [3, 5, 200]], np.float32)
    data = fit_preparation(data_of(table_split, Table(train), Table(train + 1)))
    values = data.train.inputs.values
    assert values.mean(0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert values.std(0) == pytest.approx([1, 0, 1], abs=1e-6)
    assert data.test.inputs.values == pytest.approx(
        (train + 1 - train.mean(0)) / [0.8165, 1, 81.65], 1e-3
    )


def test_large_offsets_keep_their_differences(table_split):
    train = np.array([[1e6], [1e6 + 1], [1e6 + 2]], np.float32)
    data = fit_preparation(data_of(table_split, Table(train), Table(train)))
    assert data.train.inputs.values.ravel() == pytest.approx([-1.2247, 0, 1.2247], abs=1e-3)


def test_images_get_the_statistics_of_the_training_images(table_split, images):
    train = images.take(np.arange(3))
    test = images.take(np.arange(3, 6))
    data = fit_preparation(data_of(table_split, train, test))
    for split in data.splits().values():
        assert isinstance(split.inputs, ArrayImages)
        assert (split.inputs.mean, split.inputs.std) == channel_statistics(train.pixels)
        assert split.inputs.pad == 2


def test_other_inputs_stay_as_they_are(table_split, tmp_path):
    photos = ImageFiles(tmp_path, ("a.png", "b.png", "c.png"))
    data = data_of(table_split, photos, photos)
    assert fit_preparation(data).train is data.train


def test_texts_get_the_weights_of_the_training_rows(table_split):
    train, test = hash_text(["a good film"] * 3), hash_text(["a bad film"] * 3)
    data = fit_preparation(data_of(table_split, train, test))
    for split in data.splits().values():
        assert np.array_equal(split.inputs.weights, train.fit_weights())


def test_the_statistics_stay_with_the_table_and_bring_new_rows_to_its_scale(table_split):
    train = Table(np.array([[1], [2], [6]], np.float32), columns=("age",))
    inputs = fit_preparation(data_of(table_split, train, train)).train.inputs
    assert inputs.mean == (3.0,)
    assert inputs.std == pytest.approx((np.std([1, 2, 6]),))
    ids = np.array(["a", "b", "c"])
    again = standardise(train, inputs.mean, inputs.std, row_ids=ids, source="new")
    assert again.values.tobytes() == inputs.values.tobytes()
    assert again.take(np.array([1])).columns == ("age",)


def test_the_largest_numbers_are_scaled_without_a_warning(table_split):
    most = np.finfo(np.float32).max
    train = Table(np.array([[most], [-most], [0]], np.float32))
    data = fit_preparation(data_of(table_split, train, train))
    assert data.test.inputs.values.ravel() == pytest.approx([1.2247, -1.2247, 0], abs=1e-3)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_that_no_scale_can_hold_is_named(table_split, sign):
    train = Table(np.array([[0, 1e-9], [0, 2e-9], [0, 3e-9]], np.float32), columns=("a", "b"))
    far = np.zeros((3, 2), np.float32)
    far[1, 1] = sign * 1e30
    with pytest.raises(DataError, match=r"x: row 'row 1', column 'b': -?1e\+30 is too far"):
        fit_preparation(data_of(table_split, train, Table(far, columns=("a", "b"))))
    far[1, 1] = sign * 1e28
    largest = fit_preparation(data_of(table_split, train, Table(far))).test.inputs.values
    assert np.isfinite(largest).all()


def test_a_column_of_one_value_keeps_its_scale():
    rows = np.arange(1000)
    table = Table(np.stack([np.full(1000, 0.1), rows], axis=1))
    split = Split(table, rows % 2, rows.astype(str), ("a", "b"))
    fitted = fit_preparation(Data("times", split)).train.inputs
    assert fitted.std[0] == 1.0
    assert abs(fitted.values[:, 0]).max() < 1e-9
