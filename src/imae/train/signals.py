"""Ctrl-C and SIGTERM: the run saves, leaves, and can go on."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from imae.errors import ImaeError


class Stopped(ImaeError):  # noqa: N818 - it is no error
    """A run was asked to stop, has saved and can be resumed.

    Args:
        message: One line that says how to go on.
        code: Exit code of the command: 130 after Ctrl-C, 143 after SIGTERM.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message


class StopRequest:
    """Whether a signal has asked the run to stop, and which."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def code(self) -> int:
        """Exit code that shells expect for the signal."""
        return 128 + self.signal

    def take(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Notes a signal; a second Ctrl-C does not wait for the run to save."""
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Notes Ctrl-C and SIGTERM instead of being ended by them, for as long as the block runs."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python takes signals in its main thread only
        return
    before = {
        number: signal.signal(number, request.take) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
