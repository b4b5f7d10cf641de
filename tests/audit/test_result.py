"""The result of an audit: order, table, files."""

import json
import zipfile

import numpy as np
import pytest

from imae.audit import Audit
from imae.errors import DataError
from imae.records import RunFolder, RunLabels


def found(**changes):
    content = {
        "row_ids": np.array(["a", "b", "c"]),
        "given": np.array([0, 1, 1]),
        "class_names": ("cat", "dog"),
        "suspicion": np.array([0.2, 0.9, 0.2]),
        "wrong_probability": np.array([0.1, 0.8, 0.1]),
        "suggested": np.array([0, 0, 1]),
        "suggested_probability": np.array([0.9, 0.7, 0.9]),
        "is_flagged": np.array([False, True, False]),
        "fits_no_class": np.array([False, False, True]),
        "group": np.array([0, 0, -1]),
        "noise_rate": 0.3,
        "noise_rate_low": 0.2,
        "noise_rate_high": 0.4,
        "transition": np.array([[0.9, 0.1], [0.2, 0.8]]),
    }
    return Audit(**content | changes)


def test_rows_come_most_suspect_first_and_ties_keep_their_order():
    assert found().order().tolist() == [1, 0, 2]
    assert [row["row_id"] for row in found().rows()] == ["b", "a", "c"]


def test_a_row_of_the_table_holds_plain_values():
    first, *_, last = found().rows()
    assert first == {
        "row_id": "b",
        "given": "dog",
        "suggested": "cat",
        "wrong_probability": 0.8,
        "suggested_probability": 0.7,
        "is_flagged": True,
        "fits_no_class": False,
        "group": 0,
    }
    assert last["group"] is None
    json.dumps(first)


def test_the_mask_is_true_where_the_label_is_believed():
    assert found().mask().tolist() == [True, False, True]


@pytest.mark.parametrize("clean", [None, np.array([0, 0, 1])])
def test_a_saved_audit_loads_as_it_was(tmp_path, clean):
    saved = found(clean=clean)
    saved.save(RunFolder(tmp_path))
    loaded = Audit.load(RunFolder(tmp_path))
    for name, value in vars(saved).items():
        np.testing.assert_array_equal(getattr(loaded, name), value, err_msg=name)


def test_a_folder_without_an_audit_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="imae audit"):
        Audit.load(RunFolder(tmp_path))


def test_a_label_outside_the_classes_is_refused(tmp_path):
    found(suggested=np.array([0, 2, 1])).save(RunFolder(tmp_path))
    with pytest.raises(DataError, match="do not match"):
        Audit.load(RunFolder(tmp_path))


def test_a_packed_file_is_refused_before_it_unpacks(tmp_path):
    found().save(RunFolder(tmp_path))
    path = tmp_path / "audit" / "audit.npz"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"audit.npz: cannot be read"):
        Audit.load(RunFolder(tmp_path))


def test_files_of_two_audits_are_refused(tmp_path):
    one, two = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    found().save(one)
    found(is_flagged=np.array([True, True, False]), class_names=("dog", "cat")).save(two)
    (one.path / "audit" / "audit.json").write_bytes((two.path / "audit/audit.json").read_bytes())
    with pytest.raises(DataError, match=r"are of two audits; audit again"):
        Audit.load(one)


@pytest.mark.parametrize(
    ("ids", "given", "names", "message"),
    [
        ("abx", [0, 1, 1], ["cat", "dog"], "row 'c' differs"),
        ("abc", [0, 0, 1], ["cat", "dog"], "row 'b' differs"),
        ("abc", [0, 1, 1], ["dog", "cat"], "the classes differ"),
        ("cabx", [1, 0, 1, 0], ["cat", "dog"], None),  # other rows may have been planted
    ],
)
def test_an_audit_of_other_labels_than_those_of_the_run_is_refused(
    tmp_path, ids, given, names, message
):
    folder = RunFolder(tmp_path)
    folder.write_labels(RunLabels(np.array(list(ids)), np.array(given), np.array(names)))
    found().save(folder)
    if message is None:
        assert len(Audit.load(folder)) == 3
        return
    with pytest.raises(DataError, match=f"of other labels than those of the run .{message}"):
        Audit.load(folder)


def test_a_folder_that_does_not_exist_is_no_run(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such run"):
        Audit.load(RunFolder(tmp_path / "nowhere"))
