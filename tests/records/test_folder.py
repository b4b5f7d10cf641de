import json
import math
import multiprocessing

import numpy as np
import pytest

from imae.errors import DataError, ImaeError
from imae.records import EpochDynamics, RunFolder


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


def test_what_is_no_run_is_one_line(folder):
    with pytest.raises(DataError, match=r"config\.json: there is no such file; .* is no run"):
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
    import imae.records.folder

    imae.records.folder._locked.clear()  # the copy that a fork brings along; the kernel must refuse
    try:
        with folder.lock():
            raise SystemExit(0)
    except ImaeError:
        raise SystemExit(7) from None


def test_strays_of_a_killed_process_are_swept(folder):
    strays = [
        folder.checkpoints / ".step-1.pt.x.tmp",
        folder.path / "weights" / ".best.pt.x.tmp",
        folder.path / "dynamics" / ".epoch-00001.npz.x.tmp",
        folder.path / ".result.json.x.tmp",
    ]
    for stray in strays:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("")
    with folder.lock():
        assert not any(stray.exists() for stray in strays)


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


def test_a_failure_to_write_says_how_to_go_on(tmp_path):
    (tmp_path / "run").write_text("a file where a folder should be")
    folder = RunFolder(tmp_path / "run")
    for write in (
        lambda: folder.write_config({}),
        lambda: folder.append_history({"step": 1}),
        lambda: folder.lock().__enter__(),
    ):
        with pytest.raises(ImaeError, match=r"cannot be written .* imae train --resume"):
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
