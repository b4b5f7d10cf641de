import numpy as np

from imae.report.chart import BOTTOM, LEFT
from imae.report.dynamics import NUM_BINS, Gathered, panel


def rows_in(*bins):
    counts = np.bincount(np.array(bins, dtype=int), minlength=NUM_BINS)
    return Gathered(counts, 1.0, len(bins))


POOLED = {
    2: {"clean": rows_in(0, 19, 19, 19), "wrong": rows_in(0, 0, 10, 9)},
    5: {"clean": rows_in(19), "wrong": rows_in(19)},
}


def test_words_say_how_many_rows_are_likely():
    frames = panel("cce", POOLED, [2, 5]).frames
    assert frames[0].words == (
        "Epoch 2: p of at least 1/2 for 75.0% of the clean rows and 25.0% of the wrong rows."
    )
    assert frames[1].epoch == 5


def test_an_epoch_the_method_lacks_shows_the_last_one_before_it():
    shown = panel("cce", POOLED, [1, 2, 3, 5, 9])
    assert [frame.epoch for frame in shown.frames] == [2, 2, 2, 5, 5]


def test_the_outline_is_closed_and_has_a_step_for_each_bin():
    outline = panel("cce", POOLED, [2]).frames[0].outlines["clean"]
    assert outline.startswith(f"M{LEFT} {BOTTOM}V")
    assert outline.endswith(f"V{BOTTOM}Z")
    assert outline.count("H") == NUM_BINS


def test_kinds_are_those_that_are_there():
    assert panel("cce", POOLED, [2]).kinds == ("clean", "wrong")
    assert panel("cce", {1: {"all": rows_in(3)}}, [1]).kinds == ("all",)


def test_an_epoch_that_saw_no_row_says_so():
    (frame,) = panel("cce", {1: {"all": rows_in()}}, [1]).frames
    assert frame.words == "Epoch 1: p of at least 1/2 for no row."


def test_no_dynamics_no_panel():
    assert panel("cce", {}, [1, 2]) is None
