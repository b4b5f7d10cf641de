import numpy as np
import pytest

from imae.errors import ArgumentError, DataError
from imae.records.files import check_overwriting, read_file
from imae.records.measures import HELD_OUT, MEASURES, NOISY, wilson


def test_a_measure_needs_its_rows_and_which_labels_are_wrong():
    given = np.array([True, False])
    assert NOISY.accuracy({"given": given}) is None
    assert NOISY.accuracy({"given": given, "is_wrong": np.array([False, False])}) is None
    assert HELD_OUT.accuracy({"held_out": given}) == 0.5


def test_directions_are_said():
    assert HELD_OUT.direction == " (higher is better)"
    assert NOISY.direction == " (lower is better)"
    assert {each.direction for each in MEASURES if each.higher_is_better is None} == {""}


@pytest.mark.parametrize(("share", "number"), [(1.0, 3), (0.0, 3), (0.1, 30), (0.5, 1000)])
def test_the_range_of_a_share_is_that_of_so_many_rows(share, number):
    from scipy.stats import binomtest

    expected = binomtest(round(share * number), number).proportion_ci(method="wilson")
    assert wilson(share, number) == pytest.approx(tuple(expected), abs=1e-3)


def test_files_of_a_run_and_files_that_exist_are_not_written_over(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ArgumentError, match="is a file of a run"):
        check_overwriting(tmp_path / "config.json", overwrite=True)
    (tmp_path / "mine.csv").write_text("")
    with pytest.raises(ArgumentError, match="exists already"):
        check_overwriting(tmp_path / "mine.csv", overwrite=False)
    check_overwriting(tmp_path / "mine.csv", overwrite=True)
    check_overwriting(tmp_path / "new.csv", overwrite=False)


def test_what_is_not_a_regular_file_is_not_read(tmp_path):
    with pytest.raises(DataError, match="is not a regular file"):
        read_file(tmp_path)
