import pytest

from imae.errors import DataError
from imae.recipes.recipe import outcomes, run_folder


def test_the_rate_is_chosen_on_held_out_labels_and_not_on_the_test(recipe, write_run, tmp_path):
    cell, _ = recipe.cells("short")
    high, low = cell.variants
    write_run(cell, high, 7, test=0.9, held_out=0.3)
    write_run(cell, low, 7, test=0.5, held_out=0.4)
    write_run(cell, low, 8, test=0.7, held_out=0.5)
    found, empty = outcomes(recipe, "short", tmp_path, {})
    assert found.variant == low
    assert not found.is_settled  # the seeds differ
    assert [run.seed for run in found.runs] == ["7", "8"]
    assert found.measure("final").mean == pytest.approx(0.6)
    assert found.measure("best").mean == pytest.approx(0.65)
    assert found.measure("clean") is None
    assert found.tried["lr=0.1"].mean == 0.3
    assert found.paper["final"] == 67.0
    assert found.seconds.mean == 90
    assert (empty.variant, empty.runs, empty.unfinished, empty.paper) == (None, (), 0, {})


def test_runs_that_have_not_ended_are_counted_and_give_no_number(recipe, write_run, tmp_path):
    cell = recipe.cells("short")[0]
    write_run(cell, cell.variants[0], 7)
    found, _ = outcomes(recipe, "short", tmp_path, {})
    assert (found.unfinished, found.runs, found.variant) == (1, (), None)
    assert found.measure("final") is None


def test_a_name_that_begins_another_is_not_mixed_up(recipe, write_run, tmp_path):
    cell = recipe.cells("short")[0]
    high = cell.variants[0]
    write_run(cell, high, 17, test=0.9, held_out=0.3)
    folder = run_folder(tmp_path, cell, high, 17)
    folder.rename(folder.with_name(folder.name.replace("cce", "cce-seed")))
    found, _ = outcomes(recipe, "short", tmp_path, {})
    assert found.runs == ()


def test_a_choice_is_settled_once_every_rate_has_run_under_the_same_seeds(
    recipe, write_run, tmp_path
):
    cell, _ = recipe.cells("short")
    high, low = cell.variants
    write_run(cell, high, 7, test=0.9, held_out=0.3)
    found, _ = outcomes(recipe, "short", tmp_path, {})
    assert (found.variant, found.is_settled) == (high, False)
    write_run(cell, low, 7, test=0.5, held_out=0.4)
    found, _ = outcomes(recipe, "short", tmp_path, {})
    assert (found.variant, found.is_settled) == (low, True)


def test_a_run_that_failed_is_not_called_unfinished(recipe, write_run, tmp_path):
    cell, _ = recipe.cells("short")
    folder = write_run(cell, cell.variants[0], 7)
    folder.write_progress(step=1, total_steps=4, seconds=1.0, status="failed", message="NaN")
    found, _ = outcomes(recipe, "short", tmp_path, {})
    assert (found.failed, found.unfinished) == (1, 0)


def test_a_run_under_other_settings_is_refused(recipe, write_run, tmp_path):
    cell, _ = recipe.cells("short")
    folder = write_run(cell, cell.variants[0], 7, test=0.9, held_out=0.3)
    settings = folder.config()
    folder.write_config(settings | {"train": {**settings["train"], "clip": 5.0}})
    with pytest.raises(DataError, match=r"was run with train.clip=5.0, not null, and does not"):
        outcomes(recipe, "short", tmp_path, {})
    assert outcomes(recipe, "short", tmp_path, {"train": {"clip": 5}})[0].runs


def test_nothing_of_the_paper_stands_beside_a_tiny_run(recipe, tmp_path):
    assert outcomes(recipe, "short", tmp_path, {})[0].paper["final"] == 67.0
    assert outcomes(recipe, "tiny", tmp_path, {})[0].paper == {}


def test_half_a_record_is_refused(recipe, write_run, tmp_path):
    cell = recipe.cells("short")[0]
    folder = write_run(cell, cell.variants[1], 7, test=0.5, held_out=0.5)
    history = folder.path / "history.jsonl"
    whole = history.read_bytes()
    history.unlink()
    with pytest.raises(
        DataError, match=r"ended at step 4 .* and at None according to history\.jsonl"
    ):
        outcomes(recipe, "short", tmp_path, {})
    history.write_bytes(whole)
    (folder.path / "result.json").write_text("{}")
    with pytest.raises(DataError, match="ended at step None"):
        outcomes(recipe, "short", tmp_path, {})
    (folder.path / "config.json").unlink()
    with pytest.raises(DataError, match=r"has a result\.json and no config\.json"):
        outcomes(recipe, "short", tmp_path, {})
