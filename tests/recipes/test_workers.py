import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import signal
import threading
import time

import pytest

from imae.recipes.grid import build_jobs
from imae.recipes.runner import _work, run_in_parallel
from imae.records import RunFolder
from imae.train import Stopped, resume


@pytest.fixture
def jobs(recipe, tmp_path):
    return build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings={}, workers=2)[:3]


def test_jobs_are_done_and_one_that_fails_stops_no_other(jobs):
    bad = jobs[1].config.model_copy(
        update={"train": jobs[1].config.train.model_copy(update={"batch_size": 1000})}
    )
    ends = run_in_parallel([jobs[0], type(jobs[1])("bad", bad), jobs[2]], 2)
    problems = {job.name: problem for job, problem in ends}
    assert "more than the 180 rows" in problems.pop("bad")
    assert list(problems.values()) == [None, None]
    assert all(RunFolder(job.config.out).result() for job in (jobs[0], jobs[2]))


def test_a_worker_whose_parent_was_killed_ends_quietly(monkeypatch):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    receiver.close()
    monkeypatch.setattr("imae.recipes.runner.attempt_settings", lambda *_, **__: "some problem")
    _work({}, sender, has_notes=False)
    with pytest.raises(BrokenPipeError):  # as it would have
        sender.send(None)


@pytest.mark.parametrize(
    "is_server_ended",
    [False, pytest.param(True, marks=pytest.mark.slow)],  # starting one takes seconds
)
def test_a_signal_saves_the_runs_and_they_can_go_on(recipe, tmp_path, is_server_ended):
    settings = {"train": {"steps": 100_000, "checkpoint_every": 10}}
    (job, *_) = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=settings)
    folder = RunFolder(job.config.out)

    def stop_when_it_trains():
        while not any(folder.checkpoints.glob("*.pt")):
            time.sleep(0.01)
        if is_server_ended:  # as a signal to the whole group does to what starts processes
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop_when_it_trains)
    thread.start()
    with pytest.raises(Stopped, match="resume with the same command") as stopped:
        list(run_in_parallel([job], 2))
    thread.join()
    assert stopped.value.code == 143
    progress = folder.progress()
    assert progress["status"] == "stopped"
    assert 0 < progress["step"] < 100_000


def test_a_killed_process_is_named_and_its_run_can_go_on(recipe, tmp_path):
    settings = {"train": {"steps": 60, "checkpoint_every": 1}}
    (job, *_) = build_jobs(recipe.cells("short"), seeds=1, folder=tmp_path, settings=settings)
    folder = RunFolder(job.config.out)

    def kill_when_it_trains():
        while not any(folder.checkpoints.glob("*.pt")):  # one after each step
            time.sleep(0.002)
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_when_it_trains)
    thread.start()
    ((_, problem),) = run_in_parallel([job], 1)
    thread.join()
    assert problem == "its process ended without a message (exit code -9)"
    assert resume(job.config.out).result["final"]["step"] == 60
