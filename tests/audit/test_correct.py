"""Corrected labels, their trail, and exports."""

import csv
import errno
import json
import os

import numpy as np
import pytest

from imae.audit.correct import correct, write_corrected
from imae.audit.decisions import Decision, read_decisions, write_decisions
from imae.audit.label_tools import export
from imae.data import Split, Table
from imae.errors import ArgumentError, DataError
from imae.train.relabel import relabel_from_file


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_corrected_labels_are_read_by_training(make_audit, tmp_path):
    audit = make_audit(prefix="@odd, name")
    decisions = {
        0: Decision("accept", int(audit.suggested[0]), by="person"),
        1: Decision("keep", by="person"),
        2: Decision("no_class", by="person"),
        20: Decision("relabel", 3, by="person"),
    }
    trail_file = write_corrected(audit, correct(audit, decisions), tmp_path / "labels.csv")
    number = len(audit)
    split = Split(Table(np.eye(number, dtype=np.float32)), audit.given, audit.row_ids,
                  audit.class_names)  # fmt: skip
    corrected = relabel_from_file(split, tmp_path / "labels.csv")
    expected = audit.given.copy()
    expected[[0, 20]] = audit.suggested[0], 3
    assert corrected.row_ids.tolist() == np.delete(audit.row_ids, 2).tolist()
    assert corrected.labels.tolist() == np.delete(expected, 2).tolist()
    trail = rows_of(trail_file)
    assert [row["row_id"] for row in trail] == [f"'@odd, name/{row}.jpg" for row in (0, 1, 2, 20)]
    assert [row["new"] for row in trail][2] == ""
    assert {row["by"] for row in trail} == {"person"}
    assert trail_file.name == "labels.trail.csv"


def test_the_program_accepts_what_it_is_sure_of_and_nobody_looked_at(make_audit):
    audit = make_audit()
    decisions = {
        0: Decision("keep", by="person"),
        1: Decision("skip", by="person"),
        3: Decision("flag", by="person"),
    }
    least = float(audit.suggested_probability[7])
    trail = correct(audit, decisions, accept_above=least)
    assert [(each.row, each.by) for each in trail] == [
        (0, "person"), (4, "program"), (6, "program"), (7, "program"),
    ]  # fmt: skip  # 2 and 5 fit no class
    assert all(each.new == audit.suggested[each.row] for each in trail[1:])
    assert [each.row for each in correct(audit, decisions)] == [0]
    with pytest.raises(ArgumentError, match="accept_above"):
        correct(audit, decisions, accept_above=1.5)


def test_labels_are_written_as_csv_only(make_audit, tmp_path):
    with pytest.raises(ArgumentError, match=r"end in \.csv"):
        write_corrected(make_audit(), [], tmp_path / "labels.txt")
    assert not list(tmp_path.iterdir())


def test_label_studio_tasks_hold_the_suggestions(make_audit, tmp_path):
    audit = make_audit()
    export(audit, tmp_path / "tasks.json", format="label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == audit.is_flagged.sum()
    assert tasks[0]["data"]["item"] == "photo/0.jpg"
    (prediction,) = tasks[0]["predictions"]
    name = audit.class_names[audit.suggested[0]]
    assert prediction["result"][0]["value"] == {"choices": [name]}
    assert tasks[2]["predictions"][0]["result"][0]["value"] == {"choices": []}  # fits no class


def test_fiftyone_labels_name_files_without_their_ending(make_audit, tmp_path):
    audit = make_audit()
    export(audit, tmp_path / "labels.json", format="fiftyone")
    content = json.loads((tmp_path / "labels.json").read_text())
    assert content["classes"] == list(audit.class_names)
    assert content["labels"]["photo/2"]["attributes"]["fits_no_class"] is True
    audit.row_ids[1] = "photo/0.png"
    with pytest.raises(DataError, match=r"row 'photo/0.png': .* is another 'photo/0'"):
        export(audit, tmp_path / "other.json", format="fiftyone")
    assert not (tmp_path / "other.json").exists()


def test_the_mask_is_true_where_cleanlab_would_say_issue(make_audit, tmp_path):
    audit = make_audit()
    export(audit, tmp_path / "mask.npy", format="mask")
    assert np.load(tmp_path / "mask.npy").tolist() == audit.is_flagged.tolist()
    export(audit, tmp_path / "mask.csv", format="mask")
    rows = rows_of(tmp_path / "mask.csv")
    assert [row["is_label_issue"] == "True" for row in rows] == audit.is_flagged.tolist()


@pytest.mark.parametrize(
    ("format", "name"), [("coco", "x.json"), ("mask", "x.json"), ("fiftyone", "x.csv")]
)
def test_unknown_formats_and_endings_are_refused(make_audit, tmp_path, format, name):
    with pytest.raises(ArgumentError):
        export(make_audit(), tmp_path / name, format=format)
    assert not list(tmp_path.iterdir())


def test_corrected_labels_in_parquet_are_those_in_csv(make_audit, tmp_path):
    audit = make_audit()
    audit.given[1] = 0
    trail = correct(
        audit, {0: Decision("no_class", by="person"), 1: Decision("relabel", 2, by="person")}
    )
    for name in ("labels.csv", "labels.parquet"):
        write_corrected(audit, trail, tmp_path / name)
    read = [read_decisions(audit, [tmp_path / name]) for name in ("labels.csv", "labels.parquet")]
    assert read[0] == read[1]
    assert read[0][0] == Decision("no_class", by="person")
    assert (list(read[0]), read[0][1].label) == ([0, 1], 2)


def test_the_program_stays_the_author_of_what_it_accepted(make_audit, tmp_path):
    audit = make_audit()
    file, again = tmp_path / "labels.csv", tmp_path / "again.csv"
    first = correct(
        audit,
        {0: Decision("keep", by="person"), 1: Decision("relabel", 2, by="person")},
        accept_above=0.5,
    )
    assert {each.by for each in first} == {"person", "program"}
    write_corrected(audit, first, file, in_data=dict.fromkeys(audit.row_ids.tolist(), "cat"))
    assert correct(audit, read_decisions(audit, [file])) == first
    write_decisions(audit, read_decisions(audit, [file]), again)
    assert correct(audit, read_decisions(audit, [again])) == first
    audit.suggested[:] = (audit.suggested + 1) % 4  # another audit of the same labels
    assert [each.by for each in correct(audit, read_decisions(audit, [file]))] == [
        each.by for each in first
    ]


def test_the_program_confirms_and_removes_nothing(make_audit):
    decisions = {row: Decision(kind, by="program") for row, kind in enumerate(["keep", "no_class"])}
    assert correct(make_audit(), decisions) == []


def test_corrected_labels_whose_author_is_unknown_are_refused(make_audit, tmp_path):
    audit = make_audit()
    file, trail = tmp_path / "labels.csv", tmp_path / "labels.trail.csv"
    write_corrected(audit, correct(audit, {}, accept_above=0.9), file)
    recorded = trail.read_text()
    trail.unlink()
    with pytest.raises(DataError, match=r"labels\.csv: .*put labels\.trail\.csv beside it"):
        read_decisions(audit, [file])
    trail.write_text(recorded.splitlines()[0])
    with pytest.raises(
        DataError, match=r"row 'photo/.*labels\.trail\.csv does not say who decided"
    ):
        read_decisions(audit, [file])
    trail.write_text(recorded)
    file.write_text("".join(file.read_text().replace(",removed", "").replace(",\n", "\n")))
    assert {each.by for each in read_decisions(audit, [file]).values()} == {"program"}


def test_rows_that_an_earlier_round_removed_are_no_decisions(make_audit, tmp_path):
    audit = make_audit()
    write_corrected(audit, [], tmp_path / "labels.csv", removed=["photo/99.jpg"])
    assert read_decisions(audit, [tmp_path / "labels.csv"]) == {}


def test_labels_and_trail_are_written_both_or_neither(make_audit, tmp_path, monkeypatch):
    replace, calls = os.replace, []

    def full(*names):
        calls.append(names)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"No space left on device: .*\.csv"):
        write_corrected(make_audit(), [], tmp_path / "labels.csv")
    assert len(calls) == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "replace", replace)
    write_corrected(make_audit(), [], tmp_path / "labels.csv")
    assert len(list(tmp_path.iterdir())) == 2
