import shutil
from pathlib import Path

import pytest

from imae.errors import ArgumentError, DataError
from imae.recipes import RECIPES, rebuild, reproduce

SETTINGS = {"machine": {"threads": 1, "accelerator": "cpu"}}
ROOT = Path(__file__).parents[2]
TABLES = ("table.md", "table.csv")


@pytest.mark.parametrize("name", RECIPES.names())
def test_every_recipe_runs_at_the_tiny_budget(name, tmp_path):
    made = reproduce(name, budget="tiny", out=tmp_path, settings=SETTINGS)
    assert all(path.stat().st_size > 0 for path in made.files)
    assert {path.name for path in made.files} >= set(TABLES)
    assert all(outcome.runs for outcome in made.outcomes)
    text = (tmp_path / "table.md").read_text()
    assert "Budget `tiny`" in text
    assert "Not run" not in text


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    reproduce("stability", budget="tiny", out=folder, settings=SETTINGS, only=["printed"])
    return folder


def test_tables_are_rebuilt_bit_for_bit_from_the_records_alone(done, tmp_path):
    copy = tmp_path / "copy"
    leave = shutil.ignore_patterns("checkpoints", "weights", "dynamics", "labels.npz", "*.md")
    shutil.copytree(done, copy, ignore=leave)
    (copy / "table.csv").unlink()
    rebuild(copy)
    for name in TABLES:
        assert (copy / name).read_bytes() == (done / name).read_bytes()


def test_a_folder_with_runs_needs_resume_and_goes_on(done):
    with pytest.raises(ArgumentError, match="go on with --resume"):
        reproduce("stability", budget="tiny", out=done, settings=SETTINGS)
    said = []
    made = reproduce(
        "stability",
        budget="tiny",
        out=done,
        settings=SETTINGS,
        only=["printed", "saturated"],
        is_resumed=True,
        say=said.append,
    )
    assert said[0] == "1 of 2 runs are done already"
    assert [bool(outcome.runs) for outcome in made.outcomes] == [True, False, True, False]


def test_another_recipe_is_not_rebuilt_by_mistake(done):
    with pytest.raises(ArgumentError, match="holds the recipe stability, not weights"):
        rebuild(done, "weights")


def test_another_recipe_or_settings_do_not_mix(done):
    with pytest.raises(ArgumentError, match="holds another recipe, budget or settings"):
        reproduce("stability", budget="short", out=done, settings=SETTINGS, is_resumed=True)
    with pytest.raises(ArgumentError, match="holds another recipe, budget or settings"):
        reproduce("stability", budget="tiny", out=done, is_resumed=True)


def test_mistakes_are_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ArgumentError, match="unknown recipe 'cifar'"):
        reproduce("cifar", out=out)
    with pytest.raises(ArgumentError, match="budget must be one of"):
        reproduce("cifar10", budget="huge", out=out)
    with pytest.raises(ArgumentError, match="--only resnet: no such cell"):
        reproduce("cifar10", out=out, only=["resnet"])
    assert not out.exists()
    with pytest.raises(DataError, match="no recipe was run here"):
        rebuild(out)


RECORDED = sorted(path.parent for path in (ROOT / "results").glob("*/reproduce.json"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_the_tables_in_the_repository_are_those_of_its_records(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md", "*.csv", "figures"))
    rebuild(copy)
    for name in TABLES:
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
