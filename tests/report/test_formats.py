import pytest

from imae.records.files import printable
from imae.report.formats import duration, percent, shorten


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[2J", "a\nb", "a\rb", "\x00", "\u202egnp.exe", "\ud800", "\x9b31m", "\u2028"],
)
def test_nothing_steers_a_terminal_or_breaks_a_line(hostile):
    shown = printable(hostile)
    assert shown.isprintable()
    assert "\ufffd" in shown
    assert len(shown) == len(hostile)
    shown.encode("utf-8")


@pytest.mark.parametrize("name", ["cat", "Größe", "猫 10", "👩\u200d🔬", "क्\u200dष"])
def test_real_names_stay_as_they_are(name):
    assert printable(name) == name


def test_other_values_are_shown_as_text():
    assert printable(3) == "3"


def test_only_text_beyond_the_limit_is_cut():
    assert shorten("abcd", limit=4) == "abcd"
    assert shorten("abcde", limit=4) == "abc…"


def test_unknown_is_a_dash_and_zero_is_not():
    assert (percent(None), percent(0.0), percent(1.0)) == ("-", "0.0", "100.0")
    assert (duration(None), duration(0.0)) == ("-", "0.0 ms")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.9994, "999.4 ms"),
        (1.0, "1.0 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3600.0, "1 h 0 min"),
        (90000.0, "25 h 0 min"),
    ],
)
def test_a_duration_takes_the_unit_that_suits_it(seconds, shown):
    assert duration(seconds) == shown
