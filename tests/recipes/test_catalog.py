import pytest

from imae.recipes import BUDGETS, RECIPES
from imae.recipes.grid import build_jobs
from imae.recipes.recipe import published_cells


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", RECIPES.names())
def test_every_cell_of_every_budget_is_a_valid_run(name, budget, tmp_path):
    recipe = RECIPES.build(name)
    assert recipe.name == name
    cells = recipe.cells(budget)
    assert len({cell.name for cell in cells}) == len(cells)
    assert len({tuple(cell.columns.values()) for cell in cells}) == len(cells)
    assert len({tuple(cell.columns) for cell in cells}) <= 1
    jobs = build_jobs(cells, seeds=1, folder=tmp_path, settings={})
    assert len({job.name for job in jobs}) == len(jobs) >= len(cells)
    assert {job.config.seed for job in jobs} <= {123}


@pytest.mark.parametrize("name", [name for name in RECIPES.names() if name != "weights"])
def test_every_number_of_the_paper_has_its_cell(name):
    names = {cell.name for cell in RECIPES.build(name).cells("paper")}
    assert set(published_cells(name)) <= names


def test_the_recipes_that_were_promised_are_there():
    assert set(RECIPES.names()) >= {
        "weights",
        "cifar10",
        "cifar100_symmetric",
        "cifar100_asymmetric",
        "clothing1m",
        "t_ablation",
        "optimisers",
        "abnormal_examples",
        "cifar_n",
        "cnn8",
    }
