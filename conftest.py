"""One thread for every test: results must not depend on the machine's cores.

The libraries under numpy take as many as there are, and two test processes then take turns: what
needs half a second alone needed half a minute.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"  # read when numpy and torch are loaded

import pytest  # noqa: E402
import torch  # noqa: E402

# These pages mix Python with commands; tests/test_pages.py runs both in their order.
collect_ignore_glob = ["docs/tutorials/*.md", "docs/start/*.md", "README.md"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """For tests that follow one which changed it."""
    torch.set_num_threads(1)
