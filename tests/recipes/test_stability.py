from imae.recipes.tables.imae_settings import stability_cells as cells
from imae.train import build_config


def test_each_candidate_alone_and_together_and_other_sizes():
    arguments = {cell.name: build_config(cell.settings).method.arguments for cell in cells("paper")}
    assert arguments["printed"] == {"T": 8.0}
    assert arguments["saturated"] == {"T": 8.0, "window_high": 16.0}
    assert arguments["normalised-bounded"] == {"T": 8.0, "normalize": "batch", "bound": 5.0}
    assert arguments["normalised-saturated-4"]["window_high"] == 4.0
    assert arguments["normalised-bounded-16"]["bound"] == 16.0
    assert set(arguments) == {
        "printed",
        "normalised",
        "saturated",
        "bounded",
        "normalised-saturated",
        "normalised-bounded",
        "saturated-bounded",
        "normalised-saturated-bounded",
        "normalised-saturated-8",
        "normalised-saturated-4",
        "normalised-bounded-16",
        "normalised-bounded-8",
    }
