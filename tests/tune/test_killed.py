"""A search whose process is killed at random moments, alone or as one of two workers."""

import functools
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from imae.train.processes import fresh_process, start
from imae.tune import tune
from imae.tune.study import _storage, distinct

optuna = pytest.importorskip("optuna")


@pytest.fixture
def options(config):
    """The arguments of a search: options(out, trials=8)."""
    longer = config | {"train": {"epochs": 10, "batch_size": 32}}
    return lambda out, **further: {"config": longer, "out": str(out), **further}


def finished(url):
    """Parameters, value and state of every trial that counts, as the database has them."""
    storage = _storage(url, is_shared=False)
    try:
        study = optuna.load_study(study_name="imae", storage=storage)
        return [(each.params, each.value, each.state.name) for each in distinct(study)]
    except KeyError:  # the study has not been made yet
        return []
    finally:
        storage.remove_session()
        storage.engine.dispose()


@pytest.mark.slow
def test_twenty_kills_lose_and_double_no_finished_trial(options, tmp_path):
    whole = tune(**options(tmp_path / "whole", trials=15))
    draw = random.Random(3)
    url = f"sqlite:///{tmp_path / 'search' / 'search.db'}"
    before = []
    for _ in range(20):
        child = started(options(tmp_path / "search", trials=15))
        time.sleep(draw.uniform(0.0, 4.0))
        child.kill()
        child.join()
        if (tmp_path / "search" / "search.db").exists():
            now = finished(url)
            assert now[: len(before)] == before
            before = now
    again = tune(**options(tmp_path / "search", trials=15))
    tried = [(dict(each.settings), each.accuracy) for each in again.trials]
    assert tried == [(dict(each.settings), each.accuracy) for each in whole.trials]
    assert len(tried) == 15


@pytest.fixture
def database():
    """The address of a PostgreSQL server that runs while the test does."""
    folders = (
        sorted(os.listdir("/usr/lib/postgresql")) if os.path.isdir("/usr/lib/postgresql") else []
    )
    found = [f"/usr/lib/postgresql/{each}/bin" for each in folders]
    if not found and shutil.which("initdb") is None:
        pytest.skip("needs a PostgreSQL server, such as Debian's package postgresql")
    programs = found[-1] if found else os.path.dirname(shutil.which("initdb"))
    place = Path(tempfile.mkdtemp(prefix="imae-database-"))
    as_user = []
    if os.getuid() == 0:  # the server refuses to run as root, and may not enter pytest's folders
        shutil.chown(place, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]

    def run(*command):
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=place)

    data, port = str(place / "data"), str(random.Random(time.time_ns()).randrange(20000, 50000))
    run(f"{programs}/initdb", "-D", data, "-U", "ann", "--auth=trust")
    flags = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(f"{programs}/pg_ctl", "-D", data, "-w", "-o", flags, "-l", f"{place}/log", "start")
    try:
        run(f"{programs}/createdb", "-h", "127.0.0.1", "-p", port, "-U", "ann", "trials")
        yield f"postgresql://ann@127.0.0.1:{port}/trials"
    finally:
        run(f"{programs}/pg_ctl", "-D", data, "-m", "immediate", "-t", "120", "stop")
        shutil.rmtree(place)


# Of a connection that optuna's thread, which shows signs of life, leaves open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_two_workers_share_a_database_and_one_may_be_killed(
    options, tmp_path, database, monkeypatch
):
    monkeypatch.setattr("imae.tune.study._HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr("imae.tune.study._STALE_SECONDS", 10)
    shared = {"trials": 8, "storage": database}
    worker = started(options(tmp_path / "other", **shared))
    deadline = time.monotonic() + 300
    while not (before := finished(database)) and time.monotonic() < deadline:
        time.sleep(0.5)  # until the other has done something
    worker.kill()
    worker.join()
    before = finished(database)
    assert before
    outcome = tune(**options(tmp_path / "mine", **shared))
    after = finished(database)
    assert after[: len(before)] == before
    assert len(after) == len(outcome.trials) == 8


@pytest.mark.slow
def test_two_workers_at_once_do_each_trial_once(options, tmp_path, database):
    workers = [started(options(tmp_path / name, trials=8, storage=database)) for name in "ab"]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(finished(database)) == 8
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in "ab"]
    assert results[0] == results[1]  # both end with the trials of both
    folders = [len(list((tmp_path / name / "trials").iterdir())) for name in "ab"]
    assert sum(folders) <= 8


def started(given):
    """A process that searches."""
    child = fresh_process(functools.partial(tune, **given))
    start(child)
    return child
