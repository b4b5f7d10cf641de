import pytest

from imae.cli.app import main

FIGURES = ("weights", "imae_weights", "values")


def test_the_papers_variances_stand_in_the_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["curves"]) == 0
    shown = capsys.readouterr().out
    for variance in ("0.333", "0.089", "354.113", "4.546", "0.299", "0.040", "0.007", "0.002"):
        assert variance in shown


def test_figures_are_written_once_and_the_same_again(tmp_path, capsys):
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert main(["curves", "--out", str(folder)]) == 0
        assert {path.name for path in folder.iterdir()} == {
            f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")
        }
        pictures.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert all(b"<svg" in pictures[-1][f"{name}.svg"] for name in FIGURES)
    assert pictures[0] == pictures[1]
    assert "weights.svg" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_figures")
def test_chosen_losses_are_in_the_table_and_in_figures(tmp_path, capsys):
    assert main(["curves", "gce:q=0.5", "focal", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "gce:q=0.5" in shown
    assert "imae:T=16" not in shown
    assert {path.stem for path in tmp_path.iterdir()} == set(FIGURES)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("gce:q=1.5", "q must be in (0, 1]"),
        ("imae:T=-1", "T must be in [0, 100]"),
        ("imae:t=8", "takes T; got 't'"),
        ("imae:T=eight", "T must be a number"),
        ("gce:q", "must be a number"),
    ],
)
def test_a_bad_loss_is_refused(loss, message, capsys):
    assert main(["curves", loss]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("quick_figures")
def test_an_unwritable_folder_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["curves", "--out", str(tmp_path / "file" / "below")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_bounds_and_symmetry_are_in_the_second_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["curves", "cce", "mae", "imae:T=8", "gce:q=0.5"]) == 0
    table = capsys.readouterr().out.partition("Bounds of the loss")[2]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    found = {row[0]: row[1:] for row in rows if row}
    assert found["mae"] == ["2.000", "18.000", "18.000", "yes"]
    assert found["gce:q=0.5"] == ["2.000", "13.675", "18.000", "no"]
    assert found["cce"][0] == found["imae:T=8"][0] == found["imae:T=8"][2] == "inf"
    assert found["imae:T=8"][3] == "no"
