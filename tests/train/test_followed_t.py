"""T that follows the training: in the history, in checkpoints, and over several processes."""

import numpy as np
import pytest
import torch

from imae.methods.method import CurveMethod
from imae.train import resume, train
from imae.train import run as run_module
from imae.train.processes import Stopped
from imae.train.rows import prepare


def numbers(run):
    """The history without the times."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.history]


def test_the_history_has_t_and_a_resume_continues_it(configure, tmp_path, monkeypatch):
    method = {"name": "imae_capped"}
    whole = train(configure(method=method, train={"epochs": 4}, out=str(tmp_path / "whole")))
    followed = [row["T"] for row in whole.history]
    assert len(set(followed)) > 1
    assert all(0 <= T <= 16 for T in followed)

    config = configure(method=method, train={"epochs": 4}, out=str(tmp_path / "cut"))
    save = run_module.save_checkpoint

    def save_and_stop(folder, content, *, step, keep):
        save(folder, content, step=step, keep=keep)
        if len(list(folder.glob("*.pt"))) == 2:
            raise Stopped("stopped", 130)

    with monkeypatch.context() as patched:
        patched.setattr("imae.train.journal.save_checkpoint", save_and_stop)
        with pytest.raises(Stopped):
            train(config)
    assert numbers(resume(tmp_path / "cut")) == numbers(whole)


@pytest.mark.parametrize("is_own", [False, True])
def test_the_method_sees_the_held_out_rows_after_each_epoch(configure, arrays, monkeypatch, is_own):
    seen = []
    monkeypatch.setattr(CurveMethod, "see_held_out", lambda _, number: seen.append(number))
    if is_own:
        with np.load(arrays) as file:
            content = dict(file)
        content["split"] = np.where(
            np.arange(len(content["y"])) % 5 == 3, "validation", content["split"]
        )
        np.savez(arrays, **content)
    config = configure(method={"name": "imae_capped"}, train={"epochs": 2})
    run = train(config)
    prepared = prepare(run.config)
    assert prepared.is_held_out != is_own
    logits = run.load_model("final")(prepared.validation.inputs.batch(slice(None), generator=None))
    own = logits.gather(1, torch.from_numpy(prepared.validation.labels)[:, None])
    assert len(seen) == 2
    assert seen[-1].tolist() == (logits > own).sum(1).tolist()


def test_a_fixed_t_is_not_in_the_history(configure):
    run = train(configure(method={"name": "imae_capped", "arguments": {"T": 4.0}}))
    assert all("T" not in row for row in run.history)


@pytest.mark.slow
def test_t_is_the_same_in_one_process_and_in_two(configure, tmp_path):
    def followed(devices):
        config = configure(
            method={"name": "imae_capped"},
            machine={"devices": devices},
            train={"drop_last": True},
            out=str(tmp_path / str(devices)),
        )
        return [row["T"] for row in train(config).history]

    assert followed(2) == pytest.approx(followed(1), rel=1e-4)
