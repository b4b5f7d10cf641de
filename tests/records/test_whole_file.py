import os
import signal
import subprocess
import sys

import pytest

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
