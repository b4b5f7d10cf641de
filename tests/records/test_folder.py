import json
import math
import multiprocessing
import os
import signal

import numpy as np
import pytest

from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import EpochDynamics, RunFolder, RunLabels


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def dynamics(value, rows=3):
    return EpochDynamics(
        np.full(rows, value, np.float32),
        np.full(rows, 1, np.int32),
        np.full(rows, math.nan, np.float32),
    )


def test_what_is_written_is_read_back(folder):
    assert not folder.exists()
    assert folder.result() is None
    assert folder.progress() is None
    assert folder.env() == {}
    folder.write_preparation({"class_names": ["a"]})
    folder.write_config({"seed": 1, "method": {"name": "imae"}})
    folder.write_env({"python": "3"})
    folder.write_result({"final": {"step": 2}})
    folder.write_progress(step=1, total_steps=2, seconds=0.5, status="running")
    assert folder.exists()
    assert folder.config() == {"seed": 1, "method": {"name": "imae"}}
    assert folder.env() == {"python": "3"}
    assert folder.preparation() == {"class_names": ["a"]}
    assert folder.result() == {"final": {"step": 2}}
    assert folder.progress() == {
        "step": 1,
        "total_steps": 2,
        "seconds": 0.5,
        "status": "running",
        "message": "",
    }


def test_numbers_that_json_does_not_know_become_null(folder):
    folder.append_history({"step": 1, "a": math.nan, "b": [math.inf, 1.0], "c": {"d": -math.inf}})
    text = (folder.path / "history.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "step": 1,
        "a": None,
        "b": [None, 1.0],
        "c": {"d": None},
    }


def test_a_line_half_written_is_left_out_and_truncated(folder):
    for step in (1, 2, 3):
        folder.append_history({"step": step})
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"step": 4, "te')
    assert [row["step"] for row in folder.history()] == [1, 2, 3]
    folder.truncate(step=2, num_epochs=0)
    folder.append_history({"step": 3, "again": True})
    assert folder.history() == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


def test_truncating_takes_back_dynamics_and_the_result(folder):
    for epoch in (1, 2, 3):
        folder.write_dynamics(epoch, dynamics(epoch))
    folder.write_result({})
    folder.truncate(step=0, num_epochs=2)
    assert folder.epochs() == [1, 2]
    assert folder.result() is None


def test_what_is_not_a_run_is_one_line(folder):
    with pytest.raises(DataError, match=r"config\.json: there is no such file; .* is not a run"):
        folder.config()
    folder.path.mkdir()
    (folder.path / "config.json").write_text("{")
    with pytest.raises(DataError, match="is not valid JSON"):
        folder.config()
    (folder.path / "config.json").write_text("[]")
    with pytest.raises(DataError, match="must hold a JSON object"):
        folder.config()


def test_one_folder_one_run(folder):
    with folder.lock():
        with pytest.raises(ImaeError, match="another process is training"), folder.lock():
            pass
        with pytest.raises(ImaeError, match="another process"), RunFolder(folder.path).lock():
            pass
        context = multiprocessing.get_context("fork")
        other = context.Process(target=_exit_with_refusal, args=(folder,))
        other.start()
        other.join()
        assert other.exitcode == 7
    with folder.lock():
        pass


def _exit_with_refusal(folder):
    import imae.records.files

    imae.records.files._locked.clear()  # the copy that a fork brings along; the kernel must refuse
    try:
        with folder.lock():
            raise SystemExit(0)
    except ImaeError:
        raise SystemExit(7) from None


def test_unfinished_files_of_a_killed_process_are_removed_and_no_others(folder):
    unfinished = [
        folder.checkpoints / ".step-000000001.pt.k3x_9abz.tmp",
        folder.path / "weights" / ".best.pt.k3x_9abz.tmp",
        folder.path / "dynamics" / ".epoch-00001.npz.k3x_9abz.tmp",
        folder.path / ".result.json.k3x_9abz.tmp",
    ]
    others = [folder.path / ".cache.tmp", folder.checkpoints / ".step-5.pt.tmp"]
    folder.write_config({})
    for path in (*unfinished, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    with folder.lock():
        assert not any(path.exists() for path in unfinished)
        assert all(path.exists() for path in others)


@pytest.mark.parametrize("name", ["photo.png", "labels.npz", "weights/best.pt", "env.json"])
def test_a_folder_with_files_of_somebody_else_is_refused_and_left_as_it_is(folder, name):
    path = folder.path / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(ArgumentError, match="holds files but no run"), folder.lock():
        pass
    assert [each for each in folder.path.rglob("*") if each.is_file()] == [path]
    assert path.read_text() == "{}"


def test_a_run_that_was_killed_before_its_first_step_can_start_again(folder):
    folder.write_env({"imae": "1.0"})
    folder.write_labels(RunLabels(np.array(["a"]), np.array([0]), np.array(["x"])))
    (folder.path / ".preparation.json.k3x_9abz.tmp").write_text("")
    with folder.lock():
        pass


def test_a_result_that_contradicts_the_history_is_refused(folder):
    rows = [{"step": 1, "test_accuracy": 0.5}, {"step": 2, "test_accuracy": 0.25}]
    for row in rows:
        folder.append_history(row)
    result = {"best": rows[0], "best_test": None, "final": rows[1]}
    folder.write_result(result)
    assert folder.result() == result
    for changed in (
        {"best": {"step": 1, "test_accuracy": 0.9}},
        {"final": rows[0]},
        {"best_test": {"step": 3}},
    ):
        folder.write_result({**result, **changed})
        with pytest.raises(DataError, match=r"is not in history\.jsonl; one of the two"):
            folder.result()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"time": 3}', "must have a step after 0, got None"),
        ('{"step": "3"}', "must have a step after 0, got '3'"),
        ('{"step": 1}\n{"step": 1}', "line 2: must have a step after 1, got 1"),
        ('{"step": 1, "test_accuracy": "high"}', "test_accuracy must be a number, got 'high'"),
        (
            '{"step": 1, "validation_accuracy": 7}',
            r"validation_accuracy must be in \[0, 1\], got 7",
        ),
        ('{"step": 1, "train_loss": 1e999}', "train_loss must be a finite number, got inf"),
    ],
)
def test_a_history_of_another_program_is_refused(folder, line, message):
    folder.path.mkdir()
    (folder.path / "history.jsonl").write_text(line + "\n")
    for read in (folder.history, lambda: folder.truncate(step=1, num_epochs=0)):
        with pytest.raises(DataError, match=message):
            read()


def test_a_pipe_is_not_waited_for(folder):
    folder.path.mkdir()
    for name in ("result.json", "history.jsonl", "labels.npz"):
        os.mkfifo(folder.path / name)
    for read in (folder.result, folder.history, folder.labels):
        with pytest.raises(DataError, match=r"is not a regular file|cannot be read"):
            read()


@pytest.fixture
def _alarm():
    """Ends a test that waits for a pipe."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("a pipe was waited for"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_alarm")
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("lock", DataError, "lock: is not a regular file"),
        ("env.json", ArgumentError, "holds files but no run"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_to_write_is_not_waited_for(folder, name, error, message):
    folder.path.mkdir()
    os.mkfifo(folder.path / name)
    with pytest.raises(error, match=message), folder.lock():
        pass


@pytest.mark.usefixtures("_alarm")
def test_a_pipe_in_the_place_of_the_history_is_not_written_to(folder):
    folder.path.mkdir()
    os.mkfifo(folder.path / "history.jsonl")
    with pytest.raises(DataError, match="is not a regular file"):
        folder.append_history({"step": 1})


def test_a_folder_to_which_nothing_was_written_does_not_stay(tmp_path):
    with RunFolder(tmp_path / "new").lock():
        assert (tmp_path / "new").exists()
    assert not (tmp_path / "new").exists()
    (tmp_path / "own").mkdir()
    with RunFolder(tmp_path / "own").lock():
        pass
    assert list((tmp_path / "own").iterdir()) == []
    with RunFolder(tmp_path / "used").lock():
        RunFolder(tmp_path / "used").write_config({})
    assert (tmp_path / "used" / "config.json").exists()


def test_a_failure_to_write_says_how_to_continue(tmp_path):
    (tmp_path / "run").write_text("a file where a folder should be")
    folder = RunFolder(tmp_path / "run")
    for write in (
        lambda: folder.write_config({}),
        lambda: folder.append_history({"step": 1}),
    ):
        with pytest.raises(ImaeError, match=r"cannot be written .* choose another folder"):
            write()


def test_a_run_of_an_earlier_version_says_what_it_lacks(folder):
    with pytest.raises(DataError, match=r"preparation\.json: there is no such file, .* again"):
        folder.preparation()


def test_a_damaged_line_of_the_history_is_named(folder):
    folder.append_history({"step": 1})
    with (folder.path / "history.jsonl").open("a") as file:
        file.write("[]\n")
    with pytest.raises(DataError, match=r"history\.jsonl, line 2: must hold a JSON object"):
        folder.history()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_names": ["b", "a"]}, "its classes are not those of labels"),
        ({"class_names": ["a", "a"]}, "its classes are not those of labels"),
        ({"content": ["a"]}, "content must be a JSON object"),
        ({"annotations": "a"}, "annotations must be a JSON object"),
        ({"num_validation": -1}, "num_validation must be a number of rows, got -1"),
        ({"num_validation": True}, "num_validation must be a number of rows, got True"),
    ],
)
def test_a_preparation_that_contradicts_the_labels_is_refused(folder, change, message):
    names = ["a", "b"]
    folder.write_labels(RunLabels(np.array(["1", "2"]), np.array([0, 1]), np.array(names)))
    folder.write_preparation({"class_names": names})
    assert folder.preparation() == {"class_names": names}
    folder.write_preparation({"class_names": names, **change})
    with pytest.raises(DataError, match=message):
        folder.preparation()
