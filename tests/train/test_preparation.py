import json

import pytest

from imae.data import ArrayImages
from imae.data.preparation import describe_preparation
from imae.errors import DataError
from imae.records import RunFolder
from imae.train.preparation import read_preparation
from imae.train.rows import describe, prepare


@pytest.fixture
def written(configure, tmp_path):
    folder = RunFolder(tmp_path / "written")
    folder.write_preparation(describe(prepare(configure()), None))
    return folder


def test_what_is_written_is_read(written, configure):
    prepared = prepare(configure())
    found = read_preparation(written)
    assert found.class_names == prepared.train.class_names
    assert found.input_shape == prepared.train.inputs.shape
    assert found.features is None
    assert isinstance(found.like, ArrayImages)
    assert describe_preparation(found.like) == found.described
    assert found.like.mean == prepared.train.inputs.mean


@pytest.mark.parametrize(("data", "is_held_out"), [({}, True), ({"hold_out": 0.0}, False)])
def test_the_number_of_validation_rows_is_written(configure, data, is_held_out):
    prepared = prepare(configure(data=data))
    content = describe(prepared, None)
    number = 0 if prepared.validation is None else len(prepared.validation)
    assert (content["num_validation"], content["is_held_out"]) == (number, is_held_out)
    assert (number > 0) == is_held_out


def test_features_of_a_frozen_network(written):
    content = written.preparation()
    images = content["preparation"]
    content["preparation"] = {
        "kind": "frozen_features",
        "network": "resnet50",
        "images": images,
        "mean": [1.5, 2.0],
        "std": [0.5, 1.0],
    }
    content["input_shape"] = [2]
    written.write_preparation(content)
    found = read_preparation(written)
    assert describe_preparation(found.like) == images
    assert (found.features.mean, found.features.std) == ((1.5, 2.0), (0.5, 1.0))


@pytest.mark.parametrize(
    "change",
    [
        {"preparation": {}},
        {"preparation": {"kind": "frozen_features"}},
        {"preparation": 3},
        {"class_names": None},
        {"input_shape": ["wide"]},
    ],
)
def test_a_damaged_file_is_one_line(written, change):
    path = written.path / "preparation.json"
    path.write_text(json.dumps(written.preparation() | change))
    with pytest.raises(DataError, match=r"preparation\.json: is damaged .* train the run again"):
        read_preparation(written)
