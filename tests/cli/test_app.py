import importlib.metadata
import subprocess
import sys

import pytest

from imae.cli import data as catalogs
from imae.cli.app import COMMANDS, load_command, main


def test_without_arguments_it_shows_the_commands(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in ("demo", "train", "compare", "report", "predict", "export", "curves", "list"):
        assert command in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name):
    _, summary = COMMANDS[name]
    assert load_command(name).help.partition("\n")[0] == summary


def commands():
    """Every command and part of a command, by the words that call it."""
    for name in COMMANDS:
        command = load_command(name)
        yield (name,), command
        for part, each in getattr(command, "commands", {}).items():
            yield (name, part), each


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda value: str(value)[:20])
def test_every_help_is_in_one_mood_and_has_a_short_form(words, command, capsys):
    first = command.help.split()[0]
    assert first[0].isupper()
    assert not first.endswith("s"), f"{first}: say what to do, not what it does"
    assert main([*words, "-h"]) == 0
    assert "Usage: imae" in capsys.readouterr().out


def test_every_seed_has_the_same_default():
    seeds = {
        str(option.show_default if option.default is None else option.default)
        for _, command in commands()
        for option in command.params
        if option.name == "seed"
    }
    assert seeds == {"123"}


@pytest.mark.parametrize("arguments", [["data", "list"], ["list", "data"]])
def test_both_ways_to_list_data_agree(arguments, capsys):
    main(["data", "list"])
    expected = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == expected


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


@pytest.mark.parametrize(
    "command",
    [["train"], ["audit"], ["compare"], ["tune"], ["predict", "."]],
)
def test_a_mistyped_path_is_said_before_anything_heavy_is_loaded(command, capsys, monkeypatch):
    def heavy(*names, **_):
        raise AssertionError(names)

    for module in ("train", "compare", "predict"):
        monkeypatch.setattr(f"imae.cli.{module}.import_extra", heavy)
    monkeypatch.setattr("imae.cli.audit._trained", heavy)
    assert main([*command, "gone/table.csv"]) == 2
    assert capsys.readouterr().err == "imae: gone/table.csv: no such file or folder\n"
