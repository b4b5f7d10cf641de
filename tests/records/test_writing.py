import errno
import math

import pytest

from imae.errors import ImaeError
from imae.records.files import explained_writing
from imae.records.folder import plain


def test_a_failure_to_write_says_how_to_continue(tmp_path):
    with (
        pytest.raises(ImaeError, match=r"x: cannot be written \(No space left .* --resume .*run"),
        explained_writing(tmp_path / "x", tmp_path / "run"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ValueError, match="passes"), explained_writing(tmp_path, tmp_path):
        raise ValueError("passes")


def test_values_that_json_knows():
    assert plain({1: (math.nan, -math.inf, 1.5), "a": [{"b": math.inf}], "c": None}) == {
        "1": [None, None, 1.5],
        "a": [{"b": None}],
        "c": None,
    }
