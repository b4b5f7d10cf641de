from imae.methods import METHODS
from imae.recipes.tables.cifar10 import analysis_cells as cells
from imae.train import build_config


def test_the_clean_cells_have_known_truth_and_a_small_t():
    by_name = {cell.name: build_config(cell.settings) for cell in cells("paper")}
    assert len(by_name) == 5 * 6 + len(METHODS)
    assert by_name["resnet20-40-elr"].method.name == "elr"
    assert by_name["resnet20-0-cce"].noise == "symmetric:0.0"
    assert by_name["resnet20-0-imae"].method.arguments == {"T": 0.5}
    assert by_name["resnet56-80-imae"].method.arguments == {"T": 8.0}
    assert by_name["resnet56-80-imae"].model.name == "resnet56"
    assert by_name["resnet56-80-imae"].data.hold_out == 0
