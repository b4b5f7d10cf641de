"""A search whose process is killed at random moments, alone or as one of two workers."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from imae.tune import tune
from imae.tune.study import ended

optuna = pytest.importorskip("optuna")
WORKER = """
import json, sys
from imae.tune import tune
tune(**json.loads(sys.argv[1]))
"""


def options(rows, out, **further):
    content = {
        "data": {"name": str(rows), "hold_out": 0.3},
        "model": {"name": "linear"},
        "train": {"epochs": 10, "batch_size": 32},
        "machine": {"threads": 1, "accelerator": "cpu"},
        "seed": 5,
    }
    return {"config": content, "out": str(out), **further}


def finished(url):
    """Parameters, value and state of every trial that has ended, as the database has them."""
    storage = optuna.storages.RDBStorage(url)
    try:
        study = optuna.load_study(study_name="imae", storage=storage)
        return [(each.params, each.value, each.state.name) for each in ended(study)]
    except KeyError:  # the study has not been made yet
        return []
    finally:
        storage.remove_session()
        storage.engine.dispose()


@pytest.mark.slow
def test_twenty_kills_lose_and_double_no_finished_trial(rows, tmp_path):
    whole = tune(**options(rows, tmp_path / "whole", trials=15))
    draw = random.Random(3)
    url = f"sqlite:///{tmp_path / 'search' / 'search.db'}"
    before = []
    for _ in range(20):
        child = os.fork()
        if not child:
            try:
                tune(**options(rows, tmp_path / "search", trials=15))
            finally:
                os._exit(0)
        time.sleep(draw.uniform(0.0, 2.0))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if (tmp_path / "search" / "search.db").exists():
            now = finished(url)
            assert now[: len(before)] == before
            before = now
    again = tune(**options(rows, tmp_path / "search", trials=15))
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


@pytest.mark.slow
def test_two_workers_share_a_database_and_one_may_be_killed(rows, tmp_path, database, monkeypatch):
    import json

    monkeypatch.setattr("imae.tune.study._HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr("imae.tune.study._STALE_SECONDS", 5)
    shared = {"trials": 12, "storage": database}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, json.dumps(options(rows, tmp_path / "other", **shared))]
    )
    deadline = time.monotonic() + 120
    while not (before := finished(database)) and time.monotonic() < deadline:
        time.sleep(0.5)  # until the other has done something
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert before
    outcome = tune(**options(rows, tmp_path / "mine", **shared))
    after = finished(database)
    assert after[: len(before)] == before
    assert len(after) == 12
    assert len(outcome.trials) == 12


@pytest.mark.slow
def test_two_workers_at_once_do_each_trial_once(rows, tmp_path, database):
    import json

    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WORKER,
                json.dumps(options(rows, tmp_path / name, trials=10, storage=database)),
            ]
        )
        for name in ("one", "two")
    ]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    states = [state for _, _, state in finished(database)]
    assert len(states) == 10
    for name in ("one", "two"):  # both took part, and both end with the same result
        assert list((tmp_path / name / "trials").iterdir())
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert results[0] == results[1]
