"""Decisions of reviewers: what is read, and what is refused in one line."""

import csv
import os

import pytest

from imae.audit.correct import write_corrected
from imae.audit.decisions import (
    COLUMNS,
    Decision,
    find_rows,
    guard,
    identity,
    read_decisions,
    unguard,
    write_decisions,
)
from imae.errors import DataError


@pytest.fixture
def write(tmp_path):
    def write_(*rows, names=COLUMNS, name="decisions.csv"):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *rows])
        return path

    return write_


def cells(audit, row, decision, label="", *, mark=None):
    given = audit.class_names[audit.given[row]]
    mark = identity(audit) if mark is None else mark
    time = "2026-01-01T00:00:00Z"
    return (audit.row_ids[row], guard(given), decision, guard(label), "person", time, mark)


def test_what_is_written_is_read_again(make_audit, tmp_path):
    audit = make_audit(prefix="=HYPERLINK(1)")
    decisions = {
        0: Decision("accept", 3, by="person", time="2026-01-01T00:00:00Z"),
        5: Decision("no_class", by="person"),
        7: Decision("keep", by="person"),
        9: Decision("skip", by="person"),
    }
    write_decisions(audit, decisions, tmp_path / "a.csv")
    assert read_decisions(audit, [tmp_path / "a.csv"]) == decisions
    written = (tmp_path / "a.csv").read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n") == 5
    assert b"\n=" not in written
    assert b",=" not in written


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "'=1", "''@x", "\tx", "'cat", "cat", ""])
def test_a_guarded_text_is_no_formula_and_comes_back(text):
    assert not guard(text).startswith(("=", "+", "-", "@", "\t"))
    assert unguard(guard(text)) == text


def test_a_decision_that_settles_counts_more_than_one_that_does_not(make_audit, write):
    audit = make_audit()
    one = write(cells(audit, 0, "skip"), cells(audit, 1, "accept", "dog"), name="1.csv")
    two = write(
        cells(audit, 0, "keep"), cells(audit, 1, "flag"), cells(audit, 1, "relabel", "dog"),
        name="2.csv",
    )  # fmt: skip
    found = read_decisions(audit, [one, two])
    assert {row: each.decision for row, each in found.items()} == {0: "keep", 1: "accept"}


def test_a_person_overrides_the_program(make_audit, write):
    audit = make_audit()
    audit.given[:3] = 0
    program = [(*cells(audit, row, "accept", "dog")[:4], "program", "", "") for row in (0, 1, 2)]
    person = [cells(audit, 0, "keep"), cells(audit, 1, "relabel", "bird"), cells(audit, 2, "skip")]
    files = [write(*program, name="1.csv"), write(*person, name="2.csv")]
    for order in (files, files[::-1]):
        found = read_decisions(audit, order)
        assert {row: each.by for row, each in found.items()} == dict.fromkeys(range(3), "person")
        assert [found[row].decision for row in range(3)] == ["keep", "relabel", "skip"]


def test_the_given_label_once_more_is_kept(make_audit, write):
    audit = make_audit()
    given = audit.class_names[audit.given[0]]
    path = write(cells(audit, 0, "relabel", given), cells(audit, 0, "keep"))
    assert read_decisions(audit, [path])[0].decision == "keep"


def test_names_and_times_that_are_formulas_come_back_as_they_were(make_audit, tmp_path):
    audit = make_audit()
    decisions = {0: Decision("keep", by="=cmd()", time="@now")}
    for _ in range(2):
        write_decisions(audit, decisions, tmp_path / "a.csv")
        assert not any(start in (tmp_path / "a.csv").read_text() for start in (",=", ",@"))
        assert read_decisions(audit, [tmp_path / "a.csv"]) == decisions


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.parquet", "pipe.json", "pipe.npy"])
def test_a_pipe_is_refused(make_audit, tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is not a regular file"):
        read_decisions(make_audit(), [tmp_path / name])


def test_columns_that_only_inform_may_be_missing(make_audit, write):
    audit = make_audit()
    path = write(cells(audit, 0, "keep")[:4], names=COLUMNS[:4])
    assert read_decisions(audit, [path]) == {0: Decision("keep", by="")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: "photo/999.jpg"}, "'photo/999.jpg': is not a row of this run"),
        ({1: "horse"}, "had the label 'horse' when it was decided"),
        ({2: "maybe"}, "decision 'maybe' is none of accept, keep"),
        ({3: "horse"}, "label 'horse' is none of the classes"),
        ({3: ""}, "label '' is none of the classes"),
        ({6: "0" * 32}, "page of another run"),
    ],
)
def test_a_row_that_does_not_fit_is_one_line(make_audit, write, change, message):
    audit = make_audit()
    row = list(cells(audit, 0, "accept", "dog"))
    for place, value in change.items():
        row[place] = value
    with pytest.raises(DataError, match=message) as caught:
        read_decisions(audit, [write(row)])
    assert "\n" not in str(caught.value)


def test_conflicting_decisions_are_named(make_audit, write):
    audit = make_audit()
    path = write(cells(audit, 4, "accept", "dog"), cells(audit, 4, "keep"))
    with pytest.raises(DataError, match=r"photo/4\.jpg.*conflict, accept at 2026.* and keep"):
        read_decisions(audit, [path])
    path = write(cells(audit, 4, "accept", "dog"), cells(audit, 4, "relabel", "bird"))
    with pytest.raises(DataError, match="conflict"):
        read_decisions(audit, [path])


def test_other_files_are_refused(make_audit, write, tmp_path):
    with pytest.raises(DataError, match="not a file of decisions"):
        read_decisions(make_audit(), [write(("a", "keep"), names=("row_id", "decision"))])
    with pytest.raises(DataError, match="cannot be read"):
        read_decisions(make_audit(), [tmp_path / "decisions.json"])


def test_corrected_labels_of_other_classes_are_refused_by_their_class(make_audit, tmp_path):
    other = make_audit(class_names=("oak", "elm", "fir", "ash"))
    write_corrected(other, [], tmp_path / "labels.csv")
    with pytest.raises(DataError, match=r"row 'photo/0\.jpg': label '...' is none of the classes"):
        read_decisions(make_audit(), [tmp_path / "labels.csv"])


def test_the_identity_is_that_of_the_labels(make_audit):
    audit = make_audit()
    same = make_audit()
    same.suspicion[:] = 0
    assert identity(same) == identity(audit)
    same.given[0] = (same.given[0] + 1) % 4
    assert identity(same) != identity(audit)
    assert identity(make_audit(prefix="x")) != identity(audit)


def test_only_images_are_named_without_their_extension():
    assert find_rows(["cat/1", "12", "12.5"], ["cat/1.jpg", "12.5", "13.5"]) == [0, None, 1]
