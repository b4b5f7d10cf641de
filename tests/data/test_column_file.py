from pathlib import Path

import numpy as np
import pytest

from imae.data.columns import ColumnFile, first_invalid
from imae.errors import DataError


class Header(ColumnFile):
    def read(self, values, numbers):  # noqa: ARG002
        return {}, np.empty((0, 0), np.float32)


def test_names_are_kept_in_order():
    assert Header(Path("x.csv"), ["b", "a"]).names == ("b", "a")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["", "a"], r"x\.csv: column 1 has no name"),
        (["a", " "], r"x\.csv: column 2 has no name"),
        (["a", "b", "a"], "two columns are named 'a'"),
    ],
)
def test_unclear_names_are_refused(names, message):
    with pytest.raises(DataError, match=message):
        Header(Path("x.csv"), names)


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ([1.0, 3.4e38], None),
        ([1.0, 3.5e38], 1),
        ([np.nan, 1.0], 0),
        ([1.0, 2.0, -np.inf], 2),
        ([], None),
    ],
)
def test_the_first_that_does_not_fit_is_found(numbers, wrong):
    assert first_invalid(np.array(numbers)) == wrong
