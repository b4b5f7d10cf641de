"""Columns of a table as options of every command that reads one."""

import csv
import json
import shlex

import numpy as np
import pytest

from imae.audit import Audit
from imae.cli.app import _SUFFIXES, main
from imae.data.table import TABLE_SUFFIXES
from imae.records import RunFolder

QUICK = ["--model", "mlp", "--steps", "2", "--set", "machine.threads=1"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "animal", "height", "target", "secret"])
        for row in range(40):
            height = row % 7 + 20 * (row % 2)  # tells the animals apart
            writer.writerow([f"k{row}", ("cat", "dog")[row % 2], height, row, row % 2])
    return path


COLUMNS = ["--label-column", "animal", "--id-column", "key", "--drop", "target", "--drop", "secret"]


def test_train_reads_the_columns_it_is_told_and_says_what_it_read(table, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", str(table), *COLUMNS, *QUICK, "--out", str(run)]) == 0
    assert "40 training rows; 2 classes (cat 20, dog 20); columns height" in capsys.readouterr().err
    labels = RunFolder(run).labels()
    assert labels.class_names.tolist() == ["cat", "dog"]
    assert set(labels.row_ids) <= {f"k{row}" for row in range(40)}
    assert RunFolder(run).preparation()["input_shape"] == [1]


def test_the_line_says_how_many_rows_are_held_out(table, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [*COLUMNS, *QUICK, "--hold-out", "0.2", "--out", str(run)]
    assert main(["train", str(table), *arguments]) == 0
    held_out = 40 - len(RunFolder(run).labels().given)
    assert f"; {held_out} rows held out" in capsys.readouterr().err
    assert held_out > 0


@pytest.mark.usefixtures("quick_figures")
def test_compare_takes_columns_and_the_learning_rate(table, tmp_path):
    out = tmp_path / "out"
    arguments = ["--losses", "cce,gce", "--seeds", "1", "--lr", "0.25", "--out", str(out)]
    assert main(["compare", str(table), *COLUMNS, *QUICK, *arguments]) == 0
    config = RunFolder(out / "gce-seed123").config()
    assert config["optimizer"]["lr"] == 0.25
    assert config["data"]["options"]["label_column"] == "animal"


@pytest.mark.usefixtures("quick_figures")
def test_compare_without_truth_or_test_rows_names_a_method(table, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--losses", "cce,gce", "--seeds", "1", "--out", str(out)]
    assert main(["compare", str(table), *COLUMNS, *QUICK, *arguments]) == 0
    shown = capsys.readouterr().out
    assert "best on held-out given labels, at the best epoch: " in " ".join(shown.split())
    assert "held-out" in shown
    assert "Hybrid" not in shown
    for text in ((out / "table.md").read_text(), (out / "report.html").read_text()):
        assert "Best held-out given labels" in text
    assert list((out / "figures").glob("*held_out.png"))


def test_audit_takes_columns_and_names_them_in_the_next_command(table, tmp_path, capsys):
    run, labels = tmp_path / "run", tmp_path / "labels.csv"
    quick = ["--set", "method.name=cce", "--epochs", "5", "--noise", "symmetric:0.2"]
    assert main(["audit", str(table), *COLUMNS, *quick, "--out", str(run)]) == 0
    assert RunFolder(run).labels().class_names.tolist() == ["cat", "dog"]
    assert RunFolder(run).config()["noise"] == "symmetric:0.2"
    arguments = ["audit", "apply", str(run), "--accept-above", "0", "--out", str(labels)]
    capsys.readouterr()
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"next: imae train {table} {' '.join(COLUMNS)} --labels {labels}" in said
    assert main(["audit", str(table), *COLUMNS, *quick, "--out", str(run)]) == 0
    for other in (["--epochs", "5"], ["--noise", "symmetric:0.3"]):
        assert main(["audit", str(table), *COLUMNS, *other, "--out", str(run)]) == 2
        assert "holds a run with other settings (noise is symmetric:0.2" in capsys.readouterr().err


def test_the_next_command_has_the_batch_size_that_balanced_batches_need(table, tmp_path, capsys):
    run, labels = tmp_path / "run", tmp_path / "labels.csv"
    sizes = ["--set", "data.balanced=6", "--set", "train.batch_size=12"]
    quick = ["--set", "method.name=cce", "--epochs", "5"]
    assert main(["audit", str(table), *COLUMNS, *quick, *sizes, "--out", str(run)]) == 0
    assert main(["audit", "apply", str(run), "--accept-above", "1", "--out", str(labels)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    words = shlex.split(line)[2:]
    assert main([*words, "--steps", "1", "--out", str(tmp_path / "again")]) == 0


def test_probabilities_are_judged_by_the_columns_that_are_told(table, tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.tile([[0.9, 0.1], [0.2, 0.8]], (20, 1)))
    out = tmp_path / "out"
    arguments = ["audit", str(table), *COLUMNS, "--probabilities", str(tmp_path / "p.npy")]
    assert main([*arguments, "--noise", "symmetric:0.2", "--out", str(out)]) == 2
    assert "noise is added in training" in capsys.readouterr().err
    assert main([*arguments, "--out", str(out)]) == 0
    assert Audit.load(RunFolder(out)).row_ids[0] == "k0"
    settings = json.loads((out / "audit" / "data.json").read_text())
    assert settings["options"]["drop"] == ["target", "secret"]


def test_noise_takes_columns(table, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    arguments = ["--rate", "0.5", "--out", str(out)]
    assert main(["noise", str(table), *COLUMNS, *arguments]) == 0
    said = capsys.readouterr().err
    assert "2 classes (cat 20, dog 20)" in said
    assert f"next: imae train {table} {' '.join(COLUMNS)} --labels {out}" in said
    assert out.read_text().count("\n") > 40


@pytest.mark.parametrize("command", ["noise", "predict", "report"])
def test_a_file_that_exists_is_kept(command, table, tmp_path, capsys):
    out = tmp_path / ("kept.html" if command == "report" else "kept.csv")
    out.write_text("mine")
    arguments = {
        "noise": ["noise", str(table), *COLUMNS, "--rate", "0.5"],
        "predict": ["predict", "run", str(table)],
        "report": ["report", "run"],
    }[command]
    assert main([*arguments, "--out", str(out)]) == 2
    assert f"{out}: exists already; choose another" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_the_early_check_of_a_path_knows_the_endings_of_tables():
    assert set(TABLE_SUFFIXES) < set(_SUFFIXES)


def test_nothing_to_review_and_nothing_to_measure_on_are_not_shown(tmp_path, capsys):
    table, run = tmp_path / "table.csv", tmp_path / "run"
    lines = [f"{row % 2 * 9 + row % 7 / 7},{'ab'[row % 2]}" for row in range(400)]
    table.write_text("\n".join(["size,label", *lines]))
    assert main(["audit", str(table), "--epochs", "9", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "0 rows to review: 0 flagged" in said
    assert "audit serve" not in said
    assert "suspects.csv" not in said
    assert main(["train", "--student", str(run)]) == 0
    said = capsys.readouterr()
    assert "accuracy" not in said.out
    assert " steps in " in said.out
    assert said.err.splitlines()[-1] == f"next: imae audit {run}", "not the student's predictions"
    assert main(["train", "--resume", f"{run}-student"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"next: imae audit {run}"
