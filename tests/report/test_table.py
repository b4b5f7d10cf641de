import statistics

import pytest

from imae.records.measures import find_column
from imae.report.comparison import table
from imae.report.hints import Summary
from imae.report.read import read_run

BEST, FINAL, NOISY = map(find_column, ("best", "final", "noisy"))


def rows_of(*tests, **others):
    return [
        {"step": step, "test_accuracy": test, "validation_accuracy": None, **others}
        for step, test in enumerate(tests, start=1)
    ]


@pytest.fixture
def read(make_run):
    def made(*arguments, **options):
        return read_run(make_run(*arguments, **options))

    return made


def test_best_and_final_are_apart_and_taken_over_seeds(read):
    runs = [
        read("a", seed=1, rows=rows_of(0.5, 0.9, 0.6)),
        read("b", seed=2, rows=rows_of(0.5, 0.8, 0.7)),
    ]
    (row,) = table(runs).rows
    assert row.seeds == 2
    assert row.values["best"].mean == pytest.approx(0.85)
    assert row.values["final"].mean == pytest.approx(0.65)
    assert row.values["final"].deviation == pytest.approx(statistics.stdev([0.6, 0.7]))
    assert row.notes == ()


def test_the_chosen_test_accuracy_is_that_of_the_epoch_that_held_out_labels_choose(read):
    rows = [
        {"step": 1, "test_accuracy": 0.6, "validation_accuracy": 0.5},
        {"step": 2, "test_accuracy": 0.7, "validation_accuracy": 0.4},
    ]
    (row,) = table([read("a", rows=rows)]).rows
    assert row.values["chosen_test"] == Summary(0.6, None, 1)
    run = read("b", rows=rows_of(0.6, 0.7))
    run.result["best"] = run.result["best_test"]  # as without held-out rows
    compared = table([run])
    assert compared.rows[0].values["chosen_test"] is None
    assert "chosen_test" not in [column.name for column in compared.columns]


def test_one_seed_has_no_deviation(read):
    (row,) = table([read(rows=rows_of(0.5))]).rows
    assert row.values["final"] == Summary(0.5, None, 1)


def test_unknown_is_none_and_never_zero(read):
    (row,) = table([read(rows=rows_of(None, None))]).rows
    assert set(row.values.values()) == {None}


def test_a_number_that_some_runs_lack_counts_those_that_know_it(read):
    runs = [
        read("a", seed=1, rows=rows_of(0.5, noisy_accuracy=0.2)),
        read("b", seed=2, rows=rows_of(0.7, noisy_accuracy=None)),
    ]
    (row,) = table(runs).rows
    assert row.values["noisy"] == Summary(0.2, None, 1)
    assert row.values["final"].count == row.seeds == 2


@pytest.mark.parametrize(
    "other",
    [
        {"data": "cifar10"},
        {"noise": None},
        {"model": "resnet20"},
        {"method": "imae"},
        {"arguments": {"T": 4.0}},
    ],
)
def test_what_differs_in_a_name_stands_in_a_row_of_its_own(read, other):
    assert len(table([read("a"), read("b", **other)]).rows) == 2
    assert len(table([read("c"), read("d", seed=2)]).rows) == 1


def test_rows_stand_in_the_order_of_the_runs(read):
    runs = [read("a", method="mae"), read("b", method="cce"), read("c", method="mae", seed=2)]
    assert [row.method for row in table(runs).rows] == ["mae", "cce"]


def test_time_is_relative_to_cce_of_the_same_setting(read):
    runs = [
        read("a", method="imae", seconds_per_step=0.03),
        read("b", method="cce", seconds_per_step=0.01),
        read("c", method="cce", seconds_per_step=0.03, seed=2),
        read("d", method="imae", model="mlp", seconds_per_step=0.5),
    ]
    times = {(row.method, row.model): row.relative_time for row in table(runs).rows}
    assert times[("imae", "small_cnn")] == pytest.approx(1.5)
    assert times[("cce", "small_cnn")] == pytest.approx(1)
    assert times[("imae", "mlp")] is None


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_an_unknown_time_of_cce_gives_no_ratio(read, seconds):
    runs = [read("a", seconds_per_step=0.01), read("b", method="mae", seconds_per_step=0.01)]
    runs[0].result["seconds_per_step"] = seconds
    assert [row.relative_time for row in table(runs).rows] == [None, None]


def test_an_unfinished_run_adds_a_note_and_no_number(read):
    runs = [
        read("a", seed=1, rows=rows_of(0.5)),
        read("b", seed=2, rows=rows_of(0.9), finished=False),
        read("c", seed=3, finished=False, progress={"status": "failed"}),
    ]
    (row,) = table(runs).rows
    assert (row.seeds, row.values["final"].mean) == (1, 0.5)
    assert row.notes == ("1 running", "1 failed")


def test_runs_of_different_recipes_are_noted(read):
    runs = [read("a"), read("b", seed=2, extra={"train": {"epochs": 9}})]
    (row,) = table(runs).rows
    assert row.notes == ("runs differ in train.epochs",)


def test_a_long_list_of_differences_is_cut(read):
    runs = [
        read(name, seed=seed, extra={"train": {f"option {n}": n + seed for n in range(6)}})
        for name, seed in (("a", 1), ("b", 2))
    ]
    (row,) = table(runs).rows
    assert row.notes[0].endswith("option 3 and 2 more")


def test_a_seed_that_ran_twice_is_noted(read):
    (row,) = table([read("a", seed=3), read("b", seed=3)]).rows
    assert row.notes == ("several runs with seed 3",)


def test_the_best_of_a_setting_knows_which_way_is_better(read):
    shown = table(
        [
            read("a", method="cce", rows=rows_of(0.5, noisy_accuracy=0.7)),
            read("b", method="mae", rows=rows_of(0.9, noisy_accuracy=0.1)),
            read("c", method="cce", data="other", rows=rows_of(0.1, noisy_accuracy=0.0)),
        ]
    )
    assert [shown.best(row, FINAL) for row in shown.rows] == [False, True, False]
    assert [shown.best(row, NOISY) for row in shown.rows] == [False, True, False]


def test_equal_rows_have_no_best(read):
    shown = table([read("a", rows=rows_of(0.5)), read("b", method="mae", rows=rows_of(0.5))])
    assert [shown.best(row, BEST) for row in shown.rows] == [False, False]


def test_an_unknown_number_is_not_the_best(read):
    shown = table([read("a", rows=rows_of(None)), read("b", method="mae", rows=rows_of(0.5))])
    assert not shown.best(shown.rows[0], FINAL)
