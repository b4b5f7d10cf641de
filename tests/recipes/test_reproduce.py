import shutil
import sys
from pathlib import Path

import pytest

from imae.errors import ArgumentError, DataError, ImaeError, MissingExtraError
from imae.recipes import RECIPES, rebuild, reproduce
from imae.recipes import runner as job_module
from imae.recipes.recipe import cell_config

SETTINGS = {"machine": {"threads": 1, "accelerator": "cpu"}}
ROOT = Path(__file__).parents[2]
TABLES = ("table.md", "table.csv")


# mars has no digits in its place: tests/recipes/test_mars.py runs it on a tree of its layout.
EACH = pytest.mark.parametrize("name", [name for name in RECIPES.names() if name != "mars"])


@pytest.mark.usefixtures("quick_figures")
@EACH
def test_every_recipe_runs_at_the_tiny_budget(name, tmp_path):
    cells = RECIPES.build(name).cells("tiny")
    for cell in cells:
        assert cell_config(cell, cell.variants[0], SETTINGS, seed=1).method.name
    only = [cell.name for cell in cells[-1:]]
    made = reproduce(name, budget="tiny", out=tmp_path, settings=SETTINGS, only=only)
    assert [bool(outcome.runs) for outcome in made.outcomes] == [
        cell.name in only for cell in cells
    ]
    check_files(name, made, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("with_figures")
@EACH
def test_every_cell_of_every_recipe_runs_at_the_tiny_budget(name, tmp_path):
    made = reproduce(name, budget="tiny", out=tmp_path, settings=SETTINGS)
    assert all(outcome.runs for outcome in made.outcomes)
    check_files(name, made, tmp_path)
    if made.outcomes:
        assert "Not run" not in (tmp_path / "table.md").read_text()
        assert list(tmp_path.glob("figures/*.png"))


@pytest.mark.usefixtures("with_figures")
def test_a_table_comes_with_figures(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    made = rebuild(copy)
    drawn = {path.name for path in made.files if path.parent.name == "figures"}
    assert drawn >= {"test.png", "test.svg"}
    assert drawn == {path.name for path in copy.glob("figures/*")}


def check_files(name, made, folder):
    assert all(path.stat().st_size > 0 for path in made.files)
    names = {path.name for path in made.files}
    if name == "weights":  # it trains nothing
        assert "variances.md" in names
        assert not names & set(TABLES)
        return
    assert names >= set(TABLES)
    text = (folder / "table.md").read_text()
    assert "Budget `tiny`" in text
    assert "Paper" not in text.partition("|---")[0]


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
    rebuild(str(copy))
    for name in TABLES:
        assert (copy / name).read_bytes() == (done / name).read_bytes()


def test_a_table_without_its_runs_is_not_emptied(done, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(done, copy, ignore=shutil.ignore_patterns("runs"))
    before = (copy / "table.md").read_bytes()
    with pytest.raises(DataError, match="holds a table and none of its runs"):
        rebuild(copy)
    assert (copy / "table.md").read_bytes() == before


@pytest.mark.parametrize("content", ['{"recipe"', '{"recipe": "stability"}', "3"])
def test_a_damaged_claim_is_one_line(tmp_path, content):
    (tmp_path / "reproduce.json").write_text(content)
    with pytest.raises(DataError, match="no recipe was run here"):
        rebuild(tmp_path)


def test_missing_data_are_said_once_and_before_the_first_run(tmp_path):
    settings = {"data": {"root": str(tmp_path / "empty")}}
    with pytest.raises(DataError, match="cifar10") as refused:
        reproduce("stability", budget="short", out=tmp_path / "out", settings=settings)
    assert "runs failed" not in str(refused.value)
    assert not (tmp_path / "out" / "runs").exists()


def test_a_folder_with_runs_needs_resume_and_goes_on(done):
    with pytest.raises(ArgumentError, match="add --resume to continue"):
        reproduce("stability", budget="tiny", out=done, settings=SETTINGS)
    said = []
    made = reproduce(
        "stability",
        budget="tiny",
        out=done,
        settings=SETTINGS,
        only=["printed", "normalised-saturated"],
        is_resumed=True,
        say=said.append,
    )
    assert said[0] == "1 of 2 runs are done already"
    assert [bool(outcome.runs) for outcome in made.outcomes] == [True, True, False, False]


def test_another_recipe_is_not_rebuilt_by_mistake(done):
    with pytest.raises(ArgumentError, match="holds the recipe stability, not weights"):
        rebuild(done, "weights")


def test_another_recipe_or_settings_do_not_mix(done):
    with pytest.raises(ArgumentError, match="holds another recipe, budget or settings"):
        reproduce("stability", budget="short", out=done, settings=SETTINGS, is_resumed=True)
    with pytest.raises(ArgumentError, match="holds another recipe, budget or settings"):
        reproduce(
            "stability",
            budget="tiny",
            out=done,
            settings={**SETTINGS, "train": {"clip": 5}},
            is_resumed=True,
        )


def test_a_grid_goes_on_on_another_machine(done):
    made = reproduce(
        "stability", budget="tiny", out=done, only=["printed"], settings={}, is_resumed=True
    )
    assert made.outcomes[0].runs


def test_mistakes_are_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ArgumentError, match="unknown recipe 'cifar'"):
        reproduce("cifar", out=out)
    with pytest.raises(ArgumentError, match="budget must be one of"):
        reproduce("cifar10", budget="huge", out=out)
    with pytest.raises(ArgumentError, match="--only resnet: no such cell"):
        reproduce("cifar10", out=out, only=["resnet"])
    with pytest.raises(ArgumentError, match="--only x: no such cell; this recipe trains nothing"):
        reproduce("weights", out=out, only=["x"])
    with pytest.raises(ArgumentError, match=r"method.name: belongs to the recipe"):
        reproduce("stability", out=out, settings={"method": {"name": "gce"}})
    with pytest.raises(ArgumentError, match=r"the budget paper needs --set model.init=PATH"):
        reproduce("clothing1m", budget="paper", out=out)
    assert not out.exists()
    with pytest.raises(DataError, match="no recipe was run here"):
        rebuild(out)


def test_runs_that_fail_leave_the_others_in_the_table(tmp_path, monkeypatch):
    real = job_module.train

    def train(config, **options):
        if "authors" in config.out:
            raise RuntimeError("no more memory")
        return real(config, **options)

    monkeypatch.setattr(job_module, "train", train)
    with pytest.raises(ImaeError, match="1 of 2 runs failed: authors-seed123: RuntimeError"):
        reproduce(
            "stability",
            budget="tiny",
            out=tmp_path,
            settings=SETTINGS,
            only=["printed", "authors"],
        )
    assert "| as printed |" in (tmp_path / "table.md").read_text()


def test_what_draws_the_figures_is_asked_for_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"imae\[plot\]"):
        reproduce("stability", budget="tiny", out=tmp_path / "out", settings=SETTINGS)
    assert not (tmp_path / "out").exists()


RECORDED = sorted(path.parent for path in (ROOT / "results").glob("*/reproduce.json"))


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_the_tables_in_the_repository_are_those_of_its_records(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("IMAE_DATA", str(tmp_path / "none"))  # pictures are not compared
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.md", "*.csv", "figures"))
    rebuild(copy)
    texts = [path for ending in ("md", "csv") for path in folder.glob(f"*.{ending}")]
    made = {path.name for path in texts} - {"README.md"}
    assert made == {path.name for ending in ("md", "csv") for path in copy.glob(f"*.{ending}")}
    for name in made:
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
