from imae.recipes.catalog import RECIPES
from imae.recipes.outcome import outcomes
from imae.recipes.tables.imae_settings import choose_t as finish


def test_t_is_chosen_on_held_out_labels_and_shown_beside_the_best(write_run, tmp_path):
    recipe = RECIPES.build("t_ablation")
    cells = recipe.cells("short")
    numbers = {"40-imae-16": (0.5, 0.4), "40-imae-8": (0.6, 0.45), "40-imae-4": (0.7, 0.3)}
    for cell in cells:
        if cell.name in numbers:
            test, held_out = numbers[cell.name]
            write_run(cell, cell.variants[0], 123, test=test, held_out=held_out, intact=test)
    (path,) = finish(tmp_path, outcomes(recipe, "short", tmp_path, {}))
    assert path.read_text().splitlines()[2:] == [
        "| 40% | IMAE | held-out given labels | 8 | 60.0 | 70.0 | 4 |",
        "| 40% | IMAE | training rows, true labels | 4 | 70.0 | 70.0 | 4 |",
    ]


def test_every_t_of_the_paper_is_there_on_clean_and_noisy_labels():
    names = {cell.name for cell in RECIPES.build("t_ablation").cells("paper")}
    for rate in (0, 40):
        for T in ("16", "8", "4", "2", "1", "0.5", "0"):
            assert f"{rate}-imae-{T}" in names
