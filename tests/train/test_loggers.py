import csv
import sys
import types

import pytest

from imae.errors import MissingExtraError
from imae.records import RunFolder
from imae.train.display import build_loggers

ROW = {"step": 3, "seconds": 1.5, "test_accuracy": None}


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.append_history({**ROW, "step": 1})
    folder.append_history(ROW)
    return folder


def test_csv_is_the_history(run):
    (logger,) = build_loggers(("csv",), run, 0)
    logger.log(ROW)
    logger.log(ROW)  # again, as after a resume
    logger.close()
    with (run.path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "3"]
    assert rows[0]["test_accuracy"] == ""


def test_tensorboard_gets_every_number(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (logger,) = build_loggers(("tensorboard",), run, 0)
    logger.log(ROW)
    logger.close()
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["seconds"]
    assert [(each.step, each.value) for each in events.Scalars("seconds")] == [(3, 1.5)]


def test_wandb_and_mlflow_get_every_number(run, monkeypatch):
    sent = []
    remote = types.SimpleNamespace(
        id="abc",
        log=lambda numbers, step: sent.append(("wandb", numbers, step)),
        finish=lambda: sent.append("finish"),
    )
    wandb = types.ModuleType("wandb")
    wandb.init = lambda **options: sent.append((options["name"], options["id"])) or remote
    mlflow = types.ModuleType("mlflow")
    started = types.SimpleNamespace(info=types.SimpleNamespace(run_id="def"))
    mlflow.start_run = lambda run_id, run_name: sent.append((run_name, run_id)) or started
    mlflow.log_metrics = lambda numbers, step: sent.append(("mlflow", numbers, step))
    mlflow.end_run = lambda: sent.append("end")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    numbers = {"seconds": 1.5}
    logged = [("wandb", numbers, 3), "finish", ("mlflow", numbers, 3), "end"]
    # First the services name the run; a resume continues under that name.
    for begun in ([("run", None), ("run", None)], [("run", "abc"), (None, "def")]):
        for logger in build_loggers(("wandb", "mlflow"), run, 0):
            logger.log(ROW)
            logger.close()
        assert sent == begun + logged
        sent.clear()


@pytest.mark.slow
def test_mlflow_itself_continues_the_same_run(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs imae[services]")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    for step in (3, 4):
        (logger,) = build_loggers(("mlflow",), run, 0)
        logger.log({**ROW, "step": step})
        logger.close()
    client = mlflow.MlflowClient()
    (found,) = client.search_runs(["0"])
    assert found.info.run_name == "run"
    history = client.get_metric_history(found.info.run_id, "seconds")
    assert [(metric.step, metric.value) for metric in history] == [(3, 1.5), (4, 1.5)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own
def test_wandb_itself_continues_the_same_run(run, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs imae[services]")
    monkeypatch.chdir(tmp_path)  # where it writes what it would send
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for step in (3, 4):
        (logger,) = build_loggers(("wandb",), run, 0)
        logger.log({**ROW, "step": step})
        logger.close()
    written = [path.stem for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")]
    identity = (run.path / "wandb-id.txt").read_text().strip()
    assert written == [f"run-{identity}"] * 2


def test_a_missing_package_names_the_command(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"pip install wandb$"):
        build_loggers(("wandb",), run, 0)
