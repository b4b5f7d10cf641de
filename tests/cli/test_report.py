import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imae.cli.app import build
from imae.errors import ArgumentError, DataError

FINAL = {"step": 2, "test_accuracy": 0.75, "validation_accuracy": 0.5}


@pytest.fixture
def invoke():
    app = build()

    def invoke_(*arguments):
        return CliRunner().invoke(app, ["report", *map(str, arguments)])

    return invoke_


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    config = {
        "data": {"name": "digits"},
        "noise": None,
        "model": {"name": "mlp"},
        "method": {"name": "imae", "arguments": {"T": 8.0}},
        "seed": 1,
    }
    result = {"best": FINAL, "best_test": FINAL, "final": FINAL, "seconds_per_step": 0.5}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "history.jsonl").write_text(json.dumps(FINAL) + "\n")
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_prints_the_table_and_writes_the_page(invoke, run, tmp_path):
    result = invoke(run, "--out", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "imae:T=8" in result.output
    assert "75.0" in result.output
    assert f"wrote {tmp_path / 'page.html'}" in result.output
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_the_page_has_a_name_by_default(invoke, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "wrote report.html" in invoke(run).output
    assert (tmp_path / "report.html").is_file()


@pytest.mark.usefixtures("quick_figures")
def test_writes_the_table_and_the_figures_where_asked(invoke, run, tmp_path):
    table, figures = tmp_path / "table.csv", tmp_path / "figures"
    result = invoke(run, "--out", tmp_path / "a.html", "--table", table, "--figures", figures)
    assert f"wrote {table}" in result.output
    assert table.read_text().startswith("data,noise,model,method,seeds,")
    assert sorted(path.suffix for path in figures.iterdir()) == [".png", ".png", ".svg", ".svg"]


def test_a_folder_that_is_no_run_is_one_line(invoke, tmp_path):
    result = invoke(tmp_path, "--out", tmp_path / "page.html")
    assert isinstance(result.exception, DataError)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("twice", [True, False])
def test_a_bad_call_writes_nothing(invoke, run, tmp_path, twice):
    arguments = [run, run] if twice else [run, "--table", tmp_path / "table.xlsx"]
    result = invoke(*arguments, "--out", tmp_path / "page.html")
    assert isinstance(result.exception, ArgumentError)
    assert not (tmp_path / "page.html").exists()


def test_a_run_is_needed(invoke):
    assert invoke().exit_code == 2


def test_an_existing_page_or_table_is_kept_unless_overwriting_is_asked_for(invoke, run, tmp_path):
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    for option, path in (("--out", page), ("--table", table)):
        path.write_text("mine")
        result = invoke(run, "--out", page, "--table", table)
        assert f"{path}: exists already; choose another {option}," in str(result.exception)
        assert path.read_text() == "mine"
        path.unlink()
    page.write_text("mine")
    assert invoke(run, "--out", page, "--table", table, "--overwrite").exit_code == 0
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_folder_of_runs_stands_for_all_of_its_runs(invoke, tmp_path):
    stored = Path(__file__).parents[2] / "results" / "demo"
    result = invoke(stored, "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.exception
    for method in ("cce", "gce", "imae_capped", "mae"):
        assert method in result.output
    # A run to audit, not the folder, and not the first one: cce had memorised its labels.
    (named,) = re.findall(r"next: imae audit (\S+)", result.output)
    assert (Path(named) / "config.json").exists()
    assert "cce" not in Path(named).name


def test_the_audit_that_comes_next_is_of_the_best_run_at_its_best_epoch(invoke, tmp_path):
    for name, accuracies in (("cce", (0.55, 0.575)), ("gce", (0.6, 0.5))):
        rows = [
            {"step": step, "test_accuracy": None, "validation_accuracy": each}
            for step, each in enumerate(accuracies, start=1)
        ]
        best = max(rows, key=lambda row: row["validation_accuracy"])
        config = {"data": {"name": "mine"}, "model": {"name": "mlp"}, "method": {"name": name}}
        result = {"best": best, "best_test": None, "final": rows[-1]}
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "result.json").write_text(json.dumps(result))
    result = invoke(tmp_path / "runs", "--out", tmp_path / "page.html")
    assert f"next: imae audit {tmp_path / 'runs' / 'gce'}\n" in result.output


def test_a_page_is_written_as_html_only(invoke, run, tmp_path):
    result = invoke(run, "--out", tmp_path / "page.pdf")
    assert isinstance(result.exception, ArgumentError)
    assert "the extension of --out must be one of .html, .htm, got '.pdf'" in str(result.exception)
    assert not (tmp_path / "page.pdf").exists()
