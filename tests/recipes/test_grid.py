import re
from dataclasses import replace

import pytest

from imae.errors import ArgumentError, ImaeError
from imae.recipes import RECIPES
from imae.recipes import runner as job_module
from imae.recipes.grid import build_jobs, run_jobs
from imae.recipes.recipe import merged
from imae.recipes.reproduce import check_overrides, chosen_cells
from imae.records import RunFolder
from imae.train import Stopped


def test_cells_are_chosen_by_name_and_by_pattern(recipe):
    cells = recipe.cells("short")
    assert chosen_cells(cells, []) == cells
    assert [cell.name for cell in chosen_cells(cells, ["*-gce"])] == ["resnet20-40-gce"]
    assert chosen_cells(cells, ["resnet20-*"]) == cells
    with pytest.raises(
        ArgumentError, match=r"--only \*-sl: no such cell; there are \d+, such as resnet20"
    ):
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
    assert sum(bool(re.search(r"ended after [\d.]+ (ms|s)\b", line)) for line in said) == 2
    times = [RunFolder(job.config.out).result()["seconds"] for job in jobs[:2]]
    bad = jobs[2].config.model_copy(
        update={"train": jobs[2].config.train.model_copy(update={"batch_size": 1000})}
    )
    said.clear()
    with pytest.raises(ImaeError, match=r"1 of 1 runs failed: bad: .*more than the 180 rows"):
        run_jobs([*jobs[:2], type(jobs[2])("bad", bad)], say=said.append)
    assert said[0] == "2 of 3 runs are done already"
    assert [RunFolder(job.config.out).result()["seconds"] for job in jobs[:2]] == times


def test_what_sets_cells_apart_cannot_be_set_for_all(recipe):
    cells = recipe.cells("short")
    with pytest.raises(ArgumentError, match=r"optimizer.lr: the recipe tries several values of it"):
        check_overrides(cells, {"optimizer": {"lr": 0.05}})
    for settings in ({"method": {"name": "mae"}}, {"noise": "symmetric:0.2"}, {"out": "x"}):
        with pytest.raises(ArgumentError, match=r"belongs to the recipe"):
            check_overrides(cells, settings)
    of_a_method = {"method": {"arguments": {"T": 4.0}}}
    with pytest.raises(ArgumentError, match=r"method.arguments.T: belongs to the recipe"):
        check_overrides(RECIPES.build("stability").cells("paper"), of_a_method)
    differing = [
        replace(cell, settings=merged(cell.settings, {"method": {"arguments": {"T": T}}}))
        for cell, T in zip(cells, (4.0, 8.0), strict=True)
    ]
    with pytest.raises(ArgumentError, match=r"method.arguments.T: belongs to the recipe"):
        check_overrides(differing, {"method": {"arguments": {"T": 2.0}}})
    check_overrides(cells, {"train": {"steps": 5}, "machine": {"threads": 1}})


def test_runs_at_once_share_the_processor(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    cell = recipe.cells("short")[0]
    free = replace(cell, settings={**cell.settings, "machine": {}})

    def threads(cell, workers):
        jobs = build_jobs([cell], seeds=1, folder=tmp_path, settings={}, workers=workers)
        return {job.config.machine.threads for job in jobs}

    assert threads(free, 1) == {None}
    assert threads(free, 3) == {2}
    assert threads(free, 20) == {1}
    assert threads(cell, 3) == {1}  # what is set counts


def test_a_crash_in_one_run_does_not_end_the_others(recipe, tmp_path, monkeypatch):
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})[:3]
    real = job_module.train

    def train(config, **options):
        if config.out == jobs[0].config.out:
            raise RuntimeError("no more\nmemory")
        return real(config, **options)

    monkeypatch.setattr(job_module, "train", train)
    with pytest.raises(ImaeError, match=f"1 of 3 runs failed: {jobs[0].name}: RuntimeError: no"):
        run_jobs(jobs)
    assert all(RunFolder(job.config.out).result() for job in jobs[1:])


def test_runs_that_fail_for_one_reason_are_told_together(recipe, tmp_path):
    settings = {"data": {"root": str(tmp_path / "no"), "name": "cifar10"}}
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path / "x", settings=settings)
    with pytest.raises(ImaeError, match=r"4 of 4 runs failed: resnet20-40-cce-lr=0.1-seed7 and 3"):
        run_jobs(jobs)
    assert not list((tmp_path / "x").rglob("*lock"))


def test_a_stopped_grid_says_how_to_go_on(recipe, tmp_path, monkeypatch):
    def stopped(config, **options):  # noqa: ARG001
        raise Stopped("stopped after step 3", 130)

    monkeypatch.setattr(job_module, "train", stopped)
    jobs = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={})
    with pytest.raises(Stopped, match="resume with the same command and --resume") as error:
        run_jobs(jobs)
    assert error.value.code == 130
