import importlib

import pytest

from imae.recipes.recipe import Cell, Recipe, Variant, cell_config, run_folder
from imae.records import RunFolder

# The function of that name hides the module in its package.
REPRODUCE = importlib.import_module("imae.recipes.reproduce")
DRAW = REPRODUCE.save_figures
RATES = (Variant("lr=0.1", {"optimizer": {"lr": 0.1}}), Variant("lr=0.02"))


@pytest.fixture(scope="module", autouse=True)
def _no_figures():
    """Figures of curves take longer than the runs; a test that is about them asks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPRODUCE, "save_figures", lambda *_: [])
        yield


@pytest.fixture
def with_figures(monkeypatch):
    """Tables come with their figures in this test."""
    monkeypatch.setattr(REPRODUCE, "save_figures", DRAW)


@pytest.fixture
def recipe():
    """Two cells of a table of the paper, with two learning rates each."""
    cells = tuple(
        Cell(
            f"resnet20-40-{loss}",
            {"Noise": "40%", "Loss": loss.upper()},
            {
                "data": {"name": "digits", "rows": 200},
                "noise": "symmetric:0.4",
                "model": {"name": "mlp", "arguments": {"hidden": 8}},
                "method": {"name": loss},
                "train": {"steps": 4, "batch_size": 32, "measure_train": False},
                "machine": {"threads": 1, "accelerator": "cpu"},
                "seed": 7,
            },
            RATES,
        )
        for loss in ("cce", "gce")
    )
    return Recipe(
        "cifar10",
        lambda _: cells,
        ("best", "final", "noisy"),
        "A note.",
        title="a small table",
    )


@pytest.fixture
def write_run(tmp_path):
    """Writes the record of a run: write_run(cell, variant, seed, test=..., held_out=...)."""

    def write(cell, variant, seed, *, test=None, held_out=None, intact=None):
        folder = RunFolder(run_folder(tmp_path, cell, variant, seed))
        config = cell_config(cell, variant, {}, seed=seed)
        folder.write_config(config.model_dump(mode="json"))
        folder.write_env({"cpu": "a processor", "device": "cpu", "threads": 1, "torch": "2"})
        if test is not None:
            row = {
                "step": 4,
                "test_accuracy": test,
                "validation_accuracy": held_out,
                "intact_accuracy": intact,
                "noisy_accuracy": 0.1,
            }
            best = {**row, "step": 2, "test_accuracy": test + 0.05}
            folder.append_history(best)
            folder.append_history(row)
            folder.write_result({"final": row, "best_test": best, "best": row, "seconds": 90.0})
        return folder

    return write
