import pytest

from imae.recipes import RECIPES
from imae.recipes.output import place_and_line, save_figures
from imae.recipes.recipe import outcomes


@pytest.mark.parametrize("name", RECIPES.names())
def test_no_two_cells_share_a_line(name):
    lines = [place_and_line(cell) for cell in RECIPES.build(name).cells("paper")]
    assert len(set(lines)) == len(lines)


@pytest.mark.usefixtures("quick_figures")
def test_a_grid_that_grows_keeps_the_names_of_its_figures(recipe, write_run, tmp_path):
    names = []
    for cell in recipe.cells("short"):
        write_run(cell, cell.variants[1], 7, test=0.5, held_out=0.5)
        written = save_figures(outcomes(recipe, "short", tmp_path, {}), tmp_path / "figures")
        names.append({path.name for path in written})
    assert names[0] == names[1] == {path.name for path in (tmp_path / "figures").iterdir()}
    assert "40-test.svg" in names[0]


def test_what_no_run_measured_gives_no_figure(recipe, tmp_path):
    assert save_figures(outcomes(recipe, "short", tmp_path, {}), tmp_path) == []
