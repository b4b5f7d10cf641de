import importlib
import os
import signal

import pytest

from imae.errors import ImaeError
from imae.train import processes
from imae.train.processes import fresh_context, fresh_process, start


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Asks a process of its own: answer("name") is what that function of it says."""
    (tmp_path / "asked.py").write_text(
        "import os, signal, sys\n"
        "def place(queue): queue.put(os.environ.get('IMAE_PLACE'))\n"
        "def folder(queue): queue.put(os.getcwd())\n"
        "def number(queue): queue.put(os.getpid())\n"
        "def parent(queue): queue.put((os.getppid(), 'sklearn.datasets' in sys.modules))\n"
        "def mask(queue): queue.put(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "def press(_):\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)  # which other processes take over
    module = importlib.import_module("asked")

    def ask(name, code=0):
        queue = fresh_context().SimpleQueue()
        process = fresh_process(getattr(module, name), queue)
        start(process)
        process.join()
        assert process.exitcode == code
        return None if code else queue.get()

    return ask


def test_each_has_the_environment_and_folder_of_its_moment(answer, tmp_path, monkeypatch):
    for place in ("one", "another"):
        monkeypatch.setenv("IMAE_PLACE", place)
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        assert answer("place") == place
        assert answer("folder") == str(tmp_path / place)
    monkeypatch.delenv("IMAE_PLACE")
    assert answer("place") is None


def test_each_is_a_process_of_its_own_and_all_come_from_one_that_has_loaded_much(answer):
    assert len({os.getpid(), answer("number"), answer("number")}) == 3
    first, again = answer("parent"), answer("parent")
    assert first == again
    assert first[0] != os.getpid()
    assert first[1]


def blocked_signals():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_ctrl_c_waits_while_a_process_is_started_and_loads_modules(answer):
    seen = []
    process = Starting(0)
    process.start = lambda: seen.append(blocked_signals())
    start(process)
    assert signal.SIGINT in seen[0]
    assert signal.SIGINT not in blocked_signals()
    assert signal.SIGINT not in answer("mask")  # it can be stopped


def test_ctrl_c_ends_a_process_without_a_traceback(answer):
    answer("press", code=130)


class Starting:
    """A process that can be started only after so many attempts."""

    def __init__(self, failures, error=EOFError):
        self.left, self.error = failures, error

    def start(self):
        if self.left:
            self.left -= 1
            raise self.error


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(processes, "_PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("error", [EOFError, ConnectionResetError, ConnectionRefusedError])
@pytest.mark.parametrize("failures", [1, 3])  # the end of a large process takes a moment
def test_a_start_that_meets_the_end_of_the_server_is_tried_again(failures, error):
    process = Starting(failures, error)
    start(process)
    assert process.left == 0


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(("failures", "error"), [(4, EOFError), (1, BlockingIOError(11, "limit"))])
def test_a_process_that_cannot_be_started_is_one_line(failures, error):
    with pytest.raises(ImaeError, match=r"could not be started \((EOFError|.*limit)\)"):
        start(Starting(failures, error))
