import pytest

from imae.errors import ArgumentError
from imae.recipes.protocols import BUDGETS, budgeted
from imae.recipes.recipe import Cell, Variant
from imae.train import build_config

SETTINGS = {
    "data": {"name": "cifar100n", "options": {"variant": "fine"}},
    "noise": "cifar100_asymmetric:0.3",
    "model": {"name": "resnet44"},
    "method": {"name": "cce"},
    "train": {"steps": 1000, "batch_size": 128, "evaluate_every": 100},
    "schedule": {"name": "steps", "at": (100, 200)},
}


def cells(*methods):
    return [
        Cell(f"{name}-{number}", {}, {**SETTINGS, "method": {"name": name}})
        for number, name in enumerate(methods)
    ]


def test_paper_leaves_the_cells_as_they_are():
    given = cells("cce", "mae")
    assert budgeted("paper", given, short={"noise": None}) == tuple(given)


def test_short_is_laid_over_and_tries_the_same_rates_for_all():
    given = cells("cce", "mae")
    found = budgeted("short", given, short={"data": {"rows": 100}}, rates=(0.1, 0.02))
    for cell in found:
        assert cell.settings["data"] == {**SETTINGS["data"], "rows": 100}
        assert [each.label for each in cell.variants] == ["lr=0.1", "lr=0.02"]
        assert cell.variants[1].settings == {"optimizer": {"lr": 0.02}}
    assert budgeted("short", given, short={})[0].variants == (Variant(),)


def test_tiny_has_four_methods_from_all_over_the_table_and_can_be_built():
    names = ("cce", "mae", "gce", "imae", "sl", "cce", "mae", "gce", "imae", "sl")
    found = budgeted("tiny", cells(*names), short={})
    assert [cell.name for cell in found] == ["cce-5", "mae-1", "gce-7", "sl-4"]
    alike = budgeted("tiny", cells(*["imae"] * 7), short={})
    assert [cell.name for cell in alike] == ["imae-0", "imae-2", "imae-4", "imae-6"]
    config = build_config(found[0].settings)
    assert config.data.name == "digits"
    assert (config.noise, config.noise_map) == ("pairs:0.3", "1:7,7:1")
    assert config.train.steps is None


def test_tiny_keeps_noise_that_any_data_can_have():
    cell = Cell("a", {}, {**SETTINGS, "noise": "symmetric:0.8"})
    (found,) = budgeted("tiny", [cell], short={})
    assert found.settings["noise"] == "symmetric:0.8"
    assert found.settings["noise_map"] is None
    (found,) = budgeted("tiny", [Cell("a", {}, {**SETTINGS, "noise": None})], short={})
    assert found.settings["noise"] is None


def test_features_train_a_head_on_all_rows():
    (found,) = budgeted("features", cells("cce"), short={})
    config = build_config({**found.settings, "seed": 1})
    assert (config.data.features, config.data.rows) == ("efficientnet_lite0", None)
    assert (config.model.name, config.model.arguments) == ("mlp", {"hidden": 512, "norm": "batch"})
    assert (config.train.epochs, config.train.steps, config.train.batch_size) == (12, None, 128)
    assert (config.optimizer.name, config.optimizer.lr) == ("nesterov", 0.05)
    assert config.schedule.name == "cosine"
    assert config.data.hold_out == 0.1
    assert config.noise == SETTINGS["noise"]


def test_another_budget_is_refused():
    with pytest.raises(ArgumentError, match="budget must be one of"):
        budgeted("large", [], short={})
    assert list(BUDGETS) == ["tiny", "short", "features", "paper"]
