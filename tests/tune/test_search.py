import ast
import itertools
import json
import os
import re
import runpy
import signal
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from imae.data import load
from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import RunFolder
from imae.records.files import hold
from imae.train import Stopped, train
from imae.train.config import TrainConfig
from imae.train.processes import fresh_process, start
from imae.tune import search as search_module
from imae.tune import tune
from imae.tune.outcome import write_page


def found(outcome):
    """What a search is about: parameters, accuracies and states, in order."""
    return [(dict(each.settings), each.accuracy, each.fitted) for each in outcome.trials]


def accuracy_in(folder, trial):
    """The accuracy in the run of a trial."""
    run = RunFolder(folder / "trials" / f"{trial.number:04d}")
    return run.result()["best"]["validation_accuracy"]


def test_a_search_ends_with_a_setting_a_command_and_a_page(search, tmp_path):
    said = []
    outcome = search(trials=4, say=said.append)
    assert len(said) == len(outcome.trials) == 4
    assert outcome.trials[0].settings["method.arguments.T"] == "auto"  # the defaults come first
    assert outcome.settings == outcome.chosen.settings
    assert outcome.chosen.num_rows == 27
    assert accuracy_in(tmp_path / "search", outcome.best) == outcome.best.accuracy
    stored = json.loads((tmp_path / "search" / "result.json").read_text())
    assert stored["settings"] == outcome.settings
    assert stored["command"] == outcome.command
    assert outcome.command.startswith("imae train ")
    assert "<script" not in outcome.page.read_text()


def test_the_same_seed_gives_the_same_suggestions_and_another_seed_others(search, whole):
    again, other = search(trials=3), search({"seed": 6}, trials=3, out="other")
    assert found(again) == found(whole)[:3]
    assert [each.settings for each in again.trials] != [each.settings for each in other.trials]


def test_a_finished_search_is_continued_by_a_larger_budget(search, whole):
    search(trials=2)
    assert found(search(trials=5)) == found(whole)


@pytest.mark.parametrize("moment", ["in a run", "before it is told", "after it is told"])
def test_a_killed_search_ends_as_one_that_was_not(search, whole, moment, config, tmp_path):
    given = {"CONFIG": config, "OUT": str(tmp_path / "search"), "MOMENT": moment}
    script = str(Path(__file__).with_name("killed_search.py"))
    child = fresh_process(runpy.run_path, script, given, "__main__")
    start(child)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    outcome = search(trials=3)
    assert found(outcome) == found(whole)[:3]
    assert outcome.trials[0].number == 0
    for each in outcome.trials:  # one that was tried again has the number of its folder
        assert accuracy_in(tmp_path / "search", each) == each.accuracy


def test_an_epoch_that_is_trained_again_after_a_kill_is_reported_once():
    reported = []
    trial = types.SimpleNamespace(
        report=lambda value, step: reported.append((step, value)), should_prune=lambda: False
    )
    watch = search_module._Watch(trial, None)
    for step, accuracy in [(2, 0.1), (4, 0.3), (6, 0.2), (4, 0.3), (6, 0.2), (8, 0.5)]:
        watch.measured({"step": step, "validation_accuracy": accuracy})
    assert reported == [(1, 0.1), (2, 0.3), (3, 0.3), (4, 0.5)]


def test_ctrl_c_leaves_a_search_that_continues(search, whole, monkeypatch):
    report, calls = search_module._Watch.measured, []

    def interrupt(self, row):
        report(self, row)
        calls.append(row)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(search_module._Watch, "measured", interrupt)
        with pytest.raises(Stopped, match="stopped after 1 trials; the same command") as stopped:
            search(trials=3)
    assert stopped.value.code == 130
    assert found(search(trials=3)) == found(whole)[:3]


def test_a_trial_that_fails_is_said_and_the_search_goes_on(search, whole, monkeypatch):
    train, said, calls = search_module.train, [], []

    def fail_once(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise ImaeError("the weights are\nnot finite")
        return train(*arguments, **options)

    monkeypatch.setattr(search_module, "train", fail_once)
    outcome = search(trials=3, say=said.append)
    assert said[1] == "trial 1 failed: ImaeError: the weights are not finite"
    assert [each.number for each in outcome.trials] == [0, 2]
    assert found(search(trials=3)) == found(whole)[:3]  # the one that failed is tried again


def test_a_search_in_which_every_trial_fails_gives_up_and_continues(search, whole, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no memory")

    monkeypatch.setattr(search_module, "train", fail)
    for _ in range(2):
        with pytest.raises(ImaeError, match="the first 3 trials failed: RuntimeError: no memory"):
            search(trials=9)
    with pytest.raises(ImaeError, match="2 failed; remove the cause, the same command continues"):
        search(out="short", trials=2)
    monkeypatch.undo()
    assert found(search(out="short", trials=2)) == found(whole)[:2]


def test_trials_that_fall_behind_are_stopped(search, monkeypatch):
    import optuna

    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda self: self.number == 1)
    outcome = search(trials=3)
    assert [each.accuracy is None for each in outcome.trials] == [False, True, False]
    assert [each.status for each in outcome.trials] == ["finished", "stopped early", "finished"]
    assert outcome.page.read_text().count("<td>stopped early</td>") == 1


def test_the_first_trial_has_the_defaults_where_the_rate_is_searched_too(search):
    said = []
    outcome = search(trials=1, lr=(0.005, 0.2), say=said.append)
    first = outcome.trials[0].settings
    assert (first["optimizer.lr"], first["method.arguments.T"]) == (0.05, "auto")
    assert said[0].startswith("trial 0: loss imae_capped, cap 0.75, T auto, learning rate 0.05: ")
    outside = search(trials=1, lr=(0.1, 0.2), out="outside")
    assert outside.trials[0].settings["optimizer.lr"] == 0.1


def test_settings_that_were_tried_are_neither_trained_nor_counted_again(search, monkeypatch):
    trained, train = [], search_module.train
    monkeypatch.setattr(
        search_module, "train", lambda *given, **more: trained.append(1) or train(*given, **more)
    )
    monkeypatch.setattr(search_module, "_Q", (0.5, 0.8))  # seven values: some are suggested twice
    said = []
    method = {"method": {"name": "gce"}, "train": {"steps": 1, "batch_size": 32}}
    outcome = search(method, trials=5, say=said.append)
    tried = [each.settings["method.arguments.q"] for each in outcome.trials]
    assert len(set(tried)) == len(tried) == len(trained) == 5
    assert any("not trained again" in line for line in said)


def test_a_trial_that_another_worker_leaves_no_budget_for_is_given_up(search, whole, monkeypatch):
    search(trials=2)
    seen, ended = [], search_module.ended

    def not_yet(study):
        seen.append(study)
        return ended(study)[: 1 if len(seen) == 1 else None]  # the other has just ended one more

    monkeypatch.setattr(search_module, "ended", not_yet)
    outcome = search(trials=2)
    assert len(seen) == 2
    assert found(outcome) == found(whole)[:2]
    assert len(list((outcome.folder / "trials").iterdir())) == 2


def test_a_search_ends_when_everything_was_tried(search, monkeypatch):
    monkeypatch.setattr(search_module, "_Q", (0.7, 0.7))
    monkeypatch.setattr(search_module, "_MOST_REPEATED", 2)
    said = []
    settings = {"method": {"name": "gce"}, "train": {"steps": 1, "batch_size": 32}}
    assert len(search(settings, trials=9, say=said.append).trials) == 1
    assert said[-1] == "the last 2 suggestions were all tried before: the search ends"


def test_time_that_is_up_keeps_what_has_finished(search, whole, monkeypatch):
    ticks = itertools.count()
    clock = types.SimpleNamespace(monotonic=lambda: 10.0 * next(ticks))
    for module in (search_module,):
        monkeypatch.setattr(module, "time", clock)
    outcome = search(minutes=2)
    assert 1 <= len(outcome.trials) < 4
    monkeypatch.undo()
    assert found(search(trials=4)) == found(whole)[:4]


def test_clean_labels_decide_where_there_are_some(search, rows):
    outcome = search(trials=3, clean_validation=rows.with_name("clean.npz"))
    assert outcome.is_clean
    assert outcome.shrinkage == 1
    assert outcome.chosen is outcome.best
    assert outcome.best.num_rows == 30
    assert outcome.best.accuracy == max(each.accuracy for each in outcome.trials)
    assert "clean validation labels" in outcome.lines()[0]


def test_clean_photos_are_found_below_the_root(search, tmp_path):
    lines = []
    for number in range(40):
        lines.append(f"{number}.png,{'ab'[number % 2]}")
        (tmp_path / "photos").mkdir(exist_ok=True)
        grey = 60 + 120 * (number % 2) + number
        Image.new("RGB", (8, 8), (grey, grey, grey)).save(tmp_path / "photos" / f"{number}.png")
    for name, rows in (("table.csv", lines[:30]), ("clean.csv", lines[30:])):
        (tmp_path / name).write_text("\n".join(["path,label", *rows]))
    options = {"resize": 8, "crop": 8}
    data = {"name": str(tmp_path / "table.csv"), "root": str(tmp_path / "photos")}
    settings = {"data": {**data, "options": options}, "train": {"steps": 2}}
    clean = str(tmp_path / "clean.csv")
    outcome = search({**settings, "model": {"name": "small_cnn"}}, trials=1, clean_validation=clean)
    assert outcome.trials[0].num_rows == 10


def test_the_root_of_a_known_set_is_not_that_of_the_clean_rows(search, tmp_path):
    test = load("digits").test
    np.savez(tmp_path / "digits.npz", x=test.inputs.pixels[:20], y=test.labels[:20])
    settings = {"data": {"name": "digits", "root": str(tmp_path)}, "train": {"steps": 1}}
    clean = str(tmp_path / "digits.npz")
    assert search(settings, trials=1, clean_validation=clean).trials[0].num_rows == 20


def test_clean_rows_that_are_trained_on_are_said(search, rows, tmp_path):
    with np.load(rows) as known, np.load(rows.with_name("clean.npz")) as clean:
        x, y = np.concatenate([known["x"][:5], clean["x"]]), clean["y"]
    np.savez(tmp_path / "shared.npz", x=x, y=np.concatenate([y[:5], y]))
    said = []
    search(trials=1, clean_validation=tmp_path / "shared.npz", say=said.append)
    assert "5 of 35 rows" in said[0]
    search(out="other", trials=1, clean_validation=rows.with_name("clean.npz"), say=said.append)
    assert sum("trained on" in line for line in said) == 1


@pytest.fixture
def from_python(config, tmp_path):
    """A small search on rows of this program: from_python(rows, trials=3)."""

    def run(data, settings=None, out="search", **options):
        data_settings = {"hold_out": 0.3, **(settings or {}).pop("data", {})}
        asked = {**config, **(settings or {}), "data": data_settings}
        return tune(asked, data, out=tmp_path / out, **options)

    return run


def test_arrays_are_searched_as_the_file_that_holds_them(from_python, search, whole, rows):
    with np.load(rows) as arrays:
        x, y = arrays["x"], arrays["y"]
    outcome = from_python((x, y), trials=3)
    assert found(outcome) == found(whole)[:3]
    call = outcome.command
    assert call.startswith("imae.train.train({'data': {'hold_out': 0.3}, 'seed': 5, 'model': {")
    assert call.endswith("}, data=...)")
    run = train({**ast.literal_eval(call[17:-11]), "out": str(rows.with_name("run"))}, data=(x, y))
    again = run.result["best"]["validation_accuracy"]
    assert again == outcome.chosen.accuracy
    assert found(search(trials=4)) == found(whole)[:4], "the same rows, so the same search"
    with pytest.raises(ArgumentError, match="holds a search with other data"):
        from_python((x + 1, y), trials=4)
    with pytest.raises(ArgumentError, match="holds a search with other data"):
        from_python((x, (y + 1) % 3), trials=4)
    url = f"sqlite:///{rows.with_name('search') / 'search.db'}"
    with pytest.raises(ArgumentError, match="holds a search with other data"):
        from_python((x + 1, y), trials=4, out="moved", storage=url)


def test_a_stopped_search_on_rows_from_python_continues(from_python, whole, rows, monkeypatch):
    with np.load(rows) as arrays:
        data = arrays["x"], arrays["y"]
    report, calls = search_module._Watch.measured, []

    def interrupt(self, row):
        report(self, row)
        calls.append(row)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(search_module._Watch, "measured", interrupt)
    with pytest.raises(Stopped):
        from_python(data, trials=3)
    monkeypatch.undo()
    assert found(from_python(data, trials=3)) == found(whole)[:3]


def test_a_frame_is_searched_with_the_options_of_a_file(from_python, rows):
    polars = pytest.importorskip("polars")
    with np.load(rows) as arrays:
        frame = polars.DataFrame(arrays["x"]).with_columns(
            kind=np.array(["a", "b", "c"])[arrays["y"]], word=np.array(["x", "y"] * 45)
        )
    options = {"options": {"label_column": "kind"}}
    said = []
    clean = frame.drop("kind"), frame["kind"]
    outcome = from_python(
        frame, {"data": options}, trials=2, clean_validation=clean, say=said.append
    )
    assert outcome.is_clean
    assert outcome.best.num_rows == 90
    assert "'label_column': 'kind'" in outcome.command
    assert "90 of 90 rows of clean_validation are in frame too" in said[0]
    with pytest.raises(ArgumentError, match="holds a search with other clean labels"):
        from_python(
            frame, {"data": options}, trials=2, clean_validation=(clean[0], ["a", "b"] * 45)
        )
    with pytest.raises(DataError, match="has no column label"):
        from_python(frame, trials=1, out="other")
    with pytest.raises(ArgumentError, match="rows and their labels"):
        from_python(frame, {"data": options}, trials=1, clean_validation=frame)


@pytest.mark.parametrize("data", [None, 5, np.zeros((3, 2))], ids=["nothing", "5", "no labels"])
def test_rows_that_cannot_be_trained_on_are_refused_as_by_train(from_python, data):
    with pytest.raises(ArgumentError) as error:
        from_python(data, trials=1)
    with pytest.raises(ArgumentError) as expected:
        train({"data": {"hold_out": 0.3}}, data=data)
    assert str(error.value) == str(expected.value)


def test_the_loss_and_the_learning_rate_are_searched_if_asked(search):
    steps = {"train": {"steps": 1, "batch_size": 32}}
    outcome = search(steps, trials=6, losses=["imae_capped", "gce", "cce"], lr=(0.01, 0.2))
    tried = {each.settings["method.name"] for each in outcome.trials}
    assert len(tried) > 1
    assert all(0.01 <= each.settings["optimizer.lr"] <= 0.2 for each in outcome.trials)
    assert "optimizer.lr" in outcome.settings


def test_given_parameters_are_not_searched(search):
    outcome = search({"method": {"name": "imae_capped", "arguments": {"T": 3.0}}}, trials=3)
    assert {each.settings["method.arguments.T"] for each in outcome.trials} == {3.0}
    assert len({each.settings["method.arguments.cap"] for each in outcome.trials}) > 1


def test_a_parameter_that_only_some_losses_take_is_given_to_these(search):
    given = {"method": {"name": "imae_capped", "arguments": {"T": 3.0}}}
    outcome = search(given, trials=6, losses=["imae_capped", "gce"])
    by_loss = {each.settings["method.name"]: each.settings for each in outcome.trials}
    assert by_loss["imae_capped"]["method.arguments.T"] == 3.0
    assert "method.arguments.T" not in by_loss["gce"]


def test_a_parameter_that_the_usual_loss_does_not_take_is_given_to_those_that_do(search):
    given = {"method": {"arguments": {"q": 0.5}}, "train": {"steps": 1, "batch_size": 32}}
    outcome = search(given, trials=4, losses=["imae_capped", "gce"])
    by_loss = {each.settings["method.name"]: each.settings for each in outcome.trials}
    assert by_loss["gce"]["method.arguments.q"] == 0.5
    assert "method.arguments.q" not in by_loss["imae_capped"]
    with pytest.raises(ArgumentError, match="got 'q'"):
        search(given, out="other", trials=1, losses=["cce", "mae"])


def test_a_parameter_that_is_given_as_none_is_none(search, tmp_path):
    given = {"method": {"name": "imae_capped", "arguments": {"cap": None}}}
    outcome = search(given, trials=1)
    run = RunFolder(tmp_path / "search" / "trials" / "0000")
    assert run.config()["method"]["arguments"]["cap"] is None
    assert "--set method.arguments.cap=none" in outcome.command


@pytest.mark.parametrize("name", ["a{b}", "what?", "50%41"])
def test_a_folder_may_have_any_name(search, tmp_path, name):
    assert len(search(trials=1, out=name).trials) == 1
    assert (tmp_path / name / "search.db").is_file()
    assert {each.name for each in tmp_path.iterdir()} == {"clean.npz", "rows.npz", name}
    assert len(search(trials=1, out=name).trials) == 1


@pytest.mark.parametrize(
    ("train", "number"),
    [
        ({}, 40),
        ({"epochs": 9}, 9),
        ({"steps": 30, "batch_size": 10}, 3),
        ({"epochs": 2, "batch_size": 10, "evaluate_every": 5}, 4),
    ],
)
def test_measurements_of_a_trial_are_counted(train, number):
    assert search_module._num_measurements(TrainConfig(**train), 100) == number


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"trials": "x"}, "trials must be an integer"),
        ({"minutes": 0}, "minutes must be"),
        ({"minutes": float("nan")}, "minutes must be"),
        ({"minutes": "x"}, "minutes must be"),
        ({"lr": (0.2, 0.1)}, "lr must be a range"),
        ({"lr": (0.1, float("inf"))}, "lr must be a range"),
        ({"lr": 0.1}, "lr must be a range"),
        ({"lr": (1, 2, 3)}, "lr must be a range"),
        ({"losses": "cce"}, "cce: nothing to search"),
        ({"clean_validation": 5}, "clean_validation must be a path"),
        ({"storage": 5}, "storage must be the address"),
        ({"losses": ["cce"]}, "cce: nothing to search"),
        ({"losses": ["imea"]}, "imea"),
        ({"storage": "postgresql://ann:secret@127.0.0.1:1/x"}, r"ann:\*\*\*@127.0.0.1:1/x"),
        ({"storage": "nonsense"}, "not an address"),
        ({"storage": "nosuch://host/x"}, "cannot be used"),
        ({"settings": {"data": {"name": "digits", "hold_out": 0}}}, "nothing is held out"),
        ({"settings": {"data": {"name": "digits", "planted": 0.1}}}, "data.planted: a search"),
        (
            {"settings": {"method": {"arguments": {"T": 2}}}, "losses": ["gce", "cce"]},
            "method.arguments.T: is not a parameter of gce, cce",
        ),
        ({"settings": {"machine": {"devices": 2}}}, "one process"),
    ],
)
def test_wrong_options_are_one_clear_line(search, options, said):
    with pytest.raises(ArgumentError, match=said) as error:
        search(**{"trials": 1, **options})
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_wrong_clean_rows_are_one_clear_line(search, rows, tmp_path):
    def refused(**arrays):
        np.savez(tmp_path / "wrong.npz", **arrays)
        with pytest.raises(DataError, match=r"wrong\.npz") as error:
            search(trials=1, clean_validation=tmp_path / "wrong.npz")
        assert "\n" not in str(error.value)
        return str(error.value)

    refused(x=np.zeros((0, 4), np.float32), y=np.zeros(0, np.int64))
    other = refused(x=np.zeros((9, 4), np.float32), y=np.array(["a", "b", "c"] * 3))
    assert "has the class 'a'" in other
    refused(x=np.zeros((9, 3), np.float32), y=np.arange(9) % 3)
    assert not (tmp_path / "search").exists()  # the corrected rows can be used with the same --out
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match=r"empty\.csv"):
        search(trials=1, clean_validation=tmp_path / "empty.csv")
    with pytest.raises(ArgumentError, match="is the data itself"):
        search(trials=1, clean_validation=rows)


def test_clean_rows_without_a_column_leave_no_search_behind(search, tmp_path):
    generator = np.random.Generator(np.random.PCG64(3))

    def write(name, columns):
        lines = [",".join([*columns, "label"])]
        for row in range(60):
            numbers = generator.normal(size=len(columns)) + row % 3
            lines.append(",".join([*(f"{each:.3f}" for each in numbers), "abc"[row % 3]]))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    data = {"data": {"name": str(write("rows.csv", ["length", "width"])), "hold_out": 0.3}}
    clean = write("clean.csv", ["length"])
    with pytest.raises(DataError, match=r"clean\.csv: .*width"):
        search(data, trials=1, clean_validation=clean)
    assert not (tmp_path / "search").exists()
    write("clean.csv", ["width", "length"])
    assert search(data, trials=1, clean_validation=clean).is_clean


def test_a_search_on_other_data_or_settings_is_refused(search, rows, tmp_path):
    search(trials=1)
    with pytest.raises(ArgumentError, match="holds a search with other settings"):
        search({"train": {"epochs": 5}}, trials=1)
    np.savez(rows, x=np.ones((30, 4), np.float32), y=np.arange(30) % 3)
    with pytest.raises(ArgumentError, match="holds a search with other data"):
        search(trials=1)
    # A database that was moved to another folder says it by itself.
    (tmp_path / "moved").mkdir()
    url = f"sqlite:///{tmp_path / 'search' / 'search.db'}"
    with pytest.raises(ArgumentError, match="holds a search with other data"):
        search(trials=1, storage=url, out="moved")


def test_other_clean_rows_and_other_parts_are_refused(search, rows):
    clean = rows.with_name("clean.npz")
    search(trials=1, clean_validation=clean)
    content = dict(np.load(clean))
    np.savez(clean, x=content["x"] + 1, y=content["y"])
    with pytest.raises(ArgumentError, match="holds a search with other clean labels"):
        search(trials=2, clean_validation=clean)
    search(trials=1, out="plain")
    settings = {"data": {"name": str(rows), "hold_out": 0.3, "balanced": 5}}
    with pytest.raises(ArgumentError, match="holds a search with other settings"):
        search(settings, trials=2, out="plain")


def test_a_storage_that_cannot_be_used_leaves_no_claim(search):
    with pytest.raises(ArgumentError, match="cannot be used"):
        search(trials=1, storage="postgresql://ann@127.0.0.1:1/x")
    assert len(search({"seed": 6}, trials=1).trials) == 1


def test_the_rows_of_a_validation_part_are_counted(search, rows, tmp_path):
    content = dict(np.load(rows))
    split = np.array(["train", "train", "validation"] * 30)
    np.savez(tmp_path / "parts.npz", **content, split=split)
    outcome = search({"data": {"name": str(tmp_path / "parts.npz")}}, trials=2)
    assert outcome.best.num_rows == 30
    assert outcome.standard_error < 0.1


def test_a_validation_part_that_is_not_used_is_none(search, rows, tmp_path):
    files = np.load(rows)
    parts = {"x_val": files["x"][:9], "y_val": files["y"][:9]}
    np.savez(tmp_path / "parts.npz", **files, **parts)
    data = {"name": str(tmp_path / "parts.npz"), "hold_out": 0.0, "own_validation": False}
    with pytest.raises(ArgumentError, match="nothing is held out"):
        search({"data": data}, trials=1)


def test_a_folder_with_other_files_is_refused_and_left_alone(search, tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "thesis.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="is not empty and holds no search"):
        search(trials=1)
    assert [path.name for path in (tmp_path / "search").iterdir()] == ["thesis.txt"]


def test_a_search_killed_as_its_database_appeared_continues(search, tmp_path):
    (tmp_path / "search").mkdir()
    for name in ("lock", "search.db", "search.db-journal", ".search.json.x1.tmp"):
        (tmp_path / "search" / name).touch()
    assert len(search(trials=1).trials) == 1


def test_two_searches_in_one_folder_are_refused(search, tmp_path):
    search(trials=1)
    with hold(tmp_path / "search"), pytest.raises(ImaeError, match="another process"):
        search(trials=1)


def test_the_page_says_of_which_data_and_which_day_it_is(whole):
    text = whole.page.read_text()
    day = r"\d{4}-\d{2}-\d{2}"
    assert re.search(rf"<title>imae tune: rows\.npz, {day}</title>", text)
    assert "<h1>rows.npz: settings chosen" in text
    assert re.search(rf"5 trials[^<]*begun on <time>{day}</time>", text)


def test_points_and_tick_labels_are_inside_their_chart(whole):
    charts = re.findall(
        r'<svg viewBox="0 0 (\d+) \d+"(.*?)</svg>', whole.page.read_text(), re.DOTALL
    )
    assert charts
    for width, drawn in charts:
        points = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)
        assert all(46 < float(x) < int(width) - 10 for x, _ in points)
        ends = [
            float(x) + 3.5 * len(text)  # half of the width of a text that is centred there
            for x, text in re.findall(r'<text x="([\d.]+)"[^>]*"middle">([^<]*)<', drawn)
        ]
        assert max(ends) <= int(width)


def test_names_in_the_page_are_escaped(search):
    outcome = search(trials=1)
    write_page(outcome, 0, data="<img src=x onerror=alert(1)>", date=None)
    text = outcome.page.read_text()
    assert "<img" not in text
    assert "&lt;img" in text
