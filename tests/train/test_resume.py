"""Runs that are continued: on the same data only, lengthened, or stopped early."""

import os
import re
import shutil

import numpy as np
import pytest
import torch

from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import RunFolder
from imae.train import Run, resume, train
from imae.train.display import Display
from imae.train.dynamics import changed_share, closing_hints, label_wave
from imae.train.predict import load_network
from imae.train.run import list_checkpoints, load_tensors, save_tensors


@pytest.fixture
def interrupted(configure):
    """A run without a result, which a resume finishes."""
    run = train(configure(train={"epochs": 1}))
    (run.path / "result.json").unlink()
    return run


def change(path, part, key="x"):
    with np.load(path) as loaded:
        content = dict(loaded)
    row = int(np.flatnonzero(content["split"] == part)[0])
    content[key][row] = content[key][row][::-1] if key == "x" else (content[key][row] + 1) % 3
    np.savez(path, **content)


@pytest.mark.parametrize(
    ("part", "key"), [("train", "x"), ("test", "x"), ("test", "y"), ("train", "y")]
)
def test_other_content_of_any_part_is_refused(interrupted, arrays, part, key):
    change(arrays, part, key)
    with pytest.raises(DataError, match="the data is not what this run was started on"):
        resume(interrupted.path)


@pytest.mark.parametrize("part", ["train", "test"])
def test_other_true_labels_are_refused(interrupted, arrays, part):
    change(arrays, part, "clean_labels")
    with pytest.raises(DataError, match=r"the true labels .*differ"):
        resume(interrupted.path)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    days = [f"{1 + row % 28:02d}/03/2024,{2 - row % 2},{row % 2}" for row in range(60)]
    path.write_text("when,weight,label\n" + "\n".join(days) + "\n")
    return path


@pytest.fixture
def interrupted_table(table, configure):
    content = {"data": {"name": str(table), "options": {}}, "model": {"name": "mlp"}}
    run = train(configure(**content, train={"epochs": 1}))
    (run.path / "result.json").unlink()
    return run


@pytest.mark.parametrize(("weight", "other"), [("1,1", "7,1"), (",weight", ",split")])
def test_other_weights_are_refused(interrupted_table, table, weight, other):
    text = table.read_text().replace(weight, other)
    table.write_text(re.sub(",[12],", ",train,", text) if other == ",split" else text)
    with pytest.raises(DataError, match="the weights of the train part differ"):
        resume(interrupted_table.path)


def test_a_run_of_an_earlier_version_is_resumed(interrupted_table):
    stored = interrupted_table.folder.preparation()
    del stored["annotations"]
    assert stored["preparation"]["encoding"][0].pop("date_format") == "%d/%m/%Y"
    interrupted_table.folder.write_preparation(stored)
    assert resume(interrupted_table.path).result is not None


CHANGES = {
    "no seconds": lambda content: content.pop("seconds"),
    "step as text": lambda content: content.update(step="ten"),
    "another step": lambda content: content.update(step=content["step"] + 1),
    "negative step": lambda content: content.update(step=-4),
    "seconds as text": lambda content: content.update(seconds="x"),
    "no networks": lambda content: content.update(networks=None),
    "empty networks": lambda content: content.update(networks={}),
    "weights that are not finite": lambda content: next(iter(content["networks"].values())).fill_(
        torch.nan
    ),
    "empty optimiser": lambda content: content.update(optimizer={}),
    "other shapes in the optimiser": lambda content: content["optimizer"]["state"][0].update(
        momentum_buffer=torch.zeros(2, 2)
    ),
    "another method": lambda content: content.update(method={"matrix": torch.eye(3)}),
    "other dynamics": lambda content: content.update(dynamics=torch.zeros(4, 3)),
    "dynamics of no tensor": lambda content: content.update(dynamics=None),
    "another loss": lambda content: content.update(loss=torch.zeros(7)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_that_does_not_fit_is_one_line_and_the_one_before_is_taken(trained, change):
    run, result = trained, trained.result
    (run.path / "result.json").unlink()
    _, newest = list_checkpoints(run.folder.checkpoints)
    content = load_tensors(newest)
    change(content)
    save_tensors(newest, content)
    said = Said()
    again = resume(run.path, display=said)
    assert re.search(
        r"step-\d+\.pt: does not fit this run \(.*\); trying the checkpoint before it$",
        said.lines[0],
    )
    assert again.result["final"]["train_loss"] == result["final"]["train_loss"]


def test_a_run_whose_checkpoints_all_do_not_fit_is_not_started_anew(configure):
    run = train(configure(train={"epochs": 2}, method={"name": "imae_capped"}))
    (run.path / "result.json").unlink()
    config = run.folder.config()
    config["method"] = {"name": "gce", "arguments": {}}
    run.folder.write_config(config)
    with pytest.raises(DataError, match="no checkpoint fits this run; if its config"):
        resume(run.path)
    assert len(run.folder.history()) == 2


class Said(Display):
    """Keeps what is said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def test_another_statistic_is_refused(interrupted):
    stored = interrupted.folder.preparation()
    stored["preparation"]["mean"] = [0.25]
    interrupted.folder.write_preparation(stored)
    with pytest.raises(DataError, match="its preparation differs"):
        resume(interrupted.path)


def test_another_working_directory_does_not_pick_up_another_file(
    configure, arrays, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = train(configure(data={"name": arrays.name}, train={"epochs": 1}))
    (run.path / "result.json").unlink()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(arrays, other / arrays.name)
    change(other / arrays.name, "train")
    monkeypatch.chdir(other)
    assert resume(run.path).result is not None


def test_data_that_was_moved_is_named_again(interrupted, arrays, tmp_path):
    moved = tmp_path / "moved.npz"
    arrays.rename(moved)
    folder = interrupted.path.rename(tmp_path / "my run")
    with pytest.raises(
        DataError, match=r"no such file or folder.*imae train DATA --resume '.*/my run'$"
    ):
        resume(folder)
    assert resume(folder, data=moved).result is not None


def test_a_finished_run_is_lengthened(configure, tmp_path):
    whole = train(configure(out=str(tmp_path / "whole"), schedule={"name": "constant"}))
    short = train(configure(train={"epochs": 1}, schedule={"name": "constant"}))
    with pytest.raises(ArgumentError, match="has trained 5 steps already; give more than 1 epochs"):
        resume(short.path, steps=4)
    assert short.result["steps"] == 5
    assert resume(short.path, epochs=1).result == short.result
    longer = resume(short.path, epochs=3)
    assert longer.result["steps"] == 15
    assert longer.config.train.epochs == 3
    assert longer.folder.env()["lengthened"] == [{"step": 5, "total_steps": 15}]
    assert longer.result["final"]["test_accuracy"] == whole.result["final"]["test_accuracy"]
    assert longer.folder.epochs() == [1, 2, 3]
    for epoch in (1, 2, 3):
        found, expected = (each.folder.dynamics(epoch).margin for each in (longer, whole))
        np.testing.assert_array_equal(found, expected)


def test_a_finished_run_without_checkpoints_is_left_as_it_is(configure, tmp_path):
    run = train(configure(train={"epochs": 1}, out=str(tmp_path / "run")))
    for path in (run.path / "checkpoints").glob("*.pt"):
        path.write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="has finished, and its checkpoints are missing or damaged"):
        resume(run.path, epochs=2)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_best_weights_that_are_missing_are_not_replaced_by_the_final_ones(configure, tmp_path):
    held = configure(train={"epochs": 1}, data={"hold_out": 0.2}, out=str(tmp_path / "run"))
    run = train(held)
    (run.path / "weights" / "best.pt").unlink()
    with pytest.raises(DataError, match=r"best\.pt: is missing, .*--which final"):
        run.load_model()
    assert run.load_model("final") is not None


def test_a_photo_that_cannot_be_read_names_the_option_that_skips_it(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for row in range(12):
        path = tmp_path / "pets" / ("cat", "dog")[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (9, 9), (20 * row, 0, 0)).save(path)
    path.write_bytes(b"not an image")
    settings = {
        "data": {"name": str(tmp_path / "pets"), "options": {"resize": 9, "crop": 8}},
        "model": {"name": "small_cnn"},
        "train": {"steps": 1},
        "out": str(tmp_path / "run"),
    }
    with pytest.raises(
        DataError, match=r"11\.png: cannot be .*--set data.options.on_bad_image=skip"
    ):
        train(settings)
    settings["data"]["options"]["on_bad_image"] = "skip"
    assert train({**settings, "out": str(tmp_path / "again")}).result is not None


def test_an_epoch_that_was_cut_short_is_completed(configure, tmp_path):
    settings = {"schedule": {"name": "constant"}}
    whole = train(configure(out=str(tmp_path / "whole"), train={"epochs": 1}, **settings))
    short = train(configure(train={"epochs": None, "steps": 3}, **settings))
    longer = resume(short.path, epochs=1)
    found, expected = (each.folder.dynamics(1) for each in (longer, whole))
    np.testing.assert_array_equal(found.margin, expected.margin)
    np.testing.assert_array_equal(found.predicted, expected.predicted)


def test_weights_that_are_not_finite_are_not_saved(configure):
    config = configure(
        method={"name": "cce"},
        optimizer={"name": "sgd", "lr": 1e29, "weight_decay": 1e15},
        train={"epochs": None, "steps": 1},
    )
    with pytest.raises(ImaeError, match=r"weights are not finite after 1 .*\(now 1e\+29\)"):
        train(config)
    assert not (RunFolder(config.out).path / "weights").exists()
    assert RunFolder(config.out).result() is None
    assert RunFolder(config.out).progress()["status"] == "failed"


def test_settings_that_name_a_pipe_are_read_without_opening_it(interrupted, tmp_path):
    content = interrupted.folder.config()
    os.mkfifo(tmp_path / "pipe.csv")
    content["method"] = {
        "name": "forward",
        "arguments": {"matrix": str(tmp_path / "pipe.csv") + "/"},
    }
    interrupted.folder.write_config(content)
    assert Run(interrupted.path).config.method.name == "forward"


def test_a_run_stops_before_predictions_begin_to_change_again(configure):
    config = configure(
        data={"hold_out": 0.0},
        method={"name": "cce"},
        optimizer={"lr": 0.1},
        train={"epochs": 60, "early_stop": "label_wave"},
        schedule={"name": "constant"},
        noise="symmetric:0.4",
    )
    run = train(config)
    epochs = run.folder.epochs()
    predicted = [run.folder.dynamics(epoch).predicted for epoch in epochs]
    changes = list(map(changed_share, predicted, predicted[1:]))
    best, is_over = label_wave(changes)
    assert is_over
    assert not label_wave(changes[:-1])[1]
    assert run.result["steps"] == 5 * len(epochs) < 300
    assert run.result["best"]["step"] == 5 * best
    assert load_tensors(run.path / "weights" / "best.pt")["step"] == 5 * best
    (run.path / "result.json").unlink()
    again = resume(run.path)
    assert again.result["steps"] == run.result["steps"], "a resume does not train further"
    assert again.result["best"] == run.result["best"]
    before = {path.name: path.read_bytes() for path in run.path.glob("*.json")}
    with pytest.raises(ArgumentError, match=f"in epoch {best}, and so cannot be lengthened"):
        resume(run.path, epochs=70)
    assert {path.name: path.read_bytes() for path in run.path.glob("*.json")} == before


def test_the_epoch_before_predictions_change_again_is_measured(configure):
    config = configure(
        data={"hold_out": 0.0},
        method={"name": "cce"},
        optimizer={"lr": 0.1},
        train={"epochs": 60, "early_stop": "label_wave", "evaluate_every": 7},
        schedule={"name": "constant"},
        noise="symmetric:0.4",
    )
    run = train(config)
    step = load_tensors(run.path / "weights" / "best.pt")["step"]
    assert run.result["best"]["step"] == step


def test_an_epoch_that_is_cut_short_is_not_the_best(configure, monkeypatch):
    shares = iter(np.linspace(0.9, 0.1, 9))  # the fewest changes always come last
    monkeypatch.setattr("imae.train.journal.changed_share", lambda *_: next(shares))
    config = configure(
        data={"hold_out": 0.0},
        model={"name": "mlp", "arguments": {"hidden": 8}},
        train={"epochs": None, "steps": 5 * 5 + 1, "early_stop": "label_wave"},
    )
    run = train(config)
    assert run.result["steps"] == 26
    assert run.result["best"]["step"] == 25
    assert load_tensors(run.path / "weights" / "best.pt")["step"] == 25


@pytest.mark.parametrize(
    "sections",
    [
        {"train": {"epochs": 2, "early_stop": "label_wave"}},
        {  # the best epoch of the first stage is not one of the run
            "method": {"name": "forward", "arguments": {"matrix": "estimate", "warm_up": 0.7}},
            "train": {"epochs": 6, "early_stop": "label_wave"},
        },
    ],
)
def test_a_run_too_short_for_a_wave_predicts_with_its_last_epoch(configure, sections):
    network = {"name": "mlp", "arguments": {"hidden": 8}}
    run = train(configure(data={"hold_out": 0.0}, model=network, **sections))
    assert run.result["best"] == run.result["final"]
    final = load_tensors(run.path / "weights" / "final.pt")
    for which in (None, "best"):
        weights = load_network(Run(run.path), which).state_dict()
        assert all(torch.equal(weights[key], value) for key, value in final["network"].items())


def test_a_wave_without_a_minimum_does_not_end():
    assert label_wave([]) == (None, False)
    assert label_wave([0.5, 0.4]) == (None, False)
    assert label_wave([0.9 - 0.1 * each for each in range(8)]) == (9, False)


def test_hints_at_the_end_of_a_run():
    names = ("cat", "dog")
    rows = [{"step": step, "train_accuracy": 0.2 * step} for step in (1, 2, 3, 4)]
    constant = np.array([1, 1, -1], np.int32)
    first, second = closing_hints(rows, constant, names, epochs=4)
    assert first.startswith("every row is predicted as 'dog'")
    assert second.startswith("accuracy rose from 40.0% to 80.0%")
    assert second.endswith("train longer: robust losses learn more slowly than cross entropy")
    plain = closing_hints(rows, constant, names, epochs=4, is_robust=False)[1]
    assert plain.endswith("in the second half of the run; train longer")
    assert closing_hints(rows, np.array([0, 1], np.int32), names, epochs=40) == []
    assert closing_hints(rows[-1:], None, names, epochs=4) == []


def test_a_rare_class_that_is_given_up_is_named_with_the_options_that_bring_it_back():
    rows, names = [{"step": 1}], ("common", "rare")
    constant, counts = np.zeros(300, np.int32), np.array([990, 10])

    def hints(**given):
        return closing_hints(rows, constant, names, epochs=40, **given)

    (hint,) = hints(counts=counts, batch_size=64)
    assert hint == (
        "class 'rare' (10 of 1000 rows) is never predicted: draw rare classes more often with "
        "--set data.balanced=10 --set train.batch_size=20"
    )
    assert "has too few rows" in hints(counts=np.array([99, 1]), batch_size=64)[0]
    for given in ({"counts": counts}, {"counts": np.array([500, 500]), "batch_size": 64}):
        assert hints(**given)[0].startswith("every row is predicted as 'common'")


@pytest.mark.parametrize("method", ["forward", "s_adaptation", "masking", "joint_optim"])
def test_a_run_in_stages_is_not_lengthened(configure, method):
    run = train(configure(method={"name": method}, train={"epochs": 2}))
    before = {path.name: path.read_bytes() for path in run.path.glob("*.json")}
    with pytest.raises(ArgumentError, match=f"{method} trains in stages .* cannot be lengthened"):
        resume(run.path, epochs=4)
    assert {path.name: path.read_bytes() for path in run.path.glob("*.json")} == before
