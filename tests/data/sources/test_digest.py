import hashlib

import numpy as np
import pytest

from imae.data.sources.image_set import array_digest, check_digests
from imae.errors import DataError


def test_digest_is_of_type_shape_and_bytes() -> None:
    array = np.array([[1, 2], [3, 4]], np.int64)
    expected = hashlib.sha256(b"<i8 (2, 2)\n" + array.tobytes()).hexdigest()
    assert array_digest(array) == expected


def test_digest_does_not_see_memory_order() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert array_digest(np.asfortranarray(array)) == array_digest(array)
    assert array_digest(array.astype(">i8")) == array_digest(array)


@pytest.mark.parametrize(
    "other",
    [np.array([1, 2, 4], np.uint8), np.array([[1, 2, 3]], np.uint8), np.array([1, 2, 3], np.int8)],
)
def test_digest_sees_values_shape_and_type(other: np.ndarray) -> None:
    assert array_digest(other) != array_digest(np.array([1, 2, 3], np.uint8))


def test_check_gives_the_digests_that_are_expected() -> None:
    array = np.arange(3)
    found = check_digests("file", {"a": array, "b": array}, {"a": array_digest(array)})
    assert found == {"a": array_digest(array)}


def test_check_names_file_and_array() -> None:
    with pytest.raises(
        DataError, match=r"file\.bin: train images of shape \(3,\) are not"
    ) as error:
        check_digests("file.bin", {"train_images": np.arange(3)}, {"train_images": "0" * 64})
    assert "\n" not in str(error.value)
