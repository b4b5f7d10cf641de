import json
from pathlib import Path

import numpy as np
import pytest

from imae.data.features import Table, hash_text
from imae.data.image_files import ImageFiles
from imae.data.images import ArrayImages
from imae.data.preparation import describe_preparation, without_rows
from imae.errors import DataError

TABLE = Table(np.zeros((2, 2), np.float32), columns=("a", "b"), mean=(0.1, 2.0), std=(1 / 3, 1.0))
INPUTS = {
    "table": TABLE,
    "table without names": Table(np.zeros((1, 1), np.float32), mean=(0.0,), std=(1e-30,)),
    "images": ArrayImages(np.zeros((2, 3, 5, 4), np.uint8), mean=(0.1, 0.2, 0.3), std=(1, 2, 3)),
    "files": ImageFiles(Path("x"), ("a.png",), resize=40, crop=30, std=(0.1, 0.2, 0.3)),
    "texts": hash_text(["good film"], num_features=32),
}


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_what_is_described_comes_back_without_rows(inputs):
    described = describe_preparation(inputs)
    found = without_rows(json.loads(json.dumps(described)))
    assert type(found) is type(inputs)
    assert len(found) == 0
    assert found.shape == inputs.shape
    assert describe_preparation(found) == described


FINE = describe_preparation(TABLE)
IMAGES = describe_preparation(INPUTS["images"])
FILES = describe_preparation(INPUTS["files"])


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"kind": "videos", "mean": [], "std": []},
        FINE | {"std": [0.0, 1.0]},
        FINE | {"std": [1.0]},
        FINE | {"mean": [0.0, float("nan")]},
        FINE | {"mean": 3},
        {name: value for name, value in FINE.items() if name != "columns"},
        IMAGES | {"shape": [3, 5]},
        IMAGES | {"shape": [1, 5, 4]},
        IMAGES | {"shape": [3, 5, True]},
        FILES | {"crop": 41},
        FILES | {"resize": "40"},
        {"kind": "texts", "num_features": 0},
    ],
)
def test_what_is_no_description_is_one_line(described):
    with pytest.raises(DataError, match="preparation of rows is not understood") as caught:
        without_rows(described)
    assert "\n" not in str(caught.value)
