"""Trains, and dies of kill -9 inside a save.

Run by a test with ``runpy`` in a process of its own. The test gives CONFIG; MOMENT, where in the
writing of a file; SUFFIX, which of the two files of a checkpoint; and NUMBER, which save.
"""

import io
import os
import signal
import tempfile

from imae.train import train


def die_if(moment):
    if is_armed and moment == MOMENT:  # noqa: F821 - given by the test
        os.kill(os.getpid(), signal.SIGKILL)


class Half(io.BufferedWriter):
    def write(self, content):
        if is_armed and MOMENT == "half written":  # noqa: F821
            super().write(bytes(content)[: len(content) // 2])
            self.flush()
        die_if("half written")
        return super().write(content)


def mkstemp(*, prefix, suffix, dir):
    global is_armed, saves
    made = original["mkstemp"](prefix=prefix, suffix=suffix, dir=dir)
    is_asked = dir.name == "checkpoints" and prefix.endswith(f"{SUFFIX}.")  # noqa: F821
    saves += is_asked
    is_armed = is_asked and saves == NUMBER  # noqa: F821
    die_if("created")
    return made


def fsync(handle):
    die_if("not synced")
    original["fsync"](handle)


def replace(source, target):
    die_if("not renamed")
    original["replace"](source, target)
    die_if("renamed")


saves = 0
is_armed = False
original = {"mkstemp": tempfile.mkstemp, "fsync": os.fsync, "replace": os.replace}
if __name__ == "__main__":
    tempfile.mkstemp, os.fsync, os.replace = mkstemp, fsync, replace
    os.fdopen = lambda handle, mode: Half(io.FileIO(handle, mode))
    train(CONFIG)  # noqa: F821
