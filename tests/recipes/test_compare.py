import json

import pytest

from imae.errors import ArgumentError, ImaeError
from imae.methods import METHODS
from imae.recipes import compare, split_losses
from imae.records import RunFolder

SETTINGS = {
    "data": {"name": "digits"},
    "noise": "symmetric:0.4",
    "model": {"name": "mlp", "arguments": {"hidden": 8}},
    "train": {"steps": 3, "batch_size": 32, "measure_train": False},
    "machine": {"threads": 1},
    "seed": 5,
}


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        ("cce", ["cce"]),
        (" cce , mae,", ["cce", "mae"]),
        ("sl:alpha=6,beta=0.1,imae:T=8", ["sl:alpha=6,beta=0.1", "imae:T=8"]),
        ("imae:T=8,window_high=16,cce", ["imae:T=8,window_high=16", "cce"]),
        ("trimmed:keep=0.6,loss=imae:T=8,cce", ["trimmed:keep=0.6,loss=imae:T=8", "cce"]),
        ("masking:columns=[0,1],cce", ["masking:columns=[0,1]", "cce"]),
        ("all", list(METHODS.names())),
    ],
)
def test_a_list_of_losses_is_taken_apart(text, losses):
    assert split_losses(text) == losses


@pytest.mark.parametrize("text", ["", " , ", "cce,cce"])
def test_no_loss_or_one_twice_is_refused(text):
    with pytest.raises(ArgumentError, match=r"at least one loss|appears twice"):
        split_losses(text)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare")
    return out, compare(SETTINGS, ["cce", "imae:T=16"], seeds=2, out=out)


def test_every_loss_runs_under_every_seed(compared):
    out, runs = compared
    assert [run.path.name for run in runs] == [
        "cce-seed5",
        "imae-T=16-seed5",
        "cce-seed6",
        "imae-T=16-seed6",
    ]
    assert [(run.config.method.name, run.config.seed) for run in runs] == [
        ("cce", 5),
        ("imae", 5),
        ("cce", 6),
        ("imae", 6),
    ]
    assert runs[1].config.method.arguments["T"] == 16
    assert all(run.result["final"]["step"] == 3 for run in runs)
    assert json.loads((out / "compare.json").read_text()) == SETTINGS


def test_all_else_is_the_same_for_every_loss(compared):
    _, runs = compared
    cce, imae = (run.config.model_dump(exclude={"method", "out"}) for run in runs[:2])
    assert cce == imae


def test_again_repeats_nothing_and_more_losses_are_added(compared):
    out, runs = compared
    written = {run.path: (run.path / "result.json").stat().st_mtime_ns for run in runs}
    again = compare(SETTINGS, ["cce", "mae"], seeds=1, out=out)
    assert (out / "cce-seed5" / "result.json").stat().st_mtime_ns == written[runs[0].path]
    assert again[1].path.name == "mae-seed5"
    assert again[1].result is not None


def test_other_settings_do_not_mix_with_what_is_there(compared):
    out, _ = compared
    other = {**SETTINGS, "noise": "symmetric:0.2"}
    with pytest.raises(ArgumentError, match="with other settings; choose another --out"):
        compare(other, ["cce"], seeds=1, out=out)


def test_a_bad_loss_is_found_before_the_first_run(tmp_path):
    with pytest.raises(ArgumentError, match="no_such_loss"):
        compare(SETTINGS, ["cce", "no_such_loss"], seeds=1, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_at_least_one_seed(tmp_path):
    with pytest.raises(ArgumentError, match="seeds must be at least 1, got 0"):
        compare(SETTINGS, ["cce"], seeds=0, out=tmp_path)


def test_a_run_that_fails_stops_no_other(tmp_path):
    settings = {**SETTINGS, "train": {**SETTINGS["train"], "steps": 21}}
    losses = ["forward:matrix=known", "cce"]
    with pytest.raises(ImaeError, match=r"1 of 2 runs failed: forward-matrix=known-seed5: "):
        compare({**settings, "noise": None}, losses, seeds=1, out=tmp_path)
    assert RunFolder(tmp_path / "cce-seed5").result() is not None


@pytest.mark.slow  # the processes themselves are tested in test_workers.py
def test_several_at_once_give_what_one_after_another_does(compared, tmp_path):
    folder, _ = compared
    losses = ["cce", "imae:T=16"]
    runs = compare(SETTINGS, losses, seeds=1, out=tmp_path, jobs=2)
    assert [run.path.name for run in runs] == ["cce-seed5", "imae-T=16-seed5"]
    for run in runs:
        alone = RunFolder(folder / run.path.name).history()
        assert [row["train_loss"] for row in run.history] == [row["train_loss"] for row in alone]


def test_at_least_one_at_a_time(tmp_path):
    with pytest.raises(ArgumentError, match="jobs must be at least 1"):
        compare(SETTINGS, ["cce"], seeds=1, out=tmp_path / "out", jobs=0)
    assert not (tmp_path / "out").exists()


def test_runs_on_data_that_was_changed_since_are_not_mixed_with_new_ones(tmp_path):
    table = tmp_path / "table.csv"
    lines = [f"{row % 7},{'ab'[row % 2]}" for row in range(40)]
    table.write_text("\n".join(["size,label", *lines]))
    settings = {"data": {"name": str(table)}, "train": {"steps": 1}}
    compare(settings, ["cce"], seeds=1, out=tmp_path / "out")
    compare(settings, ["cce", "mae"], seeds=1, out=tmp_path / "out")
    table.write_text("\n".join(["size,label", *lines[::-1]]))
    for losses in (["cce"], ["cce", "gce"]):
        with pytest.raises(ArgumentError, match=r"on other data: .*table\.csv has changed since"):
            compare(settings, losses, seeds=1, out=tmp_path / "out")


def test_features_are_made_once_before_parallel_runs(tmp_path, monkeypatch):
    made, done = [], []
    monkeypatch.setattr("imae.recipes.grid.load_rows", made.append)
    monkeypatch.setattr("imae.recipes.grid.run_jobs", lambda jobs, **_: done.extend(jobs))
    monkeypatch.setattr("imae.recipes.grid.Run", lambda path, **_: path)
    settings = {**SETTINGS, "data": {"name": "digits", "features": "efficientnet_lite0"}}
    for workers, expected in ((1, 0), (2, 1)):
        compare(settings, ["cce", "mae"], seeds=2, out=tmp_path / str(workers), jobs=workers)
        assert len(made) == expected
    assert len(done) == 8
    settings["data"] |= {"rows": 50}  # each seed has another sample
    compare(settings, ["cce", "mae"], seeds=2, out=tmp_path / "sample", jobs=2)
    assert len(made) == 3
