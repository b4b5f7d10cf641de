import numpy as np
import pytest

from imae.data.labels import LabelColumn, encode_labels
from imae.errors import DataError


def column(values, source="pets.csv") -> LabelColumn:
    return LabelColumn(source, np.array([f"id {row}" for row in range(len(values))]), values)


@pytest.mark.parametrize(
    ("values", "numbers", "names"),
    [
        (["dog", "cat", "dog"], [1, 0, 1], ("cat", "dog")),
        ([" dog", "cat ", "dog"], [1, 0, 1], ("cat", "dog")),
        (["10", "9", "10"], [1, 0, 1], ("9", "10")),
        ([10, 9, 10], [1, 0, 1], ("9", "10")),
        (["007", "7", "10"], [0, 2, 1], ("007", "10", "7")),
        (["10", "9", "cat"], [0, 1, 2], ("10", "9", "cat")),
        ([True, False, True], [1, 0, 1], ("False", "True")),
        ([True, 0, 1], [1, 0, 1], ("0", "1")),
        ([np.int64(3), np.bool_(False), 3.0], [1, 0, 1], ("0", "3")),
        (["1", "-1", "1"], [1, 0, 1], ("-1", "1")),
        ([1, -1, 1], [1, 0, 1], ("-1", "1")),
        ([b"dog", b"cat", b"dog"], [1, 0, 1], ("cat", "dog")),
        (["größe", "🐕", "größe"], [0, 1, 0], ("größe", "🐕")),
        (["1" * 30, "2", "2"], [0, 1, 1], ("1" * 30, "2")),
        ([10.0, 9.0, 10.0], [1, 0, 1], ("9", "10")),
        (["10.0", "9", "10"], [1, 0, 1], ("9", "10")),
        (["1.0", "1.5", "1.0"], [0, 1, 0], ("1.0", "1.5")),
    ],
)
def test_classes_are_sorted_as_numbers_or_as_names(values, numbers, names):
    (encoded,), classes = encode_labels([column(values)], [])
    assert encoded.tolist() == numbers
    assert encoded.dtype == np.int64
    assert classes == names


def test_the_training_columns_decide_together():
    given, clean = column(["a", "b"]), column(["c", "a"])
    encoded, names = encode_labels([given, clean], [column(["c"])])
    assert names == ("a", "b", "c")
    assert [labels.tolist() for labels in encoded] == [[0, 1], [2, 0], [2]]


def test_one_name_anywhere_makes_all_labels_names():
    _, names = encode_labels([column([2, 10])], [column(["2", "10"])])
    assert names == ("2", "10")
    with pytest.raises(DataError, match="label 'x' was never seen"):
        encode_labels([column([2, 10])], [column(["x"])])


def test_given_class_names_are_counted_from_zero():
    (encoded,), names = encode_labels([column([2, 0])], [], class_names=["x", "y", "z"])
    assert (encoded.tolist(), names) == ([2, 0], ("x", "y", "z"))
    (encoded,), _ = encode_labels([column(["z", "x"])], [], class_names=["x", "y", "z"])
    assert encoded.tolist() == [2, 0]


def test_a_text_that_is_the_name_of_a_class_means_it():
    written = [str(number) for number in range(11)]
    names = sorted(written)
    (encoded,), _ = encode_labels([column(written)], [], class_names=names)
    assert [names[label] for label in encoded] == written


@pytest.mark.parametrize(
    ("written", "names", "numbers"),
    [
        (["1.0", "0.0"], ["1", "0"], [0, 1]),
        (["10", "2", "2.0"], sorted(map(str, range(12))), [2, 4, 4]),
        (["1", "2", "1"], ["1", "2", "3"], [0, 1, 0]),
        ([0, 2], ["1", "2", "3"], [0, 2]),
        (["0", "1.0"], ["cat", "dog"], [0, 1]),
    ],
)
def test_known_classes_are_named_or_counted(written, names, numbers):
    (encoded,), _ = encode_labels([column(written)], [], class_names=names)
    assert encoded.tolist() == numbers


def test_each_column_says_by_itself_whether_it_names_known_classes():
    encoded, _ = encode_labels(
        [column([0, 1]), column(["dog", "cat"])], [], class_names=["cat", "dog"]
    )
    assert [labels.tolist() for labels in encoded] == [[0, 1], [1, 0]]
    with pytest.raises(DataError, match="label '0' is not one of the classes"):
        encode_labels([column(["0", "1"])], [], class_names=["1", "2", "3"])


def test_a_number_that_no_float_holds_exactly_is_no_class():
    with pytest.raises(DataError, match="neither a name nor a whole number"):
        encode_labels([column([1e300, 0.0])], [])


def test_names_of_folders_are_taken_as_they_stand():
    folders = LabelColumn("pets", np.array(["0", "1", "2"]), ["nan", "a", "a "], are_names=True)
    _, names = encode_labels([folders], [])
    assert names == ("a", "a ", "nan")


@pytest.mark.parametrize("missing", ["", "  ", None, float("nan"), "nan", "NaN", np.float64("nan")])
def test_a_missing_label_names_file_and_row(missing):
    with pytest.raises(DataError, match=r"pets\.csv: row 'id 1': the label is missing"):
        encode_labels([column(["cat", missing, "dog"])], [])


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        ([0, 1.5], None, "row 'id 1': label 1.5 is neither a name nor a whole number"),
        ([np.eye(3)[0], 1], None, r"row 'id 0': a label of shape \(3,\): give the class, not one"),
        ([0, -100], None, "row 'id 1': label -100 means no label in PyTorch; remove such rows"),
        (["0", "-100"], None, "row 'id 1': label -100 means no label in PyTorch"),
        ([0, -1], ["a", "b"], "row 'id 1': label -1 is not one of the classes"),
        ([0, 3], ["x", "y", "z"], "row 'id 1': label 3 is not one of the classes"),
        (["x", "w"], ["x", "y"], "row 'id 1': label 'w' is not one of the classes"),
        (["x", "x"], None, "'x' is the only class"),
        ([5, 5], None, "5 is the only class"),
        ([0, 1], ["x", "x"], "two classes have the same name"),
        ([0, 0], ["x"], "only class"),
    ],
)
def test_refuses(values, names, message):
    with pytest.raises(DataError, match=message):
        encode_labels([column(values)], [], class_names=names)


def test_missing_labels_are_counted():
    with pytest.raises(
        DataError, match=r"row 'id 1': the label is missing \(and of 2 more rows\);"
    ):
        encode_labels([column(["cat", None, "dog", "", " nan"])], [])


def test_many_classes_are_not_all_listed():
    with pytest.raises(DataError) as caught:
        encode_labels([column([f"c{i:03}" for i in range(500)])], [column(["x"])])
    assert len(str(caught.value)) < 200
