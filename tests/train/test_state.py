import torch

from imae.data import Batch
from imae.train.display import QuietDisplay
from imae.train.loop import train_step
from imae.train.setup import build_fabric, setup
from imae.train.signals import StopRequest


def started(configure, **sections):
    config = configure(**sections)
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    state.learner.train()
    return state


def advance(state, steps):
    for batch in state.batches.epoch(0, start_step=state.step):
        assert isinstance(batch, Batch)
        train_step(state, batch, StopRequest())
        steps -= 1
        if steps == 0:
            return


def test_what_is_captured_is_restored(configure):
    whole = started(configure, train={"average": 0.5})
    advance(whole, 4)
    half = started(configure, train={"average": 0.5})
    advance(half, 2)
    content = half.capture()
    content["networks"] = {name: each.clone() for name, each in content["networks"].items()}
    other = started(configure, train={"average": 0.5}, seed=5)
    other.restore(content)
    assert other.step == 2
    assert other.elapsed() >= content["seconds"]
    advance(other, 2)
    for ours, theirs in (
        (other.learner.networks, whole.learner.networks),
        (other.average.network, whole.average.network),
    ):
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], tensor), name
    assert torch.equal(other.dynamics.state(), whole.dynamics.state())
    assert torch.equal(other.loss, whole.loss)
    assert other.network is other.average.network


def test_one_process_is_first_and_its_own_total(configure):
    state = started(configure)
    assert state.is_first
    assert state.network is state.learner.network
    assert state.scaler() is None
    tensor = torch.ones(2)
    assert state.ranks.total(tensor) is tensor
