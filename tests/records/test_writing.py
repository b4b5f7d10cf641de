import errno
import math
import os
import tempfile

import pytest

from imae.errors import ImaeError
from imae.records.files import explained_writing, whole_file
from imae.records.folder import plain


def test_a_failure_to_write_says_how_to_continue(tmp_path):
    with (
        pytest.raises(ImaeError, match=r"x: cannot be written .*choose another folder \(--out\)$"),
        explained_writing(tmp_path / "x", tmp_path / "run"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
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


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*labels\.csv"):
        write_in(tmp_path / "labels.csv")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OSError, match=r"No space left on device: .*labels\.csv"):
        write_in(tmp_path / "labels.csv")


def write_in(path):
    with whole_file(path) as file:
        file.write(b"content")
