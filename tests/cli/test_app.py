import importlib.metadata
import subprocess
import sys

import pytest

from imae.cli import list as catalogs
from imae.cli.app import main


def test_without_arguments_it_shows_the_commands(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in ("demo", "train", "compare", "report", "predict", "export", "curves", "list"):
        assert command in shown


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == importlib.metadata.version("imae")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curvs"], "No such command"),
        (["curves", "--wrong"], "No such option"),
        (["curves", "imaee"], "did you mean imae"),
        (["list", "everything"], "must be one of losses"),
        (["noise", "no_such_data", "--rate", "0.4", "--out", "labels.csv"], "no_such_data"),
        (["train", "no_such_data"], "no_such_data"),
        (["report", "no_such_run"], "no_such_run"),
        (["predict", "no_such_run", "digits"], "no_such_run"),
    ],
)
def test_a_users_mistake_is_one_line_and_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("imae: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogs, "_catalog", stop)
    assert main(["list", "losses"]) == 130
    assert capsys.readouterr().err == "imae: stopped\n"


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    def fail(_: str) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(catalogs, "_catalog", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(["list", "losses"])


def test_the_installed_program_passes_on_its_exit_code():
    command = [sys.executable, "-c", "import sys; from imae.cli.app import main; sys.exit(main())"]
    assert subprocess.run([*command, "nope"], capture_output=True, check=False).returncode == 2


def test_without_typer_it_names_the_install_command(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main(["curves"]) == 2
    assert "pip install 'imae[cli]'" in capsys.readouterr().err
