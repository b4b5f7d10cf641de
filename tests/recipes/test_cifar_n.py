from imae.methods import METHODS
from imae.recipes.tables.cifar_n import cells
from imae.train import build_config


def test_every_method_under_every_set_of_human_labels():
    found = cells("paper")
    assert len(found) == 6 * len(METHODS)
    by_name = {cell.name: build_config(cell.settings) for cell in found}
    assert by_name["worst-cce"].data.options == {"variant": "worst"}
    assert by_name["worst-cce"].noise is None
    assert by_name["fine-gce"].data.name == "cifar100n"
    assert by_name["fine-gce"].model.name == "resnet44"
    assert by_name["aggregate-co_teaching"].method.arguments == {"rate": 0.09}
