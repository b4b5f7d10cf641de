"""In one process the parts are the whole; tests of whole runs divide them between two."""

import copy

import pytest
import torch
from torch import nn

from imae.methods.catalog import METHODS
from imae.models import build
from imae.train.learner import Learner, outputs_of_call
from imae.train.machine import (
    clip_gradients,
    divided,
    divided_optimizer,
    shard,
    shard_learner,
    whole,
)


@pytest.fixture
def mesh(tmp_path):
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    torch.distributed.destroy_process_group()


@pytest.fixture
def network():
    return build("mlp", num_classes=3, seed=1, in_features=4, hidden=5)


def is_part(tensor):
    from torch.distributed.tensor import DTensor  # its import takes a second of collection

    return isinstance(tensor, DTensor)


def is_divided(module):
    return {is_part(each) for each in module.parameters()}


def test_networks_are_divided_and_methods_are_not(mesh, network):
    method = METHODS.build("cce")
    method.own = nn.Parameter(torch.ones(2))
    learner = shard_learner(Learner((network,), method, sharded=True), mesh)
    assert is_divided(learner.networks) == {True}
    assert is_divided(learner.method) == {False}


def test_a_divided_network_computes_the_same_and_is_divided_between_passes(mesh, network):
    inputs = torch.arange(8.0).view(2, 4) / 8
    features, logits = (each.detach() for each in network.features_and_logits(inputs))
    gradients = torch.autograd.grad(network(inputs).square().sum(), list(network.parameters()))
    shard(network, mesh)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            found = outputs_of_call(network, inputs)
        assert found[0].detach().equal(features)
        assert found[1].detach().equal(logits)
        assert is_divided(network) == {True}
    network(inputs).square().sum().backward()
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


def test_a_list_of_modules_is_not_a_separate_part(mesh):
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

        def forward(self, inputs):
            return self.parts[1](self.parts[0](inputs))

    listed = Listed()
    shard(listed, mesh)
    assert is_divided(listed) == {True}
    assert listed(torch.ones(1, 2)).shape == (1, 2)


def test_what_is_made_whole_can_be_divided_again(mesh, network):
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    shard(network, mesh)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    content = whole({"networks": network.state_dict(), "list": [1, {"a": None}]})
    content = copy.deepcopy(content)  # the only part is the whole itself
    assert content["list"] == [1, {"a": None}]
    assert all(type(tensor) is torch.Tensor for tensor in content["networks"].values())
    network(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    after = whole(network.state_dict())
    kept = copy.deepcopy(whole(optimizer.state_dict()))
    assert not all(after[name].equal(before[name]) for name in before)
    network.load_state_dict(divided(content["networks"], network.state_dict()))
    assert all(tensor.equal(before[name]) for name, tensor in whole(network.state_dict()).items())
    other = torch.optim.Adam(network.parameters(), lr=0.1)
    other.load_state_dict(divided_optimizer(kept, other))
    again = whole(other.state_dict())
    assert again["state"].keys() == kept["state"].keys()
    for index, values in kept["state"].items():
        for name, tensor in values.items():
            assert again["state"][index][name].equal(tensor)
    assert is_part(other.state[next(network.parameters())]["exp_avg"])


@pytest.mark.parametrize(("limit", "expected"), [(2.5, 2.5), (5.0, 5.0), (7.0, 5.0)])
def test_gradients_are_clipped_over_divided_and_whole_ones(mesh, limit, expected):
    linear = nn.Linear(1, 1, bias=False)
    plain = nn.Parameter(torch.ones(1))
    shard(linear, mesh)
    (3 * linear(torch.ones(1, 1)).sum() + 4 * plain.sum()).backward()
    clip_gradients([linear.weight, plain, nn.Parameter(torch.ones(1))], limit)
    norm = (linear.weight.grad.full_tensor() ** 2 + plain.grad**2).sum().sqrt()
    assert float(norm) == pytest.approx(expected, rel=1e-5)
    assert float(plain.grad) == pytest.approx(0.8 * expected, rel=1e-5)
