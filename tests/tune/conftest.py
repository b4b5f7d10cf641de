import functools

import numpy as np
import pytest
import torch
from alembic.util import pyfiles
from sqlalchemy import event
from sqlalchemy.engine import Engine

from imae.tune import tune

CLASSES = 3

# Every new database reads the history of optuna's tables, a dozen scripts, three times.
pyfiles.load_module_py = functools.cache(pyfiles.load_module_py)


@event.listens_for(Engine, "connect")
def _unsynced(connection, _):
    """Processes are killed in tests, the machine is not: nothing has to reach the disk."""
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute("PRAGMA synchronous = OFF")


def make_rows(path, rows=90, seed=7):
    """A table of three classes that overlap a little; every seventh label is wrong."""
    generator = np.random.Generator(np.random.PCG64(seed))
    clean = np.arange(rows) % CLASSES
    x = generator.normal(size=(rows, 4)).astype(np.float32) + clean[:, None]
    given = np.where(np.arange(rows) % 7 == 0, (clean + 1) % CLASSES, clean)
    np.savez(path, x=x, y=given)
    np.savez(path.with_name("clean.npz"), x=x[:30] + 0.01, y=clean[:30])
    return path


@pytest.fixture
def rows(tmp_path):
    return make_rows(tmp_path / "rows.npz")


def small_config(rows):
    """The settings of a small search."""
    return {
        "data": {"name": str(rows), "hold_out": 0.3},
        "model": {"name": "linear"},
        "train": {"epochs": 3, "batch_size": 32},
        "machine": {"threads": 1, "accelerator": "cpu"},
        "seed": 5,
    }


def small_search(rows, folder):
    """A small search: search(trials=3), with settings and options replaced."""

    def run(settings=None, out="search", **options):
        return tune(small_config(rows) | (settings or {}), out=folder / out, **options)

    return run


@pytest.fixture
def config(rows):
    return small_config(rows)


@pytest.fixture
def search(rows, tmp_path):
    return small_search(rows, tmp_path)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A search of five trials that nothing disturbed; one of fewer is its beginning."""
    folder = tmp_path_factory.mktemp("whole")
    return small_search(make_rows(folder / "rows.npz"), folder)(trials=5)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
