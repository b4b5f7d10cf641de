"""Files of label tools: what is written is read back, and what does not fit is refused."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from imae.audit.correct import correct
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


def test_what_is_prelabelled_in_a_skipped_task_is_nobodys_choice(make_audit, tmp_path):
    audit = make_audit()
    path = annotated(audit, tmp_path, suggestions)
    tasks = json.loads(path.read_text())
    for task in tasks:
        task["annotations"][0]["was_cancelled"] = True
    path.write_text(json.dumps(tasks))
    assert {each.decision for each in read_decisions(audit, [path]).values()} == {"flag"}


def test_the_short_export_of_label_studio_names_rows_by_their_address(make_audit, tmp_path):
    audit = make_audit()
    path = tmp_path / "min.json"
    task = {"image": "/data/local-files/?d=pictures/photo%2F4.jpg", "label": "bird", "annotator": 1}
    unfit = {"image": "photo/5.jpg", "annotator": 1}  # a field without a choice is left out
    path.write_text(json.dumps([{**task, "id": 3, "lead_time": 2.5}, unfit]))
    found = read_decisions(audit, [path])
    assert list(found) == [4, 5]
    assert found[5].decision == "no_class"


def test_suggestions_that_nobody_looked_at_in_fiftyone_are_the_programs(make_audit, tmp_path):
    audit = make_audit()
    path = tmp_path / "labels.json"
    export(audit, path, format="fiftyone")
    content = json.loads(path.read_text())
    assert all(isinstance(each["label"], int) for each in content["labels"].values())
    found = read_decisions(audit, [path])
    assert list(found) == np.flatnonzero(audit.suggested != audit.given).tolist()
    assert {(each.decision, each.by) for each in found.values()} == {("accept", "program")}
    # A person restores one given label and deletes another: only these two rows were reviewed.
    content["labels"]["photo/0"]["label"] = int(audit.given[0])
    content["labels"]["photo/1"] = None
    path.write_text(json.dumps(content))
    found = read_decisions(audit, [path])
    people = {row: each.decision for row, each in found.items() if each.by == "fiftyone"}
    assert people == {0: "keep", 1: "no_class"}
    audit.suggested[:] = (audit.suggested + 1) % 4  # another audit of the same labels
    found = read_decisions(audit, [path])
    assert [row for row, each in found.items() if each.by != "program"] == [0, 1]


@pytest.mark.parametrize("place", ["sample", "label"])
def test_a_suggestion_that_is_tagged_as_reviewed_in_fiftyone_is_accepted(
    make_audit, tmp_path, place
):
    audit = make_audit()
    samples = [
        {
            "filepath": f"data/{row_id}",
            "tags": [],
            "ground_truth": {
                "_cls": "Classification",
                "tags": [],
                "label": audit.class_names[audit.suggested[row]],
                "suggested": audit.class_names[audit.suggested[row]],
                "confidence": 0.9,
            },
        }
        for row, row_id in enumerate(audit.row_ids.tolist())
    ]
    for sample in (samples[0], samples[39]):  # another class is suggested, and none
        (sample if place == "sample" else sample["ground_truth"])["tags"].append("reviewed")
    path = tmp_path / "samples.json"
    path.write_text(json.dumps({"samples": samples}))
    found = read_decisions(audit, [path])
    people = {row: each.decision for row, each in found.items() if each.by == "fiftyone"}
    assert people == {0: "accept", 39: "keep"}
    assert {each.by for row, each in found.items() if row not in people} == {"program"}


def test_predictions_in_fiftyone_are_nobodys_judgement(make_audit, tmp_path):
    audit = make_audit()
    label = {"_cls": "Classification", "label": "dog", "confidence": 0.8}
    samples = [{"filepath": row_id, "model": label} for row_id in audit.row_ids.tolist()]
    path = tmp_path / "samples.json"
    path.write_text(json.dumps({"samples": samples}))
    found = read_decisions(audit, [path])
    assert found
    assert {each.by for each in found.values()} == {"program"}


@pytest.mark.parametrize("is_short", [True, False])
def test_predictions_that_label_studio_made_annotations_are_the_programs(
    make_audit, tmp_path, is_short
):
    audit = make_audit()
    path = annotated(audit, tmp_path, suggestions)
    tasks = json.loads(path.read_text())
    for number, task in enumerate(tasks):  # "Create annotations from predictions", but for one
        task["annotations"][0] |= {"lead_time": None if number else 3.5, "parent_prediction": 7}
    if is_short:
        short = [
            {**task["data"], "annotation_id": 1, "lead_time": task["annotations"][0]["lead_time"]}
            for task in tasks
        ]
        for task, each in zip(short, tasks, strict=True):
            if suggestions(each):
                (task["label"],) = suggestions(each)
        tasks = short
    path.write_text(json.dumps(tasks))
    found = read_decisions(audit, [path])
    assert [row for row, each in found.items() if each.by != "program"] == [0]
    trail = correct(audit, found)
    assert {each.by for each in trail[1:]} == {"program"}
    assert None not in [each.new for each in trail]  # a row that fits no class is not removed


def test_a_task_that_nobody_annotated_says_nothing(make_audit, tmp_path):
    task = {"item": "photo/1.jpg", "annotator": "", "annotation_id": None, "lead_time": None}
    done = {**task, "item": "photo/2.jpg", "label": "bird", "annotation_id": 3, "lead_time": 1.5}
    path = tmp_path / "min.json"
    path.write_text(json.dumps([task, done]))
    assert list(read_decisions(make_audit(), [path])) == [2]


def test_a_table_of_labels_does_not_say_that_a_person_looked(make_audit, tmp_path):
    audit = make_audit()
    path = tmp_path / "labels.csv"
    other = (audit.given + 2) % 4
    numbers = [audit.given[0], audit.suggested[1], other[3]]
    rows = [
        f"photo/{row}.jpg,{audit.class_names[number]}"
        for row, number in zip((0, 1, 3), numbers, strict=True)
    ]
    path.write_text("\n".join(["row_id,label", *rows]))
    found = read_decisions(audit, [path])
    assert {row: (each.decision, each.by) for row, each in found.items()} == {
        1: ("accept", "program"), 3: ("relabel", "person"),
    }  # fmt: skip


def test_samples_of_fiftyone_are_found_by_their_path(make_audit, tmp_path):
    audit = make_audit()
    other = audit.class_names[(audit.given[9] + 2) % 4]
    truth = {"_cls": "Classification", "label": other}
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
    mark = Decision("flag", by="program")
    assert read_decisions(audit, [tmp_path / name]) == dict.fromkeys(flagged, mark)


def test_a_class_that_is_called_like_a_guarded_formula_is_itself(make_audit, tmp_path):
    audit = make_audit(class_names=("'=x", "=x", "'=y", "@z"))
    path = tmp_path / "labels.csv"
    path.write_text("row_id,label\nphoto/0.jpg,'=x\nphoto/1.jpg,=x\nphoto/2.jpg,'@z\n")
    labels = audit.given.copy()
    for row, each in read_decisions(audit, [path]).items():
        labels[row] = each.label
    assert labels[:3].tolist() == [0, 1, 3]


def test_labels_in_parquet(make_audit, tmp_path):
    audit = make_audit()
    other = int(audit.given[0] + 2) % 4
    table = {"row_id": ["photo/0.jpg"], "label": [audit.class_names[other]]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "labels.parquet")
    found = read_decisions(audit, [tmp_path / "labels.parquet"])
    assert found == {0: Decision("relabel", other, by="person")}


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
        ("a.json", '{"samples": [{"filepath": "photo/1.jpg"}]}', "called ground_truth"),
        ("a.json", '{"labels": {"photo/1": 7}, "classes": ["cat"]}', "7 is not the number"),
        ("a.json", '{"labels": {"photo/1": "cow"}}', "'cow' is none of the classes"),
        ("a.json", '{"labels": {"photo/99": "cat"}}', "row 'photo/99': is not a row"),
        ("a.json", "[3]", "of FiftyOne$"),
        ("a.json", "{}", "of FiftyOne: it lacks 'labels'$"),
        ("a.csv", "row_id,other\n1,2\n", "no columns row_id and decision, label"),
        ("a.csv", "row_id,is_label_issue\nphoto/1.jpg,maybe\n", "issue is 'maybe', not true or f"),
        ("a.npy", "nonsense", "is damaged or not a numpy array"),
        ("a.txt", "nonsense", "is not JSON, CSV or Parquet"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(make_audit, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_decisions(make_audit(), [tmp_path / name])


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("second", range(4))
def test_two_labels_of_one_row_in_a_table_conflict(make_audit, tmp_path, first, second):
    audit, path = make_audit(class_names=("cat", "dog", "bird", "fox")), tmp_path / "a.csv"
    names = (audit.class_names[first], audit.class_names[second])
    path.write_text("row_id,label\n" + "".join(f"photo/0.jpg,{name}\n" for name in names))
    if first == second:
        assert len(read_decisions(audit, [path])) == (first != audit.given[0])
        return
    with pytest.raises(DataError, match=r"row 'photo/0\.jpg': has two labels in this file"):
        read_decisions(audit, [path])


def test_the_ending_of_a_mask_may_be_written_large(make_audit, tmp_path):
    np.save(tmp_path / "mask.npy", np.arange(40) == 3)
    (tmp_path / "mask.npy").rename(tmp_path / "MASK.NPY")
    found = read_decisions(make_audit(), [tmp_path / "MASK.NPY"])
    assert {row: each.decision for row, each in found.items()} == {3: "flag"}


def test_a_mask_of_other_rows_is_refused(make_audit, tmp_path):
    np.save(tmp_path / "mask.npy", np.zeros(7, bool))
    with pytest.raises(DataError, match="must hold 40 booleans"):
        read_decisions(make_audit(), [tmp_path / "mask.npy"])
