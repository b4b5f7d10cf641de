import pytest

from imae.cli.app import main
from imae.curves import CURVES
from imae.data.sources import SOURCES
from imae.methods import METHODS
from imae.models import MODELS
from imae.noise import KINDS
from imae.train.config import known_settings


@pytest.mark.parametrize(
    ("kind", "catalog"),
    [
        ("losses", CURVES),
        ("methods", METHODS),
        ("noise", KINDS),
        ("models", MODELS),
        ("data", SOURCES),
    ],
)
def test_every_entry_is_listed_with_its_summary(kind, catalog, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["list", kind]) == 0
    shown = capsys.readouterr().out
    for entry in catalog:
        assert entry.name in shown
        assert entry.summary in shown
        assert entry.reference in shown


def test_a_narrow_terminal_leaves_the_references_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "losses"]) == 0
    assert "reference" not in capsys.readouterr().out


def test_a_narrow_terminal_leaves_the_default_of_a_setting_out_and_not_its_meaning(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list", "settings"]) == 0
    out = capsys.readouterr().out
    assert "what it is" in out
    assert "left out for lack of width: default\n" in out


def test_every_setting_is_listed_with_its_default_and_meaning(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["list", "settings"]) == 0
    shown = capsys.readouterr().out
    for setting in known_settings():
        assert setting.key in shown
        assert setting.meaning, setting.key
        assert setting.meaning in shown
    assert "0.0005" in shown  # the weight decay
    assert "{}" not in shown
