import signal
import threading

import pytest

from imae.errors import ImaeError
from imae.train.processes import Stopped, stop_requests


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_noted_and_the_handler_put_back(number, code):
    before = signal.getsignal(number)
    with stop_requests() as request:
        assert request.signal == 0
        signal.raise_signal(number)
        assert (request.signal, request.code) == (number, code)
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait():
    with stop_requests() as request:
        request.take(signal.SIGINT)
        request.take(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_other_threads_take_no_signals():
    seen = []

    def work():
        with stop_requests() as request:
            seen.append(request.signal)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]


def test_stopped_is_one_of_ours_and_travels_between_processes():
    import pickle

    stopped = pickle.loads(pickle.dumps(Stopped("continue", 143)))
    assert isinstance(stopped, ImaeError)
    assert (str(stopped), stopped.code) == ("continue", 143)
