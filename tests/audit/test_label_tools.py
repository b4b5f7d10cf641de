"""Files of label tools: what is written is read back, and what does not fit is refused."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.audit.decisions import Decision, read_decisions
from imae.audit.label_tools import export
from imae.errors import DataError


def annotated(audit, tmp_path, choose):
    """The tasks of an export with one annotation each, as Label Studio exports them as JSON."""
    export(audit, str(tmp_path / "tasks.json"), format="label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    for number, task in enumerate(tasks):
        choices = choose(task)
        result = [
            {
                "from_name": "label",
                "to_name": "item",
                "type": "choices",
                "value": {"choices": choices},
            }
        ]
        task["annotations"] = [
            {
                "id": number,
                "completed_by": {"id": 7, "email": "a@b.c"},
                "result": result if choices else [],
                "was_cancelled": choices is None,
                "updated_at": "2026-01-01T00:00:00Z",
            }
        ]
    path = tmp_path / "annotated.json"
    path.write_text(json.dumps(tasks))
    return path


def suggestions(task):
    return task["predictions"][0]["result"][0]["value"]["choices"]


def test_suggestions_that_are_annotated_in_label_studio_are_accepted(make_audit, tmp_path):
    audit = make_audit()
    found = read_decisions(audit, [annotated(audit, tmp_path, suggestions)])
    assert sorted(found) == np.flatnonzero(audit.is_flagged).tolist()
    for row, each in found.items():
        expected = "no_class" if audit.fits_no_class[row] else "accept"
        assert (each.decision, each.by) == (expected, "label-studio:a@b.c")
        assert each.label == (None if expected == "no_class" else audit.suggested[row])


def test_given_and_other_labels_and_skipped_tasks_of_label_studio(make_audit, tmp_path):
    audit = make_audit()
    first, second, third = (str(audit.row_ids[row]) for row in (0, 1, 3))
    other = audit.class_names[(audit.given[1] + 2) % 4]
    chosen = {first: [audit.class_names[audit.given[0]]], second: [other], third: None}
    path = annotated(audit, tmp_path, lambda task: chosen.get(task["data"]["item"], []))
    found = read_decisions(audit, [path])
    assert [found[row].decision for row in (0, 1, 3)] == ["keep", "relabel", "flag"]
    assert audit.class_names[found[1].label] == other


def test_the_short_export_of_label_studio_names_rows_by_their_address(make_audit, tmp_path):
    audit = make_audit()
    path = tmp_path / "min.json"
    task = {"image": "/data/local-files/?d=pictures/photo%2F4.jpg", "label": "bird", "annotator": 1}
    unfit = {"image": "photo/5.jpg", "annotator": 1}  # a field without a choice is left out
    path.write_text(json.dumps([{**task, "id": 3, "lead_time": 2.5}, unfit]))
    found = read_decisions(audit, [path])
    assert list(found) == [4, 5]
    assert found[5].decision == "no_class"


def test_labels_of_fiftyone_come_back(make_audit, tmp_path):
    audit = make_audit()
    path = tmp_path / "labels.json"
    export(audit, path, format="fiftyone")
    content = json.loads(path.read_text())
    assert all(isinstance(each["label"], int) for each in content["labels"].values())
    found = read_decisions(audit, [path])
    accepted = [row for row, each in found.items() if each.decision == "accept"]
    assert accepted == np.flatnonzero(audit.suggested != audit.given).tolist()
    assert {found[row].decision for row in set(found) - set(accepted)} == {"keep"}


def test_samples_of_fiftyone_are_found_by_their_path(make_audit, tmp_path):
    audit = make_audit()
    truth = {"_cls": "Classification", "label": "dog"}
    sample = {"filepath": "data/photo/9.jpg", "tags": [], "ground_truth": truth, "other": truth}
    path = tmp_path / "samples.json"
    deleted = [{"filepath": "data/photo/8.jpg", "ground_truth": None, "other": truth}]
    deleted += [{"filepath": "data/photo/7.jpg", "other": truth}]
    path.write_text(json.dumps({"samples": [sample, *deleted]}))
    found = read_decisions(audit, [path])
    assert list(found) == [9, 8, 7]
    assert [found[row].decision for row in (8, 7)] == ["no_class", "no_class"]


@pytest.mark.parametrize("name", ["mask.npy", "mask.csv"])
def test_the_rows_of_a_mask_are_set_apart(make_audit, tmp_path, name):
    audit = make_audit(prefix="=1")
    export(audit, tmp_path / name, format="mask")
    flagged = np.flatnonzero(audit.is_flagged).tolist()
    assert read_decisions(audit, [tmp_path / name]) == dict.fromkeys(flagged, Decision("flag"))


def test_a_class_that_is_called_like_a_guarded_formula_is_itself(make_audit, tmp_path):
    audit = make_audit(class_names=("'=x", "=x", "'=y", "@z"))
    path = tmp_path / "labels.csv"
    path.write_text("row_id,label\nphoto/0.jpg,'=x\nphoto/1.jpg,=x\nphoto/2.jpg,'@z\n")
    labels = [each.label for each in read_decisions(audit, [path]).values()]
    found = [audit.given[row] if label is None else label for row, label in enumerate(labels)]
    assert found == [0, 1, 3]


def test_labels_in_parquet_and_rows_that_were_removed(make_audit, tmp_path):
    audit = make_audit()
    table = {"row_id": ["photo/0.jpg", "photo/1.jpg"], "label": ["cat", ""], "removed": ["", "x"]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "labels.parquet")
    found = read_decisions(audit, [tmp_path / "labels.parquet"])
    assert found[1] == Decision("no_class")
    assert found[0].label == 0 or found[0].decision == "keep"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", "3", "neither an export of Label Studio nor of FiftyOne"),
        ("a.json", '[{"annotations": [{}], "data": {}}]', "neither an export"),
        ("a.json", '[{"data": {"item": "photo/1.jpg"}}]', "a.json: its tasks have no annotations"),
        (
            "a.json",
            '[{"item": "photo/1.jpg", "choice": "cat"}]',
            "a.json: no task has a field label",
        ),
        ("a.json", "[3]", "neither an export"),
        ("a.json", '{"samples": [{"filepath": "photo/1.jpg"}]}', "called ground_truth"),
        ("a.json", '{"labels": {"photo/1": 7}, "classes": ["cat"]}', "7 is not the number"),
        ("a.json", '{"labels": {"photo/1": "cow"}}', "'cow' is none of the classes"),
        ("a.json", '{"labels": {"photo/99": "cat"}}', "row 'photo/99': is not a row"),
        ("a.csv", "row_id,other\n1,2\n", "no columns row_id and decision, label"),
        ("a.npy", "nonsense", "cannot be read"),
        ("a.txt", "nonsense", "is not JSON, CSV or Parquet"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(make_audit, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_decisions(make_audit(), [tmp_path / name])


def test_a_mask_of_other_rows_is_refused(make_audit, tmp_path):
    np.save(tmp_path / "mask.npy", np.zeros(7, bool))
    with pytest.raises(DataError, match="must hold 40 booleans"):
        read_decisions(make_audit(), [tmp_path / "mask.npy"])
