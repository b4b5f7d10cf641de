import numpy as np
import pytest

from imae.report.comparison import compare, table
from imae.report.dynamics import read_labels
from imae.report.read import read_run


def compared(*folders):
    runs = [read_run(folder) for folder in folders]
    labels = {run.folder: read_labels(run.folder) for run in runs}
    return compare(runs, table(runs), labels)


def weigh(folder, clean, wrong):
    """Gives every clean row one weight and every wrong row another, in all epochs."""
    labels = read_labels(folder)
    weight = np.where(labels.given == labels.clean, clean, wrong).astype(np.float32)
    for path in (folder / "dynamics").iterdir():
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **arrays | {"weight": weight})
    return float((labels.given != labels.clean).mean())


def test_methods_keep_their_place_in_every_chart(make_run):
    shown = compared(make_run("a", method="mae"), make_run("b", method="cce"))
    assert shown.methods == ("mae", "cce")
    for chart in (*shown.accuracies.values(), shown.shares):
        assert [mark.label for mark in chart.marks] == ["mae", "cce"]
    assert [panel.method for panel in shown.panels] == ["mae", "cce"]
    assert [row.method for row in shown.rows] == ["mae", "cce"]


def test_weights_are_those_that_were_measured(make_run):
    folder = make_run()
    share = weigh(folder, clean=3.0, wrong=1.0)
    shown = compared(folder)
    clean, wrong = shown.weights[0].series
    assert (clean.label, set(clean.y)) == ("clean rows", {3.0})
    assert (wrong.label, set(wrong.y)) == ("wrong rows", {1.0})
    (line,) = shown.shares.series
    assert line.y[-1] == pytest.approx(100 * share / (share + 3 * (1 - share)))
    assert shown.shares.reference == shown.shares.y.place(100 * share)


def test_seeds_are_pooled(make_run):
    folders = [make_run("a", seed=1), make_run("b", seed=2)]
    weigh(folders[0], clean=1.0, wrong=1.0)
    weigh(folders[1], clean=3.0, wrong=3.0)
    shown = compared(*folders)
    assert len(shown.weights) == 1
    assert shown.weights[0].series[0].y[0] == pytest.approx(2, abs=0.1)


def test_a_weight_of_zero_everywhere_has_no_share(make_run):
    folder = make_run()
    weigh(folder, clean=0.0, wrong=0.0)
    assert compared(folder).shares is None


def test_epochs_are_thinned_evenly_with_the_ends(make_run, monkeypatch):
    monkeypatch.setattr("imae.report.comparison._NUM_EPOCHS", 3)
    shown = compared(make_run())
    assert shown.epochs == (1, 3, 6)
    assert [len(panel.frames) for panel in shown.panels] == [3]


def test_without_labels_there_are_no_rows_to_show(make_run):
    folder = make_run()
    (folder / "labels.npz").unlink()
    shown = compared(folder)
    assert (shown.panels, shown.weights, shown.shares, shown.classes) == ((), (), None, None)
    assert list(shown.accuracies) == ["test", "held_out", "noisy", "clean"]


def test_without_truth_all_rows_are_shown_together(make_run):
    shown = compared(make_run(truth=False))
    assert [panel.kinds for panel in shown.panels] == [("all",)]
    assert [line.label for line in shown.weights[0].series] == ["all rows"]
    assert shown.shares is None


def test_only_rows_of_the_setting_are_shown(make_run):
    runs = [read_run(make_run("a")), read_run(make_run("b", model="mlp"))]
    labels = {run.folder: None for run in runs}
    shown = compare(runs[1:], table(runs), labels)
    assert shown.names == ("digits", "symmetric:0.4", "mlp")
    assert [row.model for row in shown.rows] == ["mlp"]


@pytest.mark.parametrize(("count", "end"), [(24, "class 23"), (25, "class 23 and 1 more")])
def test_many_classes_are_cut(make_run, count, end):
    names = tuple(f"class {number}" for number in range(count))
    assert compared(make_run(class_names=names)).classes.endswith(end)
