import importlib

import numpy as np
import pytest
import torch

from imae.curves import CURVES
from imae.errors import ArgumentError, ImaeError
from imae.methods import METHODS
from imae.records import RunFolder
from imae.train import train
from imae.train.launch import is_worker, started_as
from imae.train.processes import is_lost_process_error, start_processes


def test_a_process_of_torchrun_knows_what_it_is(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert not is_worker()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_worker()
    assert started_as() == {}
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert started_as() == {"devices": 2, "nodes": 3}


def test_what_a_process_says_is_what_is_said(configure):
    config = configure(machine={"devices": 2}, train={"batch_size": 66})
    with pytest.raises(ImaeError, match="66 is more than the 65 rows"):
        train(config)


def test_a_process_that_ends_without_a_message_is_named(configure, tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text("import os\ndef leave(*_, **__): os._exit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)  # which other processes take over
    leave = importlib.import_module("leaving").leave
    config = configure(machine={"devices": 2})
    with pytest.raises(ImaeError, match=r"process 0 of 2 ended without a message \(exit code 9\)"):
        start_processes(leave, config, tmp_path)


def test_a_folder_in_use_is_reported_by_the_first_only(configure, capfd):
    config = configure(machine={"devices": 2})
    with (
        RunFolder(config.out).lock(),
        pytest.raises(ImaeError, match="another process is training in this folder"),
    ):
        train(config)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        ("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1", True),
        ("shape '[3]' is invalid for input of size 4", False),
    ],
)
def test_a_lost_process_is_distinguished_from_a_mistake(message, is_lost):
    assert is_lost_process_error(RuntimeError(message)) == is_lost
    assert is_lost_process_error(torch.distributed.DistNetworkError("timed out"))


def test_several_machines_are_started_with_torchrun(configure):
    with pytest.raises(ArgumentError, match="torchrun --nnodes M"):
        train(configure(machine={"nodes": 2, "devices": 2}))


@pytest.mark.parametrize("start", ["imae", "torchrun"])
def test_balanced_batches_take_one_process(configure, monkeypatch, start):
    machine = {"devices": 2}
    if start == "torchrun":
        machine = {}
        for name, value in {"LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
            monkeypatch.setenv(name, str(value))
    config = configure(machine=machine, data={"balanced": 5}, train={"batch_size": 10})
    with pytest.raises(ArgumentError, match=r"^data\.balanced: .*, machine\.devices=1$"):
        train(config)


def trained_by_two(configure, name):
    run = train(
        configure(
            method={"name": name},
            model={"name": "mlp", "arguments": {"hidden": 8}},
            train={"epochs": 5, "batch_size": 20},
            data={"trusted": 6} if name == "l2rw" else {},
            machine={"devices": 2},
        )
    )
    folder = RunFolder(run.path)
    assert folder.epochs() == [1, 2, 3, 4, 5]
    for epoch in folder.epochs():
        seen = folder.dynamics(epoch)
        assert not np.isnan(seen.margin).any()
        assert (seen.predicted >= 0).all()
    return run


def test_a_memory_by_row_is_complete_over_two_processes(configure):
    assert trained_by_two(configure, "elr").result["final"]["step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS.names() if name not in CURVES])
def test_every_method_with_a_state_trains_over_two_processes(configure, name):
    both = trained_by_two(configure, name)
    alone = train(
        configure(
            **{
                section: both.config.model_dump(mode="json")[section]
                for section in ("method", "model", "train", "data")
            },
            out=str(both.path.with_name("alone")),
        )
    )
    # The network has batch normalisation, whose statistics are each process's own.
    for ours, theirs in zip(both.history, alone.history, strict=True):
        assert ours["step"] == theirs["step"]
    assert both.history[0]["train_loss"] == pytest.approx(alone.history[0]["train_loss"], rel=0.2)
