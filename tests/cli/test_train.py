import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from imae.cli.app import build, main
from imae.errors import ArgumentError, DataError
from imae.records import RunFolder
from imae.train import Stopped


@pytest.fixture
def run():
    app = build()

    def invoke(*arguments):
        return CliRunner().invoke(app, ["train", *map(str, arguments)], env={"COLUMNS": "200"})

    return invoke


@pytest.fixture
def table(tmp_path):
    clean = np.arange(120) % 3
    generator = np.random.Generator(np.random.PCG64(3))
    features = generator.normal(size=(120, 4)) + 3 * clean[:, None]
    split = np.where(np.arange(120) % 4 == 3, "test", "train")
    path = tmp_path / "table.npz"
    np.savez(path, x=features.astype(np.float32), y=clean, split=split)
    return path


def test_training_ends_with_a_summary(run, table, tmp_path):
    out = tmp_path / "run"
    result = run(
        table, "--loss", "imae", "--T", 4, "--noise", "symmetric:0.4", "--seed", 2, "--epochs", 2,
        "--batch-size", 20, "--lr", 0.1, "--out", out, "--log", "csv", "--hold-out", 0.2,
        "--set", "optimizer.momentum=0.5",
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    assert "best (step" in result.output
    assert "wrong labels corrected" in result.output
    assert str(out) in result.output
    config = RunFolder(out).config()
    assert config["method"] == {"name": "imae", "arguments": {"T": 4.0}}
    assert config["model"]["name"] == "mlp"
    assert config["noise"] == "symmetric:0.4"
    assert config["optimizer"]["momentum"] == 0.5
    assert (config["seed"], config["train"]["epochs"], config["data"]["hold_out"]) == (2, 2, 0.2)
    assert (out / "history.csv").exists()
    again = run("--resume", out)
    assert again.exit_code == 0
    assert "best (step" in again.output


def test_without_held_out_rows_nothing_is_chosen_by_the_test_rows(run, table, tmp_path):
    out = tmp_path / "run"
    result = run(table, "--hold-out", 0, "--epochs", 3, "--out", out)
    assert result.exit_code == 0, result.exception
    stored = RunFolder(out).result()
    assert stored["best"] == stored["final"]
    assert stored["best_test"]["test_accuracy"] is not None
    assert f"final (step {stored['steps']})" in result.output
    assert "best (step" not in result.output, "no such weights are kept"


def test_a_file_then_settings_then_options(run, table, tmp_path):
    file = tmp_path / "settings.json"
    content = {"data": {"name": str(table)}, "train": {"epochs": 9, "batch_size": 30}, "seed": 1}
    file.write_text(json.dumps(content))
    result = run(
        "--config", file, "--set", "seed=2", "--set", "optimizer.lr=0.5", "--lr", 0.25,
        "--steps", 2, "--out", tmp_path / "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    config = RunFolder(tmp_path / "run").config()
    assert config["seed"] == 2
    assert config["optimizer"]["lr"] == 0.25
    assert (config["train"]["epochs"], config["train"]["steps"]) == (None, 2)
    assert config["train"]["batch_size"] == 30


def test_labels_of_a_file(run, table, tmp_path):
    with np.load(table) as arrays:
        rows = np.flatnonzero(arrays["split"] == "train")
        lines = [f"{row},{(arrays['y'][row] + 1) % 3}" for row in rows]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["row_id,label", *lines]))
    out = tmp_path / "run"
    result = run(table, "--labels", labels, "--steps", 1, "--hold-out", 0, "--out", out)
    assert result.exit_code == 0, result.exception
    found = RunFolder(out).labels()
    shown = [f"{row},{label}" for row, label in zip(found.row_ids, found.given, strict=True)]
    assert sorted(shown) == sorted(lines)
    assert found.clean is None


def test_a_dry_run_shows_everything_and_writes_nothing(run, table, tmp_path):
    before = set(tmp_path.rglob("*"))
    result = run(table, "--dry-run", "--epochs", 3)
    assert result.exit_code == 0, result.exception
    assert "imae_capped" in result.output
    assert "an epoch takes about" in result.output
    assert set(tmp_path.rglob("*")) == before


def test_a_dry_run_lists_the_columns_of_a_table(run, tmp_path):
    path = tmp_path / "table.csv"
    lines = [f"{row},{row % 5},{'ab'[row % 2]},{'xy'[row % 2]}" for row in range(40)]
    path.write_text("\n".join(["count,age,colour,label", *lines]))
    output = run(path, "--dry-run").output
    uses = dict(line.strip("│ ").split("│") for line in output.splitlines() if line.count("│") == 3)
    uses = {name.strip(): use.strip() for name, use in uses.items()}
    assert uses["count"] == "not used: counts the rows"
    assert (uses["age"], uses["colour"]) == ("number", "category of 2 words")
    assert uses["label"] == "label"


def test_all_mistakes_are_printed_one_a_line(table, capsys):
    mistakes = ["--set", "train.epoch=3", "--set", "seed=x", "--loss", "imea"]
    assert main(["train", str(table), *mistakes]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("imae: ") for line in lines)
    assert "imae: train.epoch: unknown key; did you mean train.epochs?" in lines


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--epochs", "1"], ArgumentError, "give DATA"),
        (["digitz"], DataError, "did you mean digits"),
        (
            ["digits", "--noise", "pairs:0.4", "--labels", "x"],
            ArgumentError,
            "give only one of them",
        ),
        (["--resume", "x", "--seed", "1"], ArgumentError, "continues with the settings of the run"),
        (
            ["--resume", "x", "--model", "mlp"],
            ArgumentError,
            "continues with the settings of the run",
        ),
        (
            ["digits", "--set", "data.options.root=x"],
            ArgumentError,
            r"root: is not an option; data\.name",
        ),
        (["digits", "--set", "data.options.in_memory=no"], ArgumentError, "must be true or false"),
        (
            ["digits", "--loss", "label_smoothing", "--set", "method.arguments.smoothing=abc"],
            ArgumentError,
            "smoothing must be a number",
        ),
        (["digits", "--config", "missing.json"], ArgumentError, "cannot be read"),
    ],
)
def test_a_single_mistake_is_one_line(run, arguments, kind, message):
    error = run(*arguments).exception
    with pytest.raises(kind, match=message):
        raise error
    assert "\n" not in str(error)


@pytest.mark.parametrize("code", [130, 143])
def test_a_stopped_run_leaves_with_the_code_of_its_signal(table, monkeypatch, capsys, code):
    def stop(config, *, show):  # noqa: ARG001
        raise Stopped("stopped after step 3; go on with: imae train --resume runs/x", code)

    monkeypatch.setattr("imae.train.train", stop)
    assert main(["train", str(table)]) == code
    shown = capsys.readouterr().err
    assert shown == "imae: stopped after step 3; go on with: imae train --resume runs/x\n"


def test_a_folder_in_brackets_is_named_as_it_is(run, table, tmp_path):
    out = tmp_path / "[red]x[" / "[/bad]"
    result = run(table, "--steps", 1, "--out", out)
    assert result.exit_code == 0, result.exception
    assert f"the run is in {out}" in result.output


def test_paths_called_none_and_null_stay_paths(run, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.rename("none")
    refused = run("none", "--out", "null")
    assert str(refused.exception).startswith("none: is neither a folder nor a file")
    run("digits", "--model", "mlp", "--steps", 2, "--out", "null")
    assert RunFolder("null").result() is not None


def test_a_run_is_lengthened_and_its_data_named_again(run, table, tmp_path):
    out = tmp_path / "run"
    assert run(table, "--epochs", 1, "--out", out).exit_code == 0
    moved = table.rename(tmp_path / "moved.npz")
    result = run(moved, "--resume", out, "--epochs", 2)
    assert result.exit_code == 0, result.exception
    assert RunFolder(out).result()["steps"] == 2 * RunFolder(out).history()[0]["step"]


def test_a_student_takes_a_network_of_your_own_and_no_other(run, monkeypatch):
    taken = []

    def stop(*arguments, **options):
        taken.append((arguments, options))
        raise Stopped("stopped", 130)

    monkeypatch.setattr("imae.train.train_student", stop)
    run("--student", "runs/a", "--model", "flat:build", "--out", "b")
    assert taken == [((Path("runs/a"), None, "flat:build"), {"out": Path("b"), "show": True})]
    error = run("--student", "runs/a", "--model", "mlp").exception
    assert "--student trains with the settings of its run" in str(error)
    assert len(taken) == 1


def test_a_folder_of_somebody_else_is_refused(run, table, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    result = run(table, "--out", tmp_path / "mine")
    assert "holds files but no run, such as notes.txt" in str(result.exception)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
