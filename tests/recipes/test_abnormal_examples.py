import shutil
from dataclasses import replace

import numpy as np
import pytest

from imae.recipes.recipe import outcomes
from imae.recipes.reproduce import reproduce
from imae.recipes.tables.paper_figures import ABNORMAL_EXAMPLES, mean_margin
from imae.recipes.tables.paper_figures import draw_abnormal as finish
from imae.records import RunFolder

CHANGED = {"train": {"epochs": 8}}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    settings = {"machine": {"threads": 1}, **CHANGED}
    reproduce("abnormal_examples", budget="tiny", out=folder, settings=settings)
    return folder


def test_the_disbelieved_rows_are_mostly_wrong(done):
    record = RunFolder(next((done / "runs").iterdir()))
    labels = record.labels()
    worst = np.argsort(mean_margin(record))[:24]
    assert (labels.given != labels.clean)[worst].mean() > 0.8
    text = (done / "abnormal_examples.md").read_text()
    assert f"| 24 | {100 * (labels.given != labels.clean)[worst].mean():.1f}% |" in text


def test_rows_that_were_not_trained_on_are_left_out(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    record = RunFolder(next((copy / "runs").iterdir()))
    for number, epoch in enumerate(record.epochs()):
        found = record.dynamics(epoch)
        margin = found.margin.copy()
        margin[5:] = np.nan
        margin[number % 5] = np.nan
        record.write_dynamics(epoch, replace(found, margin=margin))
    assert np.isnan(mean_margin(record)).tolist() == [False] * 5 + [True] * (len(margin) - 5)
    (found,) = [each for each in outcomes(ABNORMAL_EXAMPLES, "tiny", done, CHANGED) if each.runs]
    moved = replace(found, runs=(replace(found.runs[0], folder=record.path),))
    summary, picture = finish(copy, [moved])
    text = summary.read_text()
    assert "of 5 training rows have a wrong label" in text
    assert f"{len(margin) - 5} rows that were not trained on are left out" in text
    assert picture.exists()


def test_the_picture_is_written(done):
    assert (done / "abnormal_examples.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_rows_there_is_no_picture_and_no_error(recipe, write_run, tmp_path):
    cell = recipe.cells("short")[0]
    write_run(cell, cell.variants[0], 7, test=0.5, held_out=0.5)
    found = outcomes(recipe, "short", tmp_path, {})
    assert found[0].runs
    assert finish(tmp_path, found) == []


def test_without_the_images_the_numbers_are_still_written(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    (copy / "abnormal_examples.md").unlink()
    record = RunFolder(next((copy / "runs").iterdir()))
    config = record.config()
    config["data"]["name"] = str(tmp_path / "not_here.npz")
    record.write_config(config)
    (found,) = [each for each in outcomes(ABNORMAL_EXAMPLES, "tiny", done, CHANGED) if each.runs]
    moved = replace(found, runs=(replace(found.runs[0], folder=record.path, config=config),))
    assert finish(copy, [moved]) == [copy / "abnormal_examples.md"]
    assert (copy / "abnormal_examples.md").read_bytes() == (
        done / "abnormal_examples.md"
    ).read_bytes()
