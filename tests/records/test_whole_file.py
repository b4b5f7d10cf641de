import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from imae.errors import ImaeError
from imae.records import EpochDynamics, RunFolder
from imae.records.files import whole_file


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "new" / "labels.csv"
    for content in (b"first", b"second"):
        with whole_file(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["labels.csv"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes(b"old")

    def write_and_fail() -> None:
        with whole_file(path) as file:
            file.write(b"half of the n")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_and_fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["labels.csv"]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes(b"old")
    program = (
        "import os, signal, sys\nfrom imae.records.files import whole_file\n"
        "with whole_file(sys.argv[1]) as file:\n"
        "    file.write(b'x' * 100000); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    result = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert result.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_the_file_is_as_readable_as_any_other(tmp_path):
    with whole_file(tmp_path / "a") as file:
        file.write(b"")
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.fixture
def synced(monkeypatch):
    """Files and folders that were synced to the disk, by their numbers there."""
    found = []
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(os.fstat(handle).st_ino))
    return found


def number(path):
    return path.stat().st_ino


def test_content_and_name_are_synced_and_the_name_later_if_asked(tmp_path, synced):
    with whole_file(tmp_path / "a") as file:
        file.write(b"x")
    assert synced == [number(tmp_path / "a"), number(tmp_path)]
    synced.clear()
    with whole_file(tmp_path / "b", is_name_synced=False) as file:
        file.write(b"x")
    assert synced == [number(tmp_path / "b")]


def test_history_and_dynamics_may_be_synced_together(tmp_path, synced):
    folder = RunFolder(tmp_path)
    dynamics = EpochDynamics(np.zeros(2, np.float32), np.zeros(2, np.int32), np.ones(2, np.float32))
    row, history = {"step": 1}, tmp_path / "history.jsonl"
    folder.append_history(row)
    folder.write_dynamics(1, dynamics)
    assert {number(history), number(tmp_path / "dynamics")} <= set(synced)
    synced.clear()
    folder.append_history(row, is_synced=False)
    folder.write_dynamics(2, dynamics, is_synced=False)
    folder.sync()
    assert synced[0] == number(tmp_path / "dynamics" / "epoch-00002.npz")  # whole or not at all
    assert {number(history), number(tmp_path / "dynamics")} <= set(synced[1:])


def test_dynamics_that_cannot_be_written_are_named_when_they_are_waited_for(tmp_path):
    folder = RunFolder(tmp_path)
    dynamics = EpochDynamics(np.zeros(2, np.float32), np.zeros(2, np.int32), np.ones(2, np.float32))
    (tmp_path / "dynamics").write_text("a file in the place of the folder")
    folder.write_dynamics(1, dynamics, is_synced=False)
    with pytest.raises(ImaeError, match=r"epoch-00001\.npz: cannot be written"):
        folder.sync()


def test_dynamics_are_written_before_another_process_may_hold_the_folder(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    dynamics = EpochDynamics(np.zeros(2, np.float32), np.zeros(2, np.int32), np.ones(2, np.float32))
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(0.2))
    with folder.lock():
        folder.write_dynamics(1, dynamics, is_synced=False)
    assert (tmp_path / "run" / "dynamics" / "epoch-00001.npz").exists()
