import pytest

from imae.report import figures
from imae.report.figures import save_figures
from imae.report.read import read_run

ENDINGS = ("png", "svg")
ONE_ROW = [{"step": 1, "test_accuracy": 0.5, "validation_accuracy": None}]


@pytest.fixture
def read(make_run):
    """A run that wrote no dynamics: its figures are drawn in no time."""

    def made(*arguments, **options):
        folder = make_run(*arguments, **{"rows": ONE_ROW, **options})
        (folder / "labels.npz").unlink()
        return read_run(folder)

    return made


def test_each_figure_gives_two_files(make_run, tmp_path):
    run = read_run(make_run("a", method="imae", arguments={"T": 8}))
    written = save_figures([run], tmp_path / "figures")
    stem = "digits-symmetric-0.4-small-cnn"
    names = (
        *("test", "held_out", "noisy", "clean"),
        *("weight-share", "weight-1-imae-t-8", "p-1-imae-t-8"),
    )
    assert [path.name for path in written] == [
        f"{stem}-{name}.{ending}" for name in names for ending in ENDINGS
    ]
    assert all(path.stat().st_size > 1000 for path in written)


def test_what_nobody_knows_gives_no_file(read, tmp_path):
    written = save_figures([read()], tmp_path / "figures")
    assert {path.stem.rpartition("-")[2] for path in written} == {"test"}


def test_settings_do_not_overwrite_each_other(read, tmp_path):
    runs = [read(name, data=f"x{name}y") for name in ":;"]
    written = save_figures(runs, tmp_path / "figures")
    assert len({*written}) == len(written) == 4


NAMES = ("$x", "$\\frac$", "_hidden", "../../x", "猫", "a\x00b", "<b>&", "")


@pytest.mark.parametrize("data", ["".join(NAMES), ""])
def test_any_name_is_drawn(read, tmp_path, data):
    runs = [read(str(place), data=data, method=name) for place, name in enumerate(NAMES)]
    png, svg = save_figures(runs, tmp_path / "figures")
    assert png.parent == svg.parent == tmp_path / "figures"
    assert "\x00" not in svg.read_text("utf-8")


def test_runs_that_were_measured_at_different_steps_share_a_figure(read, tmp_path):
    def rows(*steps):
        return [{"step": step, "test_accuracy": 0.5, "validation_accuracy": None} for step in steps]

    runs = [read("a", rows=rows(10, 20)), read("b", method="mae", rows=rows(7, 14, 21))]
    assert len(save_figures(runs, tmp_path / "figures")) == 2


def test_the_figure_of_t_names_it_and_leaves_out_methods_without(read, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, _: drawn.append(figure) or [])
    rows = [{**row, "T": 8.0} for row in ONE_ROW]
    save_figures([read("a"), read("b", method="imae", rows=rows)], tmp_path)
    accuracy, followed = (figure.axes[0] for figure in drawn)
    assert (accuracy.get_ylabel(), followed.get_ylabel()) == ("accuracy in percent", "T")
    names = [
        [text.get_text() for text in axes.legend_.get_texts()] for axes in (accuracy, followed)
    ]
    assert names == [["cce", "imae"], ["imae"]]
    assert followed.lines[0].get_color() == accuracy.lines[1].get_color()
