from imae.recipes.tables.cifar100 import asymmetric_cells as cells
from imae.train import build_config


def test_the_noise_trades_classes_within_a_coarse_class():
    by_name = {cell.name: build_config(cell.settings) for cell in cells("paper")}
    assert by_name["30-forward"].noise == "cifar100_asymmetric:0.3"
    assert {name.split("-")[0] for name in by_name} == {"20", "30", "40"}
