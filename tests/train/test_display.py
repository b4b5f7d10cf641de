import io
import sys

import pytest

from imae.train.display import BarDisplay, Display, LineDisplay, QuietDisplay, shown_display

ROW = {"test_accuracy": 0.5, "validation_accuracy": None}


def show(display):
    display.start(0, 10)
    display.advance(3)
    display.measured(ROW)
    display.say("[red] must not be missed")
    display.close()


def test_the_plain_display_shows_nothing(capsys):
    show(Display())
    assert capsys.readouterr() == ("", "")


def test_the_quiet_display_shows_only_lines(capsys):
    show(QuietDisplay())
    assert capsys.readouterr() == ("", "imae: [red] must not be missed\n")


def test_the_bar_shows_lines_as_they_are(capsys):
    show(BarDisplay())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "imae: [red] must not be missed" in captured.err


@pytest.mark.parametrize("kind", [BarDisplay, LineDisplay, QuietDisplay])
def test_a_name_from_a_file_does_not_control_the_terminal(capsys, kind):
    kind().say("classes cat\x1b[2J\u202etac 3")
    err = capsys.readouterr().err
    assert "\u202e" not in err
    assert "\x1b[2J" not in err
    assert "cat\ufffd[2J\ufffdtac 3" in err


@pytest.mark.parametrize("kind", [BarDisplay, LineDisplay])
def test_what_was_told_about_the_data_is_not_told_again(capsys, kind):
    printed = set()
    kind(printed=printed).read("60 rows", ["a note"])
    kind(printed=printed).read("60 rows", ["a note", "another"])
    assert capsys.readouterr().err == "imae: 60 rows\nimae: a note\nimae: another\n"
    kind().read("60 rows", [])
    assert capsys.readouterr().err == "imae: 60 rows\n"


def test_the_quiet_display_shows_notes_on_the_data_unless_told_not_to(capsys):
    QuietDisplay().read("60 rows", ["a note"])
    QuietDisplay(has_notes=False).read("60 rows", ["a note"])
    assert capsys.readouterr().err == "imae: a note\n"


def test_a_log_gets_a_line_a_minute(capsys):
    now = 0.0
    display = LineDisplay(clock=lambda: now)
    display.start(100, 1000)  # resumed: the steps before took no time now
    for step in range(101, 201):
        now += 1.5
        display.advance(step)
        if step == 150:
            display.measured({"test_accuracy": 0.5, "validation_accuracy": 0.25})
    assert capsys.readouterr().err == (
        "imae: step 140 of 1000, 0:21:30 left\n"
        "imae: step 180 of 1000, 0:20:30 left; test 50.0%, held-out given labels 25.0%\n"
    )


@pytest.mark.parametrize(("is_terminal", "kind"), [(True, BarDisplay), (False, LineDisplay)])
def test_only_a_terminal_gets_the_bar(monkeypatch, is_terminal, kind):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(shown_display()) is kind
