import numpy as np
import pytest

from imae.errors import ArgumentError, DataError
from imae.methods.matrix import Structure


def test_everything_is_open_where_nothing_is_known():
    assert Structure("open").mask(3).all()


def test_tridiagonal_means_neighbours():
    expected = [[abs(i - j) <= 1 for j in range(5)] for i in range(5)]
    assert Structure("tridiagonal").mask(5).tolist() == expected


def test_column_means_the_diagonal_and_the_columns():
    expected = [[i == j or j in (1, 3) for j in range(5)] for i in range(5)]
    assert Structure("column", columns=[1, 3]).mask(5).tolist() == expected


def test_block_means_one_group():
    groups = [[0, 3], [1], [4, 2]]
    expected = [[any(i in g and j in g for g in groups) for j in range(5)] for i in range(5)]
    assert Structure("block", groups=groups).mask(5).tolist() == expected


def test_any_mask_can_be_given(tmp_path):
    mask = [[1, 0, 1], [0, 1, 0], [1, 1, 1]]
    np.save(tmp_path / "mask.npy", np.array(mask))
    np.savetxt(tmp_path / "mask.csv", np.array(mask), delimiter=",")
    for source in (mask, str(tmp_path / "mask.npy"), str(tmp_path / "mask.csv")):
        assert Structure(source).mask(3).astype(int).tolist() == mask
    with pytest.raises(DataError, match=r"none\.csv: No such file"):
        Structure(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("diagonal", {}, "must be one of open, column, tridiagonal, block, a .csv or .npy file"),
        ("column", {}, "columns must be given for the structure 'column' and no other"),
        ("open", {"columns": [1]}, "columns must be given for"),
        ("block", {}, "groups must be given for the structure 'block' and no other"),
        ("tridiagonal", {"groups": [[0]]}, "groups must be given for"),
        ([[1, 2], [0, 1]], {}, "only zeros and ones"),
        ([[1, 0], [0, 0]], {}, "leave every class a label, row 1 has none"),
    ],
)
def test_parts_that_do_not_fit_are_refused(kind, options, says):
    with pytest.raises(ArgumentError, match=says):
        Structure(kind, **options)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("column", {"columns": []}, r"columns must list classes, got \[\]"),
        ("column", {"columns": "13"}, "columns must list classes, got '13'"),
        ("column", {"columns": [3]}, "columns must hold classes under 3, got 3"),
        ("column", {"columns": [-1]}, "columns must be at least 0"),
        ("column", {"columns": [1.0]}, "columns must be an integer"),
        ("block", {"groups": [[0, 1]]}, "groups must hold every class, class 2 is in none"),
        ("block", {"groups": [[0, 1], [1, 2]]}, "class 1 comes twice"),
        ("block", {"groups": [[0, 0], [1, 2]]}, "class 0 comes twice"),
        ("block", {"groups": [0, 1, 2]}, "groups must list classes, got 0"),
        ([[1, 0], [0, 1]], {}, r"must be for 3 classes, got \(2, 2\)"),
    ],
)
def test_a_structure_for_other_classes_is_refused(kind, options, says):
    with pytest.raises(ArgumentError, match=says):
        Structure(kind, **options).mask(3)


def test_the_last_class_is_taken():
    assert Structure("column", columns=[2]).mask(3)[:, 2].all()


def test_an_array_is_a_structure():
    matrix = np.array([[1, 1], [0, 1]])
    assert Structure(matrix).kind == Structure(matrix.tolist()).kind == "given"
