"""What commands show on a terminal: tables that break no word, and the next command."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from imae.cli import app
from imae.cli.app import COMMANDS, load_command, main, print_table, progress_bar, say

WORDS = ["handwritten", "digits", "inside", "scikit-learn", "photographs", "of", "everything"]


def words_of(text):
    return set(re.sub(r"[^\w.:,;()=*+/'`$\-\[\]~]", " ", text).split())


def long_table():
    table = Table("name", "what it is", "where it comes from")
    table.columns[0].no_wrap = True
    for number in range(4):
        table.add_row(f"set_{number}", " ".join(WORDS), "fashion-mnist.s3-website.example")
    return table


def printed(width, show):
    file = io.StringIO()
    show(Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [30, 44, 60, 75, 80, 100, 140])
def test_no_word_is_broken_at_any_width(width):
    text = printed(width, lambda console: print_table(long_table(), console))
    heads = {"name", "what", "it", "is", "where", "comes", "from"}
    known = {*WORDS, *heads, "fashion-mnist.s3-website.example", *(f"set_{n}" for n in range(4))}
    text, _, left_out = text.partition("left out for lack of width: ")
    assert words_of(text) <= known
    assert all(len(line) <= width for line in text.splitlines())
    assert left_out == ("where it comes from\n" if "where" not in text else "")


def test_the_search_for_broken_words_can_fail():
    text = printed(44, lambda console: console.print(long_table()))
    assert not words_of(text) <= {*WORDS, "fashion-mnist.s3-website.example"}


def test_a_table_that_fits_is_left_as_it_is():
    assert printed(200, lambda console: print_table(long_table(), console)) == printed(
        200, lambda console: console.print(long_table())
    )


def test_long_names_are_shortened_before_a_column_is_left_out():
    def table():
        found = Table("row", "given", "suggested", "wrong")
        found.add_row("2024/" + "x" * 60 + "/7.jpg", "a" * 40, "b" * 40, "93.1%")
        return found

    for width in (50, 80):
        text = printed(
            width,
            lambda console: print_table(table(), console, shortened=("row", "given", "suggested")),
        )
        assert "93.1%" in text
        assert "…" in text
        assert "jpg" in text
        assert all(len(line) <= width for line in text.splitlines())
    text = printed(80, lambda console: print_table(table(), console))
    assert text.endswith("left out for lack of width: suggested, wrong\n")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_sentence_is_broken_between_words_on_a_terminal_only(is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(app, "Console", lambda: Console(width=40, force_terminal=is_terminal))
    say("About a third of the labels, which is many, are wrong.")
    first = capsys.readouterr().out.splitlines()[0]
    assert first.rstrip().endswith("which is" if is_terminal else "wrong.")
    say("Review them, when you have the time for it: imae audit serve run")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_room_goes_to_the_column_that_needs_it_most_often():
    table = Table("name", "what it is", "parameters")
    table.add_row("odd", "rare", "alpha=1.0, beta=2.0, gamma=3.0, delta=4.0, epsilon=5.0")
    for number in range(8):
        table.add_row(f"set_{number}", " ".join(WORDS), "")
    text = printed(80, lambda console: print_table(table, console))
    assert len(text.splitlines()) == 4 + 8 * 2 + 3  # 8 more by the longest cells


@pytest.mark.parametrize(
    ("listed", "most"), [("methods", 110), ("data", 32), ("models", 40), ("recipes", 32)]
)
def test_a_list_is_short_in_a_narrow_terminal(capsys, monkeypatch, listed, most):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", listed]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= most
    cells = [line.split("│") for line in lines if line.startswith("│")]
    assert {len(row) for row in cells} <= {4, 5, 7}
    assert all(any(row[place].strip() for row in cells) for place in range(1, len(cells[0]) - 1))


def test_parameters_that_many_take_are_said_once(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "methods"]) == 0
    text = capsys.readouterr().out
    assert text.count("window_low") == text.count("factor=1.0") == 1
    assert "cap=0.75" in text  # a default of its own stays with its method
    assert re.search(r"^Many also take .*\bcap=None", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("width", [60, 80])
def test_a_list_is_no_wider_than_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list", "methods"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text[text.index("Many also take") :].split())
    assert "normalize=None, " in said


@pytest.mark.parametrize("command", [["train"], ["audit", "run"], ["eval-retrieval"]])
def test_help_is_broken_by_the_width_of_the_terminal_alone(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    main([*command, "--help"])
    about = capsys.readouterr().out.partition("╭")[0].splitlines()
    paragraphs = [line for line in about if line.strip()][2:]
    short = [line for line in paragraphs if len(line.rstrip()) < 60]
    assert all(line.rstrip().endswith(".") for line in short)


def every_command() -> list[list[str]]:
    return [
        words
        for name in COMMANDS
        for words in [
            [name],
            *([name, part] for part in getattr(load_command(name), "commands", ())),
        ]
    ]


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_help_is_whole_in_a_narrow_terminal(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "60")
    main([*command, "--help"])
    text = capsys.readouterr().out
    assert "…" not in text  # of a word that was cut
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize(
    ("command", "argument"),
    [("train", "[DATA]"), ("predict", "{RUN} {DATA}"), ("list", "{KIND}"), ("reproduce", "[NAME]")],
)
def test_usage_names_arguments_as_the_help_does(capsys, command, argument):
    main([command, "--help"])
    usage = next(line for line in capsys.readouterr().out.splitlines() if "Usage" in line)
    assert re.sub(r"[{}]", "", argument) in re.sub(r"[{}]", "", usage)


@pytest.mark.parametrize(
    ("command", "following"),
    [
        (["curves", "gce"], "imae curves gce --out figures"),
        (["reproduce", "--list"], "imae reproduce NAME"),
        (["reproduce", "weights", "--list"], "imae reproduce weights"),
    ],
)
def test_a_command_that_only_shows_something_names_the_next(capsys, command, following):
    assert main(command) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"next: {following}"


def test_the_next_command_is_said_on_the_error_stream(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "noise"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "next: imae noise DATA --kind NAME --rate 0.4 --out labels.csv\n"
    assert "next:" not in shown.out


def test_progress_in_a_log_is_a_line_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("imae.data.extract.time.monotonic", lambda: now[0])
    with progress_bar("predictions") as show:
        for seconds, done in ((1, 10), (40, 0), (41, 400), (60, 600), (75, 750)):
            now[0] = seconds
            show(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "predictions: 400 of 1000 rows, 9.8 rows/s, 1 min left",
        "predictions: 750 of 1000 rows, 10.0 rows/s, 0 min left",
    ]
