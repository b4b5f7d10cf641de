"""One thread for every test: results must not depend on the machine's cores.

The libraries under numpy take as many as there are, and two test processes then take turns: what
needs half a second alone needed half a minute.
"""

import os
import sys

# Where it is set, every process that a test starts would compile the package anew, and so would
# both processes of the tests with the tests themselves.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"  # read when numpy and torch are loaded

import importlib.util  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import IO  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

# Processes are killed in tests, the machine is not: nothing has to reach the disk. What is synced
# is counted in tests/records/test_whole_file.py.
os.fsync = lambda handle: None  # noqa: ARG005

# ``make slow`` tries many more.
hypothesis.settings.register_profile("quick", max_examples=30)
hypothesis.settings.register_profile("thorough", max_examples=500)
hypothesis.settings.load_profile("quick")

# These pages mix Python with commands; tests/test_pages.py runs both in their order.
collect_ignore_glob = ["docs/tutorials/*.md", "docs/start/*.md", "README.md"]
# Packages that only ``make slow`` installs: what needs them runs there.
_SLOW_TO_INSTALL = {"jax": "jax", "transformers": "transformers", "lightning": "pytorch_lightning"}
_NEEDING = {
    str(Path(__file__).parent / place / f"{name}{suffix}"): package
    for name, package in _SLOW_TO_INSTALL.items()
    for place, suffix in (("src/imae/integrations", ".py"), ("docs/integrations", ".md"))
}
collect_ignore = [
    path for path, package in _NEEDING.items() if importlib.util.find_spec(package) is None
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the examples of these modules and pages as slow."""
    for item in items:
        if str(item.path) in _NEEDING:
            item.add_marker(pytest.mark.slow)
            # Lightning is not up to date with torch.
            item.add_marker(pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"))


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not drawn, which takes longest; tests of figures draw them."""
    from matplotlib.figure import Figure

    def savefig(figure: Figure, file: IO[bytes], *, format: str, **options: object) -> None:  # noqa: ARG001
        file.write(format.encode())

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """For tests that follow one which changed it."""
    torch.set_num_threads(1)
