import functools

import numpy as np
import pytest
import torch

from imae._draws import derive_seed
from imae.data import Batch
from imae.losses import label_smoothing_loss
from imae.methods import METHODS, LossMethod, Restart
from imae.train import train
from imae.train.display import QuietDisplay
from imae.train.loop import cosine, fit, train_step
from imae.train.machine import build_fabric
from imae.train.processes import StopRequest
from imae.train.setup import build_network, setup


def started(configure, **sections):
    config = configure(model={"name": "mlp"}, **sections)
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    state.learner.train()
    return state


def first_batch(state):
    return next(iter(state.batches.epoch(0)))


def test_a_step_is_that_of_a_plain_loop(configure):
    sections = {"method": {"name": "cce"}, "optimizer": {"name": "momentum", "lr": 0.1}}
    state = started(configure, **sections, schedule={"name": "constant"})
    plain = started(configure, **sections).learner.network
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for batch in state.batches.epoch(0):
        assert train_step(state, batch, StopRequest()) is False
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(plain(batch.inputs), batch.target).backward()
        optimizer.step()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(state.network.state_dict()[name], tensor)
    assert state.step == 5


def test_the_weight_of_each_row_is_measured(configure):
    state = started(configure, method={"name": "imae", "arguments": {"T": 8}})
    batch = first_batch(state)
    with torch.no_grad():
        p = state.network(batch.inputs).softmax(1).gather(1, batch.target[:, None]).squeeze(1)
    train_step(state, batch, StopRequest())
    weight = state.dynamics.state()[2, batch.row]
    torch.testing.assert_close(weight, torch.exp(8 * p * (1 - p)), rtol=1e-4, atol=1e-4)


def test_row_weights_make_a_weighted_mean(configure):
    state = started(configure, method={"name": "cce"}, optimizer={"name": "sgd", "lr": 1.0})
    other = started(configure, method={"name": "cce"}, optimizer={"name": "sgd", "lr": 1.0})
    batch = first_batch(state)
    half = Batch(batch.inputs[:8], batch.target[:8], batch.row[:8], None)
    silent = torch.cat([torch.full((8,), 2.0), torch.zeros(8)])
    train_step(state, Batch(batch.inputs, batch.target, batch.row, silent), StopRequest())
    train_step(other, half, StopRequest())
    for name, tensor in other.network.state_dict().items():
        torch.testing.assert_close(state.network.state_dict()[name], tensor)
    assert state.loss[1] == 16


def test_a_request_to_stop_is_passed_on(configure):
    state = started(configure)
    request = StopRequest()
    request.take(15)
    assert train_step(state, first_batch(state), request) is True


def test_gradients_are_clipped(configure):
    state = started(
        configure,
        method={"name": "cce"},
        optimizer={"name": "sgd", "lr": 1.0, "weight_decay": 0},
        train={"clip": 0.01},
    )
    before = [each.detach().clone() for each in state.network.parameters()]
    train_step(state, first_batch(state), StopRequest())
    moved = [
        new.detach() - old for new, old in zip(state.network.parameters(), before, strict=True)
    ]
    length = torch.sqrt(sum((each**2).sum() for each in moved))
    assert float(length) == pytest.approx(0.01, rel=1e-3)


def test_a_few_rows_can_be_memorised(configure):
    run = train(
        configure(
            method={"name": "cce"},
            data={"hold_out": 0.5, "augment": False},
            train={"epochs": 60, "evaluate_every": 1000, "checkpoint_every": 1000},
            model={"name": "mlp"},
        )
    )
    assert run.result["final"]["noisy_accuracy"] == 1
    assert run.result["final"]["clean_accuracy"] == 1


@pytest.mark.parametrize("precision", ["bf16-mixed"])
def test_half_precision_trains_and_measures(configure, precision):
    run = train(configure(machine={"precision": precision}, train={"epochs": 2}))
    dynamics = run.folder.dynamics(2)
    assert np.isfinite(dynamics.weight).all()
    assert run.result["final"]["test_accuracy"] > 0.3


def test_dropout_of_a_network_of_ones_own_is_reproducible(configure, tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(
        "from torch import nn\n"
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runs = [
        train(configure(model={"name": "own_network:build"}, out=str(tmp_path / name), seed=3))
        for name in ("a", "b")
    ]
    assert runs[0].load_model()(torch.zeros(1, 36)).shape == (1, 3)  # its name was given above
    assert (
        runs[0].folder.dynamics(2).margin.tobytes() == runs[1].folder.dynamics(2).margin.tobytes()
    )


class _TwoStages(LossMethod):
    """Cross entropy that starts again at the second epoch."""

    def restart(self):
        return Restart(1, is_rate_constant=self.is_rate_constant)


@pytest.mark.parametrize("is_rate_constant", [True, False])
def test_a_second_stage_begins_as_a_run_does(configure, monkeypatch, is_rate_constant):
    monkeypatch.setattr(_TwoStages, "is_rate_constant", is_rate_constant, raising=False)
    monkeypatch.setattr(
        METHODS, "build", lambda *_, **__: _TwoStages(functools.partial(label_smoothing_loss))
    )
    state = started(configure, train={"epochs": 3, "average": 0.5}, schedule={"name": "cosine"})
    first = [each.detach().clone() for each in state.network.parameters()]
    rates, starts = [], []

    class Journal:
        def advanced(self, state):
            rates.append(state.optimizer.param_groups[0]["lr"])

        def unheard(self, *_): ...

        dynamics = evaluation = checkpoint = growth = is_checkpoint_due = unheard

    def start_epoch(_):
        starts.append(next(state.learner.parameters()).detach().clone())

    monkeypatch.setattr(state.method, "start_epoch", start_epoch)
    fit(state, Journal())
    assert rates[5] == 0.05
    assert rates[5:] == [pytest.approx(0.05 * cosine(step / 10, 1, 0)) for step in range(10)]
    if is_rate_constant:
        assert rates[:5] == [0.05] * 5
    else:
        assert rates[:5] == [pytest.approx(0.05 * cosine(step / 5, 1, 0)) for step in range(5)]
    seed = derive_seed(state.config.seed, "network", 1)
    fresh = build_network(state.config, state.prepared.train, seed=seed)
    assert torch.equal(starts[0], first[0])
    assert torch.equal(starts[1], next(fresh.parameters()))
