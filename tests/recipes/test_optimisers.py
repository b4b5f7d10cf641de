from imae.recipes.tables.cifar10 import optimiser_cells as cells
from imae.train import build_config


def test_the_six_settings_of_the_table():
    by_name = {cell.name: build_config(cell.settings).optimizer for cell in cells("paper")}
    assert len(by_name) == 30
    settings = {
        name.removesuffix("-gce"): (each.name, each.lr, each.delta if each.name == "adam" else None)
        for name, each in by_name.items()
        if name.endswith("-gce")
    }
    assert settings == {
        "sgd": ("sgd", 0.01, None),
        "momentum": ("momentum", 0.01, None),
        "nesterov": ("nesterov", 0.01, None),
        "adam-0.01-0.1": ("adam", 0.01, 0.1),
        "adam-0.005-0.1": ("adam", 0.005, 0.1),
        "adam-0.005-1": ("adam", 0.005, 1.0),
    }
    assert {by_name[name].momentum for name in ("momentum-cce", "nesterov-imae")} == {0.9}
    assert {each.weight_decay for each in by_name.values()} == {1e-4}
