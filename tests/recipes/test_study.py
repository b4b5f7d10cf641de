import pytest

from imae.recipes import RECIPES
from imae.recipes.recipe import outcomes
from imae.recipes.tables.imae_settings import choose, forms
from imae.train import build_config

DEFAULT = "Tauto-cap0.75-half"


def test_every_setting_has_every_form_and_every_other_method():
    by_name = {cell.name: cell for cell in RECIPES.build("study").cells("features")}
    assert len(by_name) == 16 * (len(forms()) + 7) + 4 * 5 * 3
    config = build_config(by_name["c100n-imae_capped-T4-cap0.75-chance"].settings)
    assert config.data.name == "cifar100n"
    assert config.data.features == "efficientnet_lite0"
    wanted = {"T": 4.0, "cap": 0.75, "normalize": "chance"}
    assert {key: config.method.arguments[key] for key in wanted} == wanted
    digits = build_config(by_name["digits-s40-gce-lr0.2"].settings)
    assert (digits.data.features, digits.data.augment, digits.optimizer.lr) == (None, False, 0.2)
    adam = build_config(by_name[f"c10-s40-imae_capped-{DEFAULT}-adam0.001"].settings)
    assert (adam.optimizer.name, adam.data.features) == ("adam", "efficientnet_lite0")
    auto = build_config(by_name["c10-s40-imae_capped-Tauto-cap0.5-half"].settings)
    assert auto.method.arguments["T"] == "auto"


def cell_names(setting):
    return [f"{setting}-cce", f"{setting}-gce", *(f"{setting}-imae_capped-{f}" for f in forms())]


@pytest.fixture
def trained(write_run, tmp_path):
    """Two settings: one form is best on held-out labels, another one on the test rows."""

    def train(*, settings=("c10-s40", "c10-a40")):
        recipe = RECIPES.build("study")
        cells = {cell.name: cell for cell in recipe.cells("features")}
        for setting in settings:
            for name in cell_names(setting):
                test, held_out = 0.6, 0.3
                if name.endswith("T8-cap0.75-chance"):
                    test, held_out = 0.7, 0.5
                elif name.endswith("T16-cap0.5-chance"):
                    test = 0.9
                elif name.endswith("c10-a40-gce"):
                    test = 0.75
                write_run(cells[name], cells[name].variants[0], 123, test=test, held_out=held_out)
        return outcomes(recipe, "features", tmp_path, {})

    return train


def test_one_form_is_chosen_by_held_out_labels_and_no_test_row(trained, tmp_path):
    (path,) = choose(tmp_path, trained())
    text = path.read_text()
    assert text.startswith(
        "Chosen by held-out given labels over 2 settings: **T8-cap0.75-chance**."
    )
    row = next(line for line in text.splitlines() if line.startswith("| CIFAR-10 symmetric 40%"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("CIFAR-10 symmetric 40%", "60.0", "-", "60.0", "-", "-", "-", "-", "60.0", "70.0"),
        "70.0 (T8-cap0.75-chance)",
    ]
    assert "**T8-cap0.75-chance**: final test accuracy at or above every other method in 1" in text
    assert f"**{DEFAULT}**: final test accuracy at or above every other method in 1" in text
    assert "-5.0 points (CIFAR-10 asymmetric 40%)" in text


def test_without_runs_nothing_is_chosen(tmp_path):
    recipe = RECIPES.build("study")
    assert choose(tmp_path, outcomes(recipe, "features", tmp_path, {})) == []


def test_settings_that_were_run_in_part_do_not_spoil_the_choice(trained, write_run, tmp_path):
    trained()
    recipe = RECIPES.build("study")
    cells = {cell.name: cell for cell in recipe.cells("features")}
    for seed in (123, 124):
        for name, test in ((f"c100n-imae_capped-{DEFAULT}", 0.5), ("c100n-cce", 0.4)):
            write_run(cells[name], cells[name].variants[0], seed, test=test, held_out=0.99)
    (path,) = choose(tmp_path, outcomes(recipe, "features", tmp_path, {}))
    text = path.read_text()
    assert text.startswith(
        "Chosen by held-out given labels over 2 settings: **T8-cap0.75-chance**."
    )
    assert "| CIFAR-100N | 40.0 ± 0.0 (2) | - |" in text
    assert "CIFAR-100N +10.0" in text


def test_t_from_the_training_is_compared_with_the_best_fixed_t(trained, tmp_path):
    text = choose(tmp_path, trained())[0].read_text()
    assert "mean difference -10.00 points over 2 settings" in text
    assert "| CIFAR-10 symmetric 40% | 60.0 | 70.0 | 8 | -10.0 |" in text
    assert "Learning rates" not in text


def test_learning_rates_are_shown_with_their_spread(trained, write_run, tmp_path):
    trained()
    recipe = RECIPES.build("study")
    cells = {cell.name: cell for cell in recipe.cells("features")}
    for label, test in (("lr0.01", 0.5), ("adam0.001", 0.75)):
        cell = cells[f"c10-s40-gce-{label}"]
        write_run(cell, cell.variants[0], 123, test=test, held_out=0.3)
    text = choose(tmp_path, outcomes(recipe, "features", tmp_path, {}))[0].read_text()
    assert "| CIFAR-10 symmetric 40% | GCE | 50.0 | 60.0 | - | 75.0 | 25.0 |" in text
