import json
from pathlib import Path

import pytest

from imae.cli import compare as demo
from imae.cli.app import main
from imae.report import as_csv, as_markdown, read_runs, table


@pytest.mark.usefixtures("quick_figures")
def test_the_demo_compares_four_losses_under_one_recipe(tmp_path, capsys, monkeypatch):
    short = {**demo._SETTINGS, "model": {"name": "mlp"}, "train": {"steps": 2}}
    monkeypatch.setattr(demo, "_SETTINGS", short)
    monkeypatch.setattr(demo, "_SEEDS", 1)
    monkeypatch.setattr(demo.os, "cpu_count", lambda: 1)  # starting processes takes longest
    assert main(["demo", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for loss in ("cce", "mae", "gce", "imae_capped"):
        assert loss in shown
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_the_demo_makes_the_papers_point(tmp_path):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    rows = table(read_runs(path.parent for path in tmp_path.glob("*/config.json"))).rows
    final = {row.method: row.values["final"].mean for row in rows}
    assert final["imae_capped"] >= final["cce"] + 0.10


def test_the_table_in_the_repository_is_that_of_its_records():
    stored = Path(__file__).parents[2] / "results" / "demo"
    settings = json.loads((stored / "compare.json").read_text())
    assert settings["noise"] == "symmetric:0.4"
    seeds = range(123, 126)
    losses = ("cce", "mae", "gce", "imae_capped")
    records = read_runs(stored / "runs" / f"{loss}-seed{seed}" for seed in seeds for loss in losses)
    assert as_markdown(table(records)) == (stored / "table.md").read_text()
    assert as_csv(table(records)) == (stored / "table.csv").read_text()
