import atexit
import gc
import importlib.metadata
import io
import signal
import subprocess
import sys

import pytest

import imae.cli
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
        (["predict", "no_such_run"], "Missing argument 'DATA'"),
        (["audit", "serv", "run"], "'serv'; did you mean imae audit serve?"),
        (["train", "digitz"], "and unknown data set 'digitz'; did you mean digits?\n"),
        (["train", "digits", "--model", "mlq"], "unknown model 'mlq'; did you mean mlp?\n"),
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


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_an_output_that_knows_few_letters_gets_escapes(monkeypatch, tmp_path, errors):
    output = io.TextIOWrapper(io.BytesIO(), "ascii", errors)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("COLUMNS", "200")
    assert imae.cli.main(["data", "list", "--root", str(tmp_path / "東京")]) == 0
    output.flush()
    assert rb"\u6771\u4eac" in output.buffer.getvalue()
    assert output.errors == errors


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    def fail(_: str) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(catalogs, "_catalog", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(["list", "losses"])


def test_only_the_program_itself_ends_without_a_search_for_garbage(monkeypatch):
    """Search takes 0.6 s with torch; a caller in Python has an end of its own."""
    registered = []
    monkeypatch.setattr(atexit, "register", registered.append)
    assert imae.cli.main(["--version"]) == 0
    assert registered == []
    monkeypatch.setattr(sys, "argv", ["imae", "--version"])
    assert imae.cli.main() == 0
    assert registered == [gc.freeze]


def test_the_installed_program_passes_on_its_exit_code():
    command = [sys.executable, "-c", "import sys; from imae.cli import main; sys.exit(main())"]
    assert subprocess.run([*command, "nope"], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_typer_it_names_the_install_command(package, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "imae.cli.app")
    monkeypatch.delattr("imae.cli.app")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert imae.cli.main(["curves"]) == 2
    assert capsys.readouterr().err == "imae: the command line needs: pip install 'imae[cli]'\n"


LOADING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by a program in the background
class Pressed:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Pressed())
from imae.cli import main
sys.exit(main(["list", "losses"]))
"""


@pytest.mark.parametrize("module", ["imae.cli.app", "typer", "imae.curves.catalog"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module):
    command = [sys.executable, "-c", LOADING, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "imae: stopped\n")


@pytest.fixture
def _interruptible():
    """Python's own handler of Ctrl-C, which a program in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_is_handled_as_before_when_the_command_has_ended(monkeypatch, capsys):
    def press(_: object) -> int:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr("imae.cli.app.main", press)
    assert imae.cli.main([]) == 130
    assert capsys.readouterr().err == "imae: stopped\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
