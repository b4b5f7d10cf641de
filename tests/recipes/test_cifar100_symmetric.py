from imae.recipes.tables.cifar100 import symmetric_cells as cells
from imae.train import build_config


def test_every_method_of_the_table_at_every_rate():
    by_name = {cell.name: build_config(cell.settings) for cell in cells("paper")}
    assert len(by_name) == 48
    assert by_name["60-d2l"].noise == "symmetric:0.6"
    assert {config.model.name for config in by_name.values()} == {"resnet44"}
