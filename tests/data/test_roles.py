from pathlib import Path

import numpy as np
import pytest

from imae.data.columns import ColumnFile, find_roles
from imae.data.table_file import open_columns
from imae.errors import ArgumentError, DataError


class Header(ColumnFile):
    def __init__(self, *names: str) -> None:
        super().__init__(Path("x.csv"), names)

    def read(self, values, numbers):  # noqa: ARG002
        return {}, np.empty((0, 0), np.float32)


def test_names_say_what_columns_mean():
    roles = find_roles(Header("path", "label", "row_id", "clean_label", "split", "weight", "note"))
    assert (roles.path, roles.label, roles.row_id) == ("path", "label", "row_id")
    assert (roles.clean_label, roles.split, roles.weight) == ("clean_label", "split", "weight")
    assert (roles.text, roles.features) == (None, ())
    assert roles.uses() == {
        "path": "path of an image",
        "label": "label",
        "row_id": "row id",
        "clean_label": "true label, not trained on",
        "split": "part of the data",
        "weight": "weight of the row",
    }
    assert roles.values() == ["label", "row_id", "clean_label", "split", "path"]


@pytest.mark.parametrize("label", ["label", "labels", "target", "y"])
def test_what_is_left_are_features(label):
    roles = find_roles(Header("a", label, "id", "b", "weight"))
    assert roles.label == label
    assert roles.row_id == "id"
    assert roles.features == ("a", "b")
    assert roles.weight == "weight"


def test_what_the_caller_says_wins():
    header = Header("kind", "label", "weight", "height")
    roles = find_roles(header, label_column="kind", feature_columns=["weight", "height"])
    assert (roles.label, roles.weight, roles.features) == ("kind", None, ("weight", "height"))
    assert find_roles(header, label_column="kind", feature_columns="height").features == ("height",)
    roles = find_roles(Header("clean_label", "id", "height"), label_column="clean_label")
    assert (roles.label, roles.clean_label, roles.row_id) == ("clean_label", None, "id")
    assert find_roles(Header("id", "height"), label_column="id").row_id is None
    assert find_roles(Header("review", "y"), text_column="review").text == "review"
    assert find_roles(Header("file", "y"), path_column="file").path == "file"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("a", "b"), {}, "no column label or labels or target or y; say which"),
        (("label", "y", "a"), {}, "both label and y"),
        (("id", "row_id", "y", "a"), {}, "both row_id and id"),
        (("path", "text", "y"), {}, "either paths or texts or features as inputs"),
        (("label",), {}, "either paths or texts or features as inputs, found none"),
        (("path", "a", "y"), {"feature_columns": ["a"]}, "either paths or texts or features"),
        (("labell", "a"), {"label_column": "label"}, "no column 'label'; did you mean 'labell'"),
        (("y", "a"), {"feature_columns": ["zzz"]}, "no column 'zzz'; columns: 'y', 'a'"),
        (
            ("y", "kind", "a"),
            {"label_column": "kind"},
            "'y' beside the labels in 'kind'; leave",
        ),
    ],
)
def test_what_is_not_clear_is_refused(names, options, message):
    with pytest.raises(DataError, match=f"^x.csv: .*{message}"):
        find_roles(Header(*names), **options)


def test_many_columns_are_not_all_listed():
    with pytest.raises(DataError) as caught:
        find_roles(Header(*(f"c{i}" for i in range(1000))))
    assert len(str(caught.value)) < 250


def test_a_column_is_asked_for_by_its_name():
    with pytest.raises(ArgumentError, match="by name, got 2"):
        find_roles(Header("0", "1", "2"), label_column=2)


def test_a_missing_label_column_is_looked_for_among_the_last_columns():
    names = [f"feature{number}" for number in range(30)]
    with pytest.raises(DataError) as caught:
        find_roles(Header("x" * 50, *names, "diagnosis"))
    assert f"'{'x' * 39}…', 'feature0'" in str(caught.value)
    assert "..., 'feature28', 'feature29', 'diagnosis'" in str(caught.value)


def test_labels_that_are_dropped_are_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("size,label\n1,a\n2,b\n")
    with pytest.raises(DataError, match="column 'label' holds the labels and is dropped; keep it"):
        find_roles(open_columns(path), drop=["label"])
