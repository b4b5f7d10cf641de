import io

import pytest
import torch

from imae.curves import CURVES
from imae.data import Batch
from imae.methods import METHODS
from imae.train.display import QuietDisplay
from imae.train.loop import fit, train_step
from imae.train.machine import build_fabric
from imae.train.processes import StopRequest
from imae.train.setup import setup


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
        (other.average.module, whole.average.module),
    ):
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], tensor), name
    assert torch.equal(other.dynamics.state(), whole.dynamics.state())
    assert torch.equal(other.loss, whole.loss)
    assert other.network is other.average.module


def test_one_process_is_first_and_its_own_total(configure):
    state = started(configure)
    assert state.is_first
    assert state.network is state.learner.network
    assert state.scaler() is None
    tensor = torch.ones(2)
    assert state.ranks.total(tensor) is tensor


class _Halt(Exception):  # noqa: N818 - it is no error
    """Ends a run where a checkpoint would be."""


class _Journal:
    """Writes nothing, and halts after a step if it is told to."""

    def __init__(self, halt_at=None):
        self.halt_at = halt_at

    def advanced(self, state):
        if state.step == self.halt_at:
            raise _Halt

    def unheard(self, *_): ...

    dynamics = evaluation = checkpoint = growth = is_checkpoint_due = unheard


# One curve stands for all: they have no state.
STATEFUL = ["imae_stable", *(name for name in METHODS.names() if name not in CURVES)]


@pytest.mark.parametrize("halt_at", [13, 15], ids=["within an epoch", "at its end"])
@pytest.mark.parametrize("name", [*dict.fromkeys([*STATEFUL, "truncated_gce"])])
def test_every_method_resumes_bit_for_bit(configure, name, halt_at):
    sections = {
        "method": {"name": name},
        "model": {"name": "mlp", "arguments": {"hidden": 8}},
        "train": {"epochs": 6},
        "data": {"trusted": 6} if name == "l2rw" else {},
    }
    whole = started(configure, **sections)
    fit(whole, _Journal())
    half = started(configure, **sections)
    with pytest.raises(_Halt):
        fit(half, _Journal(halt_at))
    file = io.BytesIO()
    torch.save(half.capture(), file)
    file.seek(0)
    other = started(configure, **sections)
    other.restore(torch.load(file, weights_only=True))
    fit(other, _Journal())
    assert other.step == whole.step
    networks = other.learner.networks.state_dict(), whole.learner.networks.state_dict()
    torch.testing.assert_close(*networks, rtol=0, atol=0)
    methods = other.method.state_dict(), whole.method.state_dict()
    torch.testing.assert_close(*methods, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(other.dynamics.state(), whole.dynamics.state())
