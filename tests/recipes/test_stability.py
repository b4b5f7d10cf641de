from imae.recipes.stability import cells
from imae.train import build_config


def test_each_candidate_alone_and_the_pairs():
    arguments = {cell.name: build_config(cell.settings).method.arguments for cell in cells("paper")}
    assert arguments["printed"] == {"T": 8.0}
    assert arguments["saturated"] == {"T": 8.0, "window_high": 16.0}
    assert arguments["normalised-bounded"] == {"T": 8.0, "normalize": "batch", "bound": 5.0}
    assert {name for name in arguments} == {
        "printed",
        "normalised",
        "saturated",
        "bounded",
        "normalised-saturated",
        "normalised-bounded",
        "saturated-bounded",
        "normalised-saturated-bounded",
    }
