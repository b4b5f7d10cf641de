"""The command line: ``main`` loads the rest of it."""

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

_STOPPED = "imae: stopped"
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_LOADER = "<frozen importlib._bootstrap>"  # in the frames of whatever is being imported


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; see ``imae.cli.app.main``.

    Loading modules takes longer than many commands do, and Ctrl-C may come meanwhile.
    """
    if arguments is None:
        # As it ends Python searches all objects for cycles: 0.6 s with torch and its compiler.
        atexit.register(gc.freeze)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not in the main thread, where signals arrive
            signal.signal(signal.SIGINT, _interrupt)
    try:
        try:
            from imae.cli import app
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("typer", "rich"):
                raise
            print("imae: the command line needs: pip install 'imae[cli]'", file=sys.stderr)
            return 2
        with _any_character():
            return app.main(arguments)
    except KeyboardInterrupt:
        print(_STOPPED, file=sys.stderr)
        return INTERRUPTED
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Ends the program if it is loading modules, else raises KeyboardInterrupt.

    While torch is loaded an exception can be lost in a callback, so that the command goes on, or
    abort the process.
    """
    while frame is not None:
        if frame.f_code.co_filename == _LOADER:
            os.write(2, f"{_STOPPED}\n".encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


@contextlib.contextmanager
def _any_character() -> Iterator[None]:
    """Writes what the output cannot encode as an escape: a class may be called 東京 anywhere."""
    output = sys.stdout
    if not isinstance(output, io.TextIOWrapper) or output.errors not in (
        "strict",
        "surrogateescape",  # in the locale C
    ):
        yield
        return
    before = output.errors
    output.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if not output.closed:
            output.reconfigure(errors=before)
