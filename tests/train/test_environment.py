import json
import subprocess
from pathlib import Path

import pytest
import torch

import imae
from imae.train.machine import describe, pinned


def test_it_says_what_a_run_ran_on():
    env = describe(torch.device("cpu"), threads=3)
    assert env["torch"] == torch.__version__
    assert env["threads"] == 3
    assert env["device"] == "cpu"
    assert env["cpu"]
    assert set(env) >= {"python", "numpy", "imae", "commit", "platform", "started"}
    json.dumps(env, allow_nan=False)


def test_outside_of_a_repository_there_is_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert describe(torch.device("cpu"), threads=1)["commit"] is None


def test_pinned_puts_everything_back():
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    with pinned(1, torch.device("cpu")):
        assert torch.get_num_threads() == 1
        torch.manual_seed(99)
        torch.rand(3)
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("root", "commit"), [(Path(imae.__file__).parents[2], "1234"), (Path("/home/me/project"), None)]
)
def test_the_commit_of_a_repository_of_the_user_is_not_recorded(monkeypatch, root, commit):
    done = subprocess.CompletedProcess([], 0, stdout=f"{root}\n1234\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert describe(torch.device("cpu"), threads=1)["commit"] == commit
