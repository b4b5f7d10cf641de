import json
import shutil
from dataclasses import replace

import pytest

from imae.errors import DataError
from imae.recipes.recipe import outcomes
from imae.recipes.reproduce import rebuild, reproduce
from imae.recipes.tables.photos import UNSEEN_CLASSES, write_retrieval
from imae.train import build_config, evaluate_retrieval

CHANGED = {"machine": {"threads": 1}}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    reproduce("unseen_classes", budget="tiny", only=["cce", "gce"], out=folder, settings=CHANGED)
    return folder


def rows(folder):
    lines = (folder / "retrieval.md").read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_run_is_measured(done):
    heading, _, cce, gce = rows(done)
    assert heading == ["Loss", "Seeds", "mAP", "CMC-1", "CMC-5"]
    assert [cce[0], gce[0]] == ["CCE", "GCE"]
    found = evaluate_retrieval(done / "runs" / "cce-seed123")
    assert cce[2] == f"{100 * found.mean_average_precision:.1f}"
    assert cce[3] == f"{100 * found.cmc[1]:.1f}"


def test_the_table_is_rebuilt_from_records_without_weights(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    for weights in copy.glob("runs/*/weights"):
        shutil.rmtree(weights)
    (copy / "retrieval.md").unlink()
    rebuild(copy)
    assert (copy / "retrieval.md").read_bytes() == (done / "retrieval.md").read_bytes()
    (copy / "runs" / "cce-seed123" / "retrieval.json").unlink()
    rebuild(copy)
    assert [row[0] for row in rows(copy)] == ["Loss", "---", "GCE"]


def test_seeds_are_averaged_and_the_papers_numbers_are_beside(done, tmp_path):
    found = [each for each in outcomes(UNSEEN_CLASSES, "tiny", done, {}) if each.runs]
    runs = []
    for share in (0.5, 0.7):
        folder = tmp_path / str(share)
        folder.mkdir()
        content = {"mean_average_precision": share, "cmc": {"1": share}}
        (folder / "retrieval.json").write_text(json.dumps(content))
        runs.append(replace(found[0].runs[0], folder=folder))
    outcome = replace(found[0], runs=tuple(runs), paper={"paper's mAP": 62.5})
    write_retrieval(tmp_path, [outcome])
    heading, _, row = rows(tmp_path)
    assert heading[2:5] == ["mAP", "Paper", "Difference"]
    assert row[1:5] == ["2", "60.0 ± 14.1", "62.5", "-2.5"]
    assert row[6:] == ["-", "-", "-", "-", "-"]


def test_a_damaged_record_is_one_line(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    (copy / "runs" / "cce-seed123" / "retrieval.json").write_text('{"cmc": 3}')
    with pytest.raises(DataError, match=r"retrieval\.json: is damaged"):
        rebuild(copy)


@pytest.mark.parametrize("budget", ["short", "features", "paper"])
def test_other_budgets_train_on_half_of_the_classes(budget):
    for cell in UNSEEN_CLASSES.cells(budget):
        config = build_config(cell.settings)
        assert (config.data.name, config.data.options) == ("cifar100", {"variant": "half"})
        assert config.noise == "symmetric:0.4"
