import pytest

from imae.errors import ArgumentError, ImaeError
from imae.recipes.grid import build_jobs, chosen_cells, run_jobs
from imae.records import RunFolder


def test_cells_are_chosen_by_name_and_by_pattern(recipe):
    cells = recipe.cells("short")
    assert chosen_cells(cells, []) == cells
    assert [cell.name for cell in chosen_cells(cells, ["*-gce"])] == ["resnet20-40-gce"]
    assert chosen_cells(cells, ["resnet20-*"]) == cells
    with pytest.raises(ArgumentError, match=r"--only \*-sl: no such cell; the cells are resnet20"):
        chosen_cells(cells, ["*-gce", "*-sl"])


def test_every_cell_variant_and_seed_is_a_job(recipe, tmp_path):
    jobs = build_jobs(
        recipe.cells("short"),
        seeds=2,
        folder=tmp_path,
        settings={"optimizer": {"weight_decay": 0.0}},
    )
    assert [job.name for job in jobs[:3]] == [
        "resnet20-40-cce-lr=0.1-seed7",
        "resnet20-40-cce-lr=0.02-seed7",
        "resnet20-40-gce-lr=0.1-seed7",
    ]
    assert len({job.config.out for job in jobs}) == 8
    assert {job.config.seed for job in jobs} == {7, 8}
    assert jobs[0].config.optimizer.lr == 0.1
    assert jobs[1].config.optimizer.lr == 0.05  # that variant sets nothing
    assert jobs[0].config.optimizer.weight_decay == 0
    with pytest.raises(ArgumentError, match="seeds must be at least 1"):
        build_jobs(recipe.cells("short"), seeds=0, folder=tmp_path, settings={})
    with pytest.raises(ArgumentError, match="jobs must be at least 1"):
        build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={}, workers=0)


def test_runs_are_done_once_and_a_failure_is_told_at_the_end(recipe, tmp_path):
    said = []
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})[:3]
    run_jobs(jobs[:2], say=said.append)
    assert sum("ended after" in line for line in said) == 2
    times = [RunFolder(job.config.out).result()["seconds"] for job in jobs[:2]]
    bad = jobs[2].config.model_copy(
        update={"train": jobs[2].config.train.model_copy(update={"batch_size": 1000})}
    )
    said.clear()
    with pytest.raises(ImaeError, match=r"1 of 1 runs failed: bad: .*more than the 180 rows"):
        run_jobs([*jobs[:2], type(jobs[2])("bad", bad)], say=said.append)
    assert said[0] == "2 of 3 runs are done already"
    assert [RunFolder(job.config.out).result()["seconds"] for job in jobs[:2]] == times


def test_what_the_variants_try_cannot_be_set_for_all(recipe, tmp_path):
    settings = {"optimizer": {"lr": 0.05}}
    with pytest.raises(ArgumentError, match=r"optimizer.lr: resnet20-40-cce tries several of it"):
        build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=settings)


def test_a_run_under_older_settings_is_not_mixed_in(recipe, tmp_path):
    cells = recipe.cells("short")[:1]
    (job, _) = build_jobs(cells, seeds=1, folder=tmp_path, settings={})
    run_jobs([job])
    again = build_jobs(cells, seeds=1, folder=tmp_path, settings={"machine": {"threads": 2}})
    assert again[0].config.train == job.config.train
    with pytest.raises(ArgumentError, match=r"was run with train.steps=4, not 5; choose another"):
        build_jobs(cells, seeds=1, folder=tmp_path, settings={"train": {"steps": 5}})
