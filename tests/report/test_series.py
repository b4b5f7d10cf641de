import pytest

from imae.report.chart import accuracy_series
from imae.report.formats import thin
from imae.report.read import read_run


def rows(**tests):
    return [
        {"step": int(step[1:]), "test_accuracy": test, "validation_accuracy": None}
        for step, test in tests.items()
    ]


def test_the_mean_and_the_range_are_over_the_seeds_at_each_step(make_run):
    runs = [
        read_run(make_run("a", rows=rows(s10=0.5, s20=0.7, s30=0.8))),
        read_run(make_run("b", rows=rows(s10=0.7, s20=None), finished=False)),
    ]
    series = accuracy_series("cce", runs, "test_accuracy")
    assert series.x == (10, 20, 30)
    assert series.y == pytest.approx((60, 70, 80))
    assert series.low == pytest.approx((50, 70, 80))
    assert series.high == pytest.approx((70, 70, 80))


def test_unknown_heights_stay_unknown(make_run):
    run = read_run(make_run(rows=rows(s10=None, s20=0.5)))
    series = accuracy_series("cce", [run], "test_accuracy")
    assert series.y == (None, 50)
    assert series.known == [(20, 50)]
    assert accuracy_series("cce", [run], "noisy_accuracy").known == []


def test_a_run_without_history_gives_an_empty_line(make_run):
    run = read_run(make_run(rows=[], finished=False))
    assert accuracy_series("cce", [run], "test_accuracy").x == ()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 1000])
def test_thinning_keeps_the_ends_and_the_limit(count):
    items = thin(range(count), limit=5)
    assert len(items) == min(count, 5)
    assert items == sorted(set(items))
    if count:
        assert (items[0], items[-1]) == (0, count - 1)
