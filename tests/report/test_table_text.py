import csv
import io

import pytest

from imae.errors import ArgumentError
from imae.report.comparison import Row, Table, table
from imae.report.formats import REPORTED, as_csv, as_markdown, as_text, save_table, summary_text
from imae.report.hints import Summary
from imae.report.read import read_run


@pytest.fixture
def shown(make_run):
    rows = [{"step": 1, "test_accuracy": 0.5, "validation_accuracy": None, "noisy_accuracy": 0.25}]
    other = [{"step": 1, "test_accuracy": 0.7, "validation_accuracy": None}]
    return table(
        [
            read_run(make_run("a", rows=rows, seed=1)),
            read_run(make_run("b", rows=other, seed=2)),
            read_run(make_run("c", method="imae", arguments={"T": 8.0}, rows=other)),
        ]
    )


def hostile_table(name):
    row = Row(name, name, name, name, 0, dict.fromkeys(NAMES), None, None, (name,))
    return Table((row,))


NAMES = tuple(column.name for column in REPORTED)


def test_text_states_once_what_all_rows_share(shown):
    text = as_text(shown, width=200)
    assert text.startswith(
        "data digits, noise symmetric:0.4, network small_cnn, accuracy in percent\n"
    )
    assert text.count("digits") == 1
    assert "60.0±14.1" in text
    assert "imae:T=8" in text


def test_text_says_that_no_noise_was_added_not_that_there_is_none(make_run):
    runs = [read_run(make_run("a", noise=None, finished=False))]
    text = as_text(table(runs), width=200)
    assert text.startswith("data digits, no noise added, network small_cnn,")
    assert "digits, no noise added, small_cnn, cce: 1 running" in text
    assert "Time" not in text  # no run of cce has ended, with whose time to compare
    assert "Time" not in as_markdown(table(runs))


def test_text_keeps_what_differs(make_run):
    runs = [read_run(make_run("a")), read_run(make_run("b", model="mlp"))]
    text = as_text(table(runs), width=200)
    assert text.startswith("data digits, noise symmetric:0.4, accuracy in percent\n")
    assert "Network" in text


def test_unknown_is_a_dash_in_text_and_markdown(shown):
    line = next(line for line in as_text(shown, width=200).splitlines() if "imae" in line)
    assert line.split() == [
        "imae:T=8",
        "1",
        "70.0",
        "70.0",
        "-",
        "1.00\N{MULTIPLICATION SIGN}",
    ]
    line = as_markdown(shown).splitlines()[3]
    assert line.startswith(
        "| digits | symmetric:0.4 | small\\_cnn | imae:T=8 | 1 | 70.0 | 70.0 | - "
    )


def test_no_terminal_is_so_narrow_that_a_number_is_cut(shown):
    narrow = as_text(shown, width=20)
    assert "60.0±14.1" in narrow.split()  # final test, by which methods are compared
    assert "left out" in narrow


@pytest.mark.parametrize("width", [40, 60, 70, 80, 90])
def test_a_table_is_no_wider_than_the_terminal(make_run, width):
    runs = [
        read_run(make_run(f"{method}-{seed}", method=method, seed=seed))
        for method in ("cce", "imae_capped")
        for seed in (1, 2)
    ]
    text = as_text(table(runs), width=width)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.split())
    for whole in ("data digits, noise symmetric:0.4, network small_cnn,", "imae_capped", "Method"):
        assert whole in said
    left_out = said.partition("left out for lack of width: ")[2]
    assert {
        40: "Chosen test, Wrong labels memorised",
        60: "Right labels learned, Wrong labels corrected",
        70: "Wrong labels corrected, Hybrid, Time",
        80: "Hybrid, Time",
        90: "",
    }[width] in left_out
    assert "Final test" not in left_out
    assert bool(left_out) == (width < 90)
    assert "left out" not in as_markdown(table(runs))


def test_without_test_rows_the_best_epoch_is_shown_in_every_terminal(make_run):
    rows = [{"step": 1, "test_accuracy": None, "validation_accuracy": 0.5, "noisy_accuracy": 0.2}]
    runs = [read_run(make_run(name, method=name, rows=rows)) for name in ("cce", "gce")]
    text = as_text(table(runs), width=25)
    assert "Best held-out" not in text.partition("left out")[2]


def test_long_names_are_folded_where_there_is_no_room(make_run):
    runs = [read_run(make_run(str(n), method="imae", arguments={"T": n / 7})) for n in (1, 2)]
    text = as_text(table(runs), width=26)
    assert max(map(len, text.splitlines())) <= 26


def test_what_no_run_knows_has_no_column_but_for_programs(shown):
    for text in (as_text(shown, width=200), as_markdown(shown)):
        assert "memorised" in text
        assert "Hybrid" not in text
    assert "hybrid_mean" in as_csv(shown)


def test_held_out_labels_have_a_column_where_test_rows_lack(make_run):
    known = {"step": 1, "test_accuracy": 0.5, "validation_accuracy": 0.4}
    tested = table([read_run(make_run("a", rows=[known]))])
    assert "held-out given labels" not in as_markdown(tested)
    untested = table([read_run(make_run("b", rows=[{**known, "test_accuracy": None}]))])
    assert "| Best held-out given labels | Final held-out given labels |" in as_markdown(untested)
    assert "test" not in as_markdown(untested)


def test_eighty_columns_hold_a_table_of_several_seeds(make_run):
    runs = [
        read_run(make_run(f"{method}-{seed}", method=method, arguments=arguments, seed=seed))
        for method, arguments in (("cce", {}), ("imae", {"T": 8.0}))
        for seed in (1, 2)
    ]
    text = as_text(table(runs), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("corrected", "Chosen", "Hybrid", "±", "imae:T=8"):
        assert whole in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/x]", "a\x1b[31mb", "\\", "x" * 300])
def test_names_are_not_read_as_markup_or_commands(name):
    text = as_text(hostile_table(name), width=100)
    assert "\x1b" not in text
    folded = "".join(text.split())
    assert folded.count(name.replace("\x1b", "\ufffd")) >= 2


@pytest.mark.parametrize("name", ["a|b", "<b>x</b>", "[x](javascript:1)", "`x`", "a\nb", "$x$"])
def test_markdown_names_are_literal(name):
    lines = as_markdown(hostile_table(name)).splitlines()
    plain = lines[2].replace("\\|", "")
    assert plain.count("|") == 6
    for letter in "<[`$":
        assert plain.count(letter) == plain.count("\\" + letter)


def test_csv_holds_fractions_and_leaves_unknown_cells_empty(shown):
    first, second = csv.DictReader(io.StringIO(as_csv(shown)))
    assert float(first["final_mean"]) == pytest.approx(0.6)
    assert first["final_count"] == "2"
    assert (second["final_mean"], second["final_deviation"]) == ("0.7", "")
    assert (second["noisy_mean"], second["noisy_count"]) == ("", "0")
    assert second["method"] == "imae:T=8"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_runs_no_name(name):
    (row,) = csv.DictReader(io.StringIO(as_csv(hostile_table(name))))
    assert row["method"] == "'" + name


def test_csv_quotes_what_needs_it():
    (row,) = csv.DictReader(io.StringIO(as_csv(hostile_table('a,"b"'))))
    assert row["data"] == 'a,"b"'


def test_notes_stand_below(make_run):
    runs = [read_run(make_run("a")), read_run(make_run("b", seed=2, finished=False))]
    for text in (as_text(table(runs), width=120), as_markdown(table(runs))):
        assert text.rstrip().endswith("cce: 1 running")


def test_the_ending_says_what_is_written(shown, tmp_path):
    save_table(shown, tmp_path / "table.csv")
    save_table(shown, tmp_path / "table.MD")
    assert (tmp_path / "table.csv").read_text() == as_csv(shown)
    assert (tmp_path / "table.MD").read_text() == as_markdown(shown)
    with pytest.raises(ArgumentError, match=r"must be one of \.csv, \.md, got '\.xlsx'"):
        save_table(shown, tmp_path / "table.xlsx")


def test_the_count_is_shown_when_a_run_lacks_the_number():
    summary = Summary(0.5, None, 1)
    assert summary_text(summary, seeds=1) == "50.0"
    assert summary_text(summary, seeds=2) == "50.0 (1)"
    assert summary_text(None, seeds=2) == "-"
