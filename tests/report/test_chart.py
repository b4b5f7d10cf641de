import math
import re
from itertools import pairwise

import pytest

from imae.report.chart import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Axis,
    Series,
    line_chart,
    log_ticks,
    tick_text,
    ticks_between,
)


def chart(*lines, **options):
    return line_chart("title", lines, x_label="steps", unit="%", **options)


def numbers(path):
    return [float(number) for number in re.findall(r"-?[\d.]+", path)]


def test_an_axis_places_its_ends():
    axis = Axis(0, 10, LEFT, RIGHT, (0, 5))
    assert (axis.place(0), axis.place(10)) == (LEFT, RIGHT)
    assert axis.marks() == [(LEFT, "0"), ((LEFT + RIGHT) / 2, "5")]


def test_a_scale_of_square_roots_stretches_the_small():
    axis = Axis(0, 100, 0, 100, (), scale=math.sqrt)
    assert [axis.place(number) for number in (0, 1, 25, 100)] == [0, 10, 50, 100]


def test_a_logarithmic_scale_spaces_factors_evenly():
    axis = Axis(0.001, 10, 0, 400, (), scale=math.log)
    assert [axis.place(number) for number in (0.001, 0.01, 0.1, 1, 10)] == [0, 100, 200, 300, 400]


@pytest.mark.parametrize(
    ("low", "high"), [(0.0009, 0.11), (0.0048, 0.21), (1e-6, 1), (1e-12, 1), (0.05, 0.08)]
)
def test_logarithmic_ticks_are_few_round_and_have_room_for_their_text(low, high):
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 7
    assert low <= min(ticks) < max(ticks) <= high
    axis = Axis(low, high, LEFT, RIGHT, ticks, scale=math.log)
    marks = axis.marks()
    for (place, text), (following, other) in pairwise(marks):
        assert following - place > 3.5 * (len(text) + len(other))  # 7 pixels are a wide letter


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        (0, 100, (0, 20, 40, 60, 80, 100)),
        (60, 100, (60, 70, 80, 90, 100)),
        (0, 100_000, (0, 20_000, 40_000, 60_000, 80_000, 100_000)),
        (0.001, 0.0032, (0.001, 0.0015, 0.002, 0.0025, 0.003)),
    ],
)
def test_ticks_are_round(low, high, ticks):
    assert ticks_between(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.2, "0.2"), (9999, "9,999"), (10_000, "10k"), (-20_000, "-20k"), (1e6, "1M")],
)
def test_ticks_are_short(number, text):
    assert tick_text(number) == text


def test_a_line_goes_from_its_first_to_its_last_point():
    drawn = chart(Series("a", (10, 20), (0, 100)), limit=(0, 100))
    assert numbers(drawn.marks[0].path) == pytest.approx(
        [(LEFT + RIGHT) / 2, BOTTOM, RIGHT, TOP], abs=0.1
    )
    assert drawn.description == "a ends at 100%."


def test_a_gap_breaks_the_line_and_a_lone_point_is_a_dot():
    drawn = chart(Series("a", (1, 2, 3, 4), (5, 6, None, 7)))
    assert drawn.marks[0].path.count("M") == 2
    assert drawn.marks[0].path.endswith("h0")


def test_the_range_over_seeds_is_drawn_where_there_is_one():
    alone = Series("a", (1, 2), (5, 6), (5, 6), (5, 6))
    several = Series("b", (1, 2), (5, 6), (4, 5), (6, 7))
    drawn = chart(alone, several)
    assert drawn.marks[0].band == ""
    assert drawn.marks[1].band.endswith("Z")
    assert drawn.y.low <= 4
    assert drawn.y.high >= 7


def test_nothing_known_is_no_chart():
    assert chart() is None
    assert chart(Series("a", (1,), (None,))) is None


def test_a_line_without_a_known_height_keeps_its_number():
    drawn = chart(Series("a", (1,), (None,)), Series("b", (1, 2), (3, 4)))
    assert [(mark.series, mark.path == "") for mark in drawn.marks] == [(0, True), (1, False)]


def test_a_long_line_is_thinned_and_keeps_its_end():
    steps = tuple(range(10_001))
    drawn = chart(Series("a", steps, tuple(step / 100 for step in steps)), limit=(0, 100))
    points = numbers(drawn.marks[0].path)
    assert len(points) <= 2 * 401
    assert points[-2:] == [RIGHT, TOP]


@pytest.mark.parametrize("height", [0.0, 0.5, 100.0, 1e-12, 1e9])
def test_a_flat_line_stays_inside(height):
    drawn = chart(Series("a", (0, 1), (height, height)))
    assert all(TOP <= y <= BOTTOM for y in numbers(drawn.marks[0].path)[1::2])


def test_the_limit_holds_and_zero_and_the_reference_are_inside():
    drawn = chart(Series("a", (1, 2), (99, 99.9)), limit=(0, 100))
    assert drawn.y.high == 100
    drawn = chart(Series("a", (1, 2), (60, 70)), from_zero=True, reference=90)
    assert drawn.y.low == 0
    assert TOP <= drawn.reference <= BOTTOM
    assert drawn.y.place(90) == drawn.reference


def test_a_run_at_step_zero_has_an_axis():
    assert chart(Series("a", (0,), (50,))).x.high == 1
