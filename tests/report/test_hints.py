import json

import numpy as np
import pytest

from imae.records import RunFolder, RunLabels
from imae.report.comparison import table
from imae.report.formats import as_markdown, as_text
from imae.report.page import render
from imae.report.read import read_run


@pytest.fixture
def read(make_run):
    return lambda *arguments, **options: read_run(make_run(*arguments, **options))


def history(*values, key="test_accuracy"):
    empty = {"test_accuracy": None, "validation_accuracy": None}
    return [{**empty, "step": step, key: each} for step, each in enumerate(values, start=1)]


FLAT = history(0.8, 0.8, 0.8)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"train": {"epochs": 2}}, "train.epochs (cce 6, mae 2)"),
        ({"optimizer": {"lr": 0.5}}, "optimizer.lr (cce 0.1, mae 0.5)"),
        ({"noise_map": "1:7"}, "noise_map (cce 0:1, mae 1:7)"),
    ],
)
def test_methods_that_were_not_trained_alike_are_noted_everywhere(read, extra, words):
    usual = {"optimizer": {"lr": 0.1}, "noise_map": "0:1", "train": {"epochs": 6}}
    runs = [
        read("a", rows=FLAT, extra=usual),
        read("b", method="mae", rows=FLAT, extra={**usual, **extra}),
    ]
    compared = table(runs)
    note = f"the methods were not trained alike: {words}"
    for text in (as_text(compared, width=200), as_markdown(compared).replace("\\", "")):
        assert note in text
    assert note[1:] in render(runs)


def test_seeds_machines_and_arguments_of_the_method_are_not_worth_a_note(read):
    runs = [
        read("a", rows=FLAT, seed=1, extra={"machine": {"threads": 1}}),
        read("b", method="mae", arguments={"T": 8}, rows=FLAT, seed=2),
        read("c", method="mae", arguments={"T": 8}, rows=FLAT, extra={"machine": {"threads": 2}}),
    ]
    assert table(runs).notes == {}


def test_a_method_that_was_still_rising_is_pointed_out(read):
    runs = [read("a", rows=FLAT), read("b", method="gce", rows=history(0.1, 0.15, 0.3))]
    first, second = table(runs).rows
    assert first.notes == ()
    rising = "accuracy was still rising when training ended: train longer"
    assert second.notes == (f"{rising} (robust losses learn more slowly than cross entropy)",)
    (plain,) = table([read("c", rows=history(0.1, 0.15, 0.3))]).rows
    assert plain.notes == (rising,)


def test_a_constant_prediction_is_pointed_out(read, make_run):
    folder = make_run("a", rows=FLAT)
    record = RunFolder(folder)
    last = record.dynamics(record.epochs()[-1])
    predicted = np.full_like(last.predicted, 2)
    predicted[:3] = -1  # rows that were not seen
    record.write_dynamics(record.epochs()[-1], type(last)(last.margin, predicted, last.weight))
    (row,) = table([read_run(folder)]).rows
    assert "1 of 1 runs predict one class for every row (two)" in row.notes[0]
    (other,) = table([read("b", rows=FLAT)]).rows
    assert other.notes == ()


def held_out(*values):
    return history(*values, key="validation_accuracy")


def test_without_test_rows_the_best_by_held_out_labels_is_named(read):
    data = {"data": {"name": "mine", "hold_out": 0.1}}
    runs = [
        read("a", rows=held_out(0.60, 0.60), truth=False, extra=data),
        read("b", method="gce", rows=held_out(0.75, 0.75), truth=False, extra=data),
        read("c", method="imae", rows=held_out(0.74, 0.74), truth=False, extra=data),
    ]
    (notes,) = table(runs).notes.values()
    # 400 rows were trained on, so 44 held out: sqrt(0.75 * 0.25 / 44) = 6.5 points.
    assert notes == (
        "best on held-out given labels, at the best epoch: gce (75.0, standard error 6.5; within "
        "it: imae). Some given labels may be wrong, so these are not true accuracies",
    )
    assert notes[0][1:] in render(runs)


def noted_error(folders):
    (notes,) = table([read_run(folder) for folder in folders]).notes.values()
    return notes[0].partition(", at the best epoch: ")[2].partition(". Some")[0]


def test_the_standard_error_is_that_of_the_rows_that_were_held_out(make_run):
    folders = [
        make_run(
            method, method=method, rows=held_out(share), extra={"data": {"name": "mine", **of}}
        )
        for method, share, of in (("cce", 0.6, {"hold_out": 0.0}), ("gce", 0.656, {}))
    ]
    unknown = (
        "gce (65.6, standard error unknown, as the number of validation rows was not recorded)"
    )
    assert noted_error(folders) == unknown
    own = {"num_validation": 90, "is_held_out": False}  # sqrt(0.656 * 0.344 / 90) = 5.0
    for content in (own, own | {"is_held_out": True}):
        for folder in folders:
            (folder / "preparation.json").write_text(json.dumps(content))
        assert noted_error(folders) == "gce (65.6, standard error 5.0; no other is within it)"


@pytest.mark.parametrize(("is_held_out", "error"), [(False, "5.0"), (True, "3.5")])
def test_seeds_share_the_validation_part_of_the_data_and_not_held_out_rows(
    make_run, is_held_out, error
):
    folders = [
        make_run(f"{method}{seed}", method=method, seed=seed, rows=held_out(share))
        for method, share in (("cce", 0.5), ("gce", 0.656))
        for seed in (1, 2)
    ]
    content = {"num_validation": 90, "is_held_out": is_held_out}
    for folder in folders:
        (folder / "preparation.json").write_text(json.dumps(content))
    assert f"standard error {error};" in noted_error(folders)


def test_earlier_versions_tell_how_many_rows_were_held_out_by_their_labels(make_run):
    data = {"data": {"name": "mine", "hold_out": 0.5}}
    folders = [
        make_run(method, method=method, rows=held_out(share), extra=data)
        for method, share in (("cce", 0.6), ("gce", 0.656))
    ]
    assert "standard error 2.4;" in noted_error(folders)  # 400 rows, as many as were trained on
    for folder in folders:
        run = RunFolder(folder)
        labels = run.labels()
        ids = np.array([f"held/{row}" for row in range(90)])
        run.write_labels(labels, RunLabels(ids, labels.given[:90], labels.class_names))
    assert "standard error 5.0;" in noted_error(folders)
    for folder in folders:
        (folder / "held_labels.npz").unlink()
        (folder / "preparation.json").write_text('{"content": {"train": "a", "validation": "b"}}')
    assert "standard error unknown" in noted_error(folders)


def test_the_best_epoch_decides_as_it_is_the_one_that_predicts(read):
    runs = [
        read("a", rows=held_out(0.55, 0.575), truth=False),
        read("b", method="gce", rows=held_out(0.60, 0.50), truth=False),
    ]
    compared = table(runs)
    ((note,),) = compared.notes.values()
    assert note.startswith("best on held-out given labels, at the best epoch: gce (60.0,")
    lines = [line.split()[:4] for line in as_text(compared, width=80).splitlines()]
    assert ["gce", "1", "60.0", "50.0"] in lines
    assert ["cce", "1", "57.5", "57.5"] in lines


def test_with_test_rows_no_method_is_recommended(read):
    runs = [read("a", rows=FLAT), read("b", method="gce", rows=history(0.9, 0.9, 0.9))]
    assert table(runs).notes == {}


def test_runs_on_data_that_changed_in_between_are_pointed_out(make_run):
    folders = [make_run(name, method=name) for name in ("cce", "gce", "mae")]
    runs = [read_run(folder) for folder in folders]
    assert "the data changed" not in as_markdown(table(runs))
    for folder, content in zip(folders, ("aa", "aa", "bb"), strict=True):
        (folder / "preparation.json").write_text(json.dumps({"content": {"train": content}}))
    text = as_text(table(runs), width=200)
    assert "the data changed between these runs" in text
    assert "cce, gce; mae" in text
