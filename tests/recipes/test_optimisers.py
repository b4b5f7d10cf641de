from imae.recipes.optimisers import cells
from imae.train import build_config


def test_the_six_settings_of_the_table():
    by_name = {cell.name: build_config(cell.settings).optimizer for cell in cells("paper")}
    assert len(by_name) == 30
    assert by_name["adam-0.005-1-imae"].delta == 1.0
    assert by_name["adam-0.01-0.1-cce"].lr == 0.01
    assert by_name["sgd-mae"].name == "sgd"
    assert {each.weight_decay for each in by_name.values()} == {1e-4}
