"""A search that kills its own process at a chosen moment.

Run by a test with ``runpy`` in a process of its own. The test gives CONFIG, OUT and MOMENT: "in a
run", "before it is told" or "after it is told".
"""

import os
import signal

import torch

from imae.tune import search, tune


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    torch.set_num_threads(1)
    report, calls = search._Watch.measured, []

    def measured(self, row):
        report(self, row)
        calls.append(row)
        if len(calls) == 5:  # in the second trial, after its second epoch
            die()

    if MOMENT == "in a run":  # noqa: F821 - given by the test
        search._Watch.measured = measured
    elif MOMENT == "before it is told":  # noqa: F821
        search.Objective._measure = die
    say = die if MOMENT == "after it is told" else lambda _: None  # noqa: F821
    tune(CONFIG, out=OUT, trials=3, say=say)  # noqa: F821


if __name__ == "__main__":
    main()
