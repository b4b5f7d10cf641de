import json
from dataclasses import replace

import numpy as np
import pytest

from imae.records import RunFolder
from imae.report.chart import Series, line_chart
from imae.report.comparison import group, table
from imae.report.diagnosis import (
    best_method,
    by_held_out,
    diagnose,
    large_numbers,
    relative_link,
    verdict,
)
from imae.report.page import render
from imae.report.read import read_run


@pytest.fixture
def methods(make_run):
    runs = [
        read_run(make_run("cce", method="cce", memory=0.8)),
        read_run(make_run("gce", method="gce", memory=0.1)),
    ]
    for run in runs:  # the network predicts the truth
        folder = RunFolder(run.folder)
        for epoch in folder.epochs():
            shown = folder.dynamics(epoch)
            predicted = folder.labels().clean.astype(np.int32)
            folder.write_dynamics(epoch, replace(shown, predicted=predicted))
    return group(runs, lambda run: run.method)


def test_the_verdict_names_the_best_method_and_its_lead(methods):
    name, measure, summary = best_method(methods)
    second = methods["cce"][0].measure("final", measure.key)
    assert name == "gce"
    gap = 100 * (summary.mean - second)
    text = verdict(methods)
    share = f"{100 * summary.mean:.1f}%"
    assert text.startswith(
        f"gce ends highest: it predicts {share} of the test rows right, {gap:.1f} points above cce"
    )
    assert "and memorised" in text


def held_out(*values):
    return [
        {"step": step, "test_accuracy": None, "validation_accuracy": each, "noisy_accuracy": 0.1}
        for step, each in enumerate(values, start=1)
    ]


def test_without_test_rows_held_out_labels_at_the_best_epoch_decide(make_run):
    data = {"data": {"name": "mine", "hold_out": 0.1}}
    run = read_run(make_run("a", rows=held_out(0.5, 0.3), truth=False, extra=data))
    share = "of the held-out given labels (some of which may be wrong) at its best epoch"
    memorised = "and has memorised 10.0% of the wrong labels by then"
    assert verdict({"cce": [run]}) == f"cce predicts 50.0% {share}, {memorised}."
    rows = held_out(0.4, 0.4)
    other = read_run(make_run("b", method="gce", rows=rows, truth=False, extra=data))
    methods = {"gce": [other], "cce": [run]}  # gce ends higher, which nobody predicts with
    assert best_method(methods)[0] == "cce"
    lead = "10.0 points above gce"
    assert verdict(methods) == f"cce is ahead: it predicts 50.0% {share}, {lead}, {memorised}."
    labels = RunFolder(run.folder).labels()
    numbers = large_numbers({"cce": [run]}, labels, diagnose({"cce": [run]}))
    assert [(number.text, number.label) for number in numbers] == [
        ("50.0%", "held-out given labels predicted at the best epoch"),
        ("10.0%", "wrong labels memorised at the best epoch"),
        ("30.0%", "held-out given labels predicted at the end"),
        ("400", "training rows"),
    ]
    several = large_numbers(methods, labels)
    assert several[0].label == "held-out given labels predicted at the best epoch, cce"


def test_the_rows_are_those_of_the_run_to_audit(make_run):
    runs = [
        read_run(make_run(f"seed{seed}", seed=seed, rows=held_out(accuracy)))
        for seed, accuracy in ((1, 0.5), (2, 0.6), (3, 0.6))
    ]
    assert [run.seed for run in by_held_out(runs)] == ["2", "3", "1"]
    assert diagnose({"cce": runs}).run == "seed2"


def test_a_lead_within_the_standard_error_is_not_claimed(make_run):
    # 400 rows were trained on, so 44 held out: sqrt(0.6 * 0.4 / 44) = 7.4 points.
    def runs(method, accuracy):
        extra = {"data": {"name": "mine", "hold_out": 0.1}}
        rows = held_out(accuracy)
        return [read_run(make_run(method, method=method, rows=rows, truth=False, extra=extra))]

    methods = {"cce": runs("cce", 0.55), "gce": runs("gce", 0.6), "mae": runs("mae", 0.57)}
    text = verdict(methods)
    assert text.startswith("No method is clearly ahead: gce predicts 60.0% of the held-out")
    assert text.endswith("; cce and mae are within its standard error of 7.4 points.")
    assert "above" not in text


def test_no_lead_is_claimed_where_the_number_of_rows_is_not_known(make_run):
    methods = {
        method: [read_run(make_run(method, method=method, rows=held_out(share), truth=False))]
        for method, share in (("cce", 0.5), ("gce", 0.6))
    }
    text = verdict(methods)
    assert text.startswith("gce is highest: it predicts 60.0%")
    assert text.endswith("as the number of validation rows was not recorded.")


def test_labels_that_are_contradicted_stand_in_for_unknown_numbers(make_run):
    rows = [{"step": 40, "test_accuracy": None, "validation_accuracy": 0.5}]
    run = read_run(make_run("a", rows=rows, truth=False))
    labels = RunFolder(run.folder).labels()
    number = large_numbers({"cce": [run]}, labels, diagnose({"cce": [run]}))[2]
    epoch = RunFolder(run.folder).epochs()[-1]
    predicted = RunFolder(run.folder).dynamics(epoch).predicted
    against = ((predicted != labels.given) & (predicted >= 0)).sum()
    assert (number.text, number.label) == (str(against), "given labels contradicted at the end")


def test_a_lead_within_the_spread_of_the_seeds_is_called_so(make_run):
    def runs(method, *accuracies):
        rows = [
            [{"step": 40, "test_accuracy": each, "validation_accuracy": None}]
            for each in accuracies
        ]
        return [
            read_run(make_run(f"{method}-{seed}", method=method, seed=seed, rows=row))
            for seed, row in enumerate(rows)
        ]

    near, far = runs("cce", 0.80, 0.84), runs("gce", 0.70, 0.71)
    level = runs("mae", 0.81, 0.82)
    words = "points above mae (within the spread of the seeds)"
    assert words in verdict({"cce": near, "mae": level})
    assert "within the spread" not in verdict({"cce": near, "gce": far})


def test_an_unfinished_run_has_no_verdict(make_run):
    run = read_run(make_run("a", finished=False))
    assert verdict({"cce": [run]}) == "No run has finished yet."


def test_given_and_predicted_classes_are_counted(methods):
    found = diagnose(methods)
    folder = RunFolder(methods["gce"][0].folder)
    labels = folder.labels()
    epoch = folder.epochs()[-1]
    predicted = folder.dynamics(epoch).predicted
    assert (found.run, found.epoch) == ("gce", epoch)
    for given, row in enumerate(found.matrix):
        for column, cell in enumerate(row):
            assert cell.count == ((labels.given == given) & (predicted == column)).sum()
            assert (cell.shade > 0) == (cell.count > 0)
            assert cell.is_diagonal == (given == column)
    assert sum(one.rows for one in found.counts) == 400
    assert sum(one.wrong for one in found.counts) == (labels.given != labels.clean).sum()
    assert (
        sum(one.contradicted for one in found.counts)
        == ((predicted >= 0) & (predicted != labels.given)).sum()
    )


def test_suspects_are_contradicted_and_come_least_believed_first(methods):
    asked = []

    def pictures(_, ids):
        asked.extend(ids)
        return {ids[0]: "data:image/png;base64,AAAA"}

    found = diagnose(methods, pictures=pictures)
    assert [suspect.row_id for suspect in found.suspects] == asked
    assert [suspect.p for suspect in found.suspects] == sorted(s.p for s in found.suspects)
    assert all(suspect.given != suspect.predicted for suspect in found.suspects)
    assert found.suspects[0].picture is not None
    assert found.suspects[1].picture is None


def test_labels_that_were_planted_are_not_shown_as_given(methods):
    folder = RunFolder(methods["gce"][0].folder)
    before = folder.labels()
    shown = {suspect.row_id for suspect in diagnose(methods).suspects}
    planted = np.isin(before.row_ids.astype(str), list(shown))
    folder.write_labels(replace(before, planted=planted))
    found = diagnose(methods)
    assert shown.isdisjoint(suspect.row_id for suspect in found.suspects)
    predicted = folder.dynamics(folder.epochs()[-1]).predicted
    assert sum(cell.count for row in found.matrix for cell in row) == (
        ((predicted >= 0) & ~planted).sum()
    )


def test_a_number_that_names_a_row_is_called_a_row(methods):
    records = [run for each in methods.values() for run in each]
    first = diagnose(methods).suspects[0].row_id
    for row_id in ("7", "photos/7.jpg"):
        for run in records:
            path = run.folder / "labels.npz"
            with np.load(path) as file:
                arrays = dict(file)
            is_first = np.isin(arrays["row_ids"].astype(str), [first, "7"])
            arrays["row_ids"] = np.where(is_first, row_id, arrays["row_ids"].astype(str))
            np.savez(path, **arrays)
        shown = "row 7" if row_id == "7" else row_id
        assert f'<span class="quiet">{shown}, p' in render(records)


def test_many_classes_are_a_list_of_pairs(make_run):
    names = tuple(f"class{number}" for number in range(30))
    found = diagnose({"cce": [read_run(make_run("a", class_names=names))]})
    assert found.matrix == ()
    assert found.num_classes == 30
    assert len(found.counts) == 24


def test_the_audit_is_linked_where_there_is_one(methods, tmp_path):
    folder = methods["gce"][0].folder
    runs = [run for each in methods.values() for run in each]
    assert f"imae audit {folder}" in render(runs, out=tmp_path / "report.html")
    (folder / "audit").mkdir()
    (folder / "audit" / "review.html").write_text("x")
    page = render(runs, out=tmp_path / "report.html")
    assert 'href="./gce/audit/review.html"' in page
    (folder / "audit" / "review.html").unlink()  # many suspects have a folder of pages
    (folder / "audit" / "review").mkdir()
    (folder / "audit" / "review" / "page-0001.html").write_text("x")
    page = render(runs, out=tmp_path / "report.html")
    assert 'href="./gce/audit/review/page-0001.html"' in page
    assert relative_link(folder / "audit" / "review.html", None) is None


def test_a_run_that_memorised_every_label_still_leads_to_its_audit(make_run, tmp_path):
    folder = make_run("a")
    epoch = RunFolder(folder).epochs()[-1]
    path = folder / "dynamics" / f"epoch-{epoch:05d}.npz"
    with np.load(path) as file:
        arrays = dict(file)
    given = RunFolder(folder).labels().given
    np.savez(path, **arrays | {"predicted": given.astype(arrays["predicted"].dtype)})
    page = render([read_run(folder)], out=tmp_path / "report.html")
    assert "predicts every row as it is labelled" in page
    assert f"imae audit {folder}" in page
    assert '<ul class="suspects">' not in page


def test_t_is_drawn_where_it_was_recorded(make_run):
    folder = make_run("a")
    assert "as the training set it" not in render([read_run(folder)])
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    again = make_run("b", rows=[row | {"T": 6.5} for row in rows])
    assert "cce ends at 6.5" in render([read_run(again)])


def test_columns_without_a_number_are_hidden(make_run):
    rows = [{"step": 40, "test_accuracy": None, "validation_accuracy": 0.5}]
    page = render([read_run(make_run("a", rows=rows, truth=False))])
    assert "Last held-out given labels</th>" in page
    assert "Final held-out given labels&nbsp;\u2191" in page
    assert "Final test" not in page
    assert "Last test" not in page
    assert table([read_run(make_run("b"))]).columns


def test_names_of_lines_do_not_overlap():
    lines = [Series(f"m{number}", (0.0, 1.0), (0.0, 50.0 + number / 10)) for number in range(5)]
    chart = line_chart("t", lines, x_label="steps", unit="%")
    heights = sorted(mark.name_at[1] for mark in chart.marks)
    assert np.diff(heights).min() >= 11.9
    assert heights[0] >= 12
    assert heights[-1] <= 196
    many = line_chart("t", [lines[0]] * 9, x_label="steps", unit="%")
    assert all(mark.name_at is None for mark in many.marks)
    assert chart.hovered["lines"][1] == ["0", "50.1"]


def test_names_are_beside_the_lines_and_never_over_them():
    lines = [Series(name, (0.0, 1.0), (0.0, 1.0)) for name in ("cce", "imae_capped:T=8,cap=0.75")]
    chart = line_chart("t", lines, x_label="steps", unit="%", is_wide=True)
    for size in (chart, chart.wide):
        ends = [size.x.place(1.0)] * 2
        assert all(mark.name_at[0] > end for mark, end in zip(size.marks, ends, strict=True))
        assert size.marks[1].label == "imae_ca…cap=0.75"  # methods often differ at the end
        assert size.marks[1].name_at[0] + 6.5 * 16 <= size.width
    assert (chart.width, chart.wide.width) == (360, 960)
    assert line_chart("t", lines[:1], x_label="steps", unit="%").x.last == 350  # no name, no room
