import pytest
import torch
from torch import nn

from imae.train.config import OptimizerConfig
from imae.train.loop import set_learning_rate
from imae.train.state import CaffeAdam, build_optimizer


@pytest.mark.parametrize(
    ("name", "kind", "momentum", "nesterov"),
    [
        ("sgd", torch.optim.SGD, 0.0, False),
        ("momentum", torch.optim.SGD, 0.8, False),
        ("nesterov", torch.optim.SGD, 0.8, True),
    ],
)
def test_each_name_is_the_optimiser_it_says(name, kind, momentum, nesterov):
    config = OptimizerConfig(name=name, momentum=0.8, weight_decay=0.1)
    optimizer = build_optimizer(config, nn.Linear(1, 1), nn.Identity())
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["momentum"], group["nesterov"]) == (momentum, nesterov)
    assert group["weight_decay"] == 0.1


def test_adam_takes_its_delta():
    optimizer = build_optimizer(
        OptimizerConfig(name="adam", delta=0.1), nn.Linear(1, 1), nn.Identity()
    )
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.param_groups[0]["eps"] == 0.1


def test_nesterov_without_momentum_is_plain():
    config = OptimizerConfig(name="nesterov", momentum=0)
    assert not build_optimizer(config, nn.Linear(1, 1), nn.Identity()).defaults["nesterov"]


def test_parameters_of_the_method_are_trained_without_decay():
    method = nn.Linear(2, 2)
    optimizer = build_optimizer(OptimizerConfig(), nn.Linear(1, 1), method)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [5e-4, 0]
    assert optimizer.param_groups[1]["params"] == list(method.parameters())
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


@pytest.mark.parametrize("delta", [1e-8, 0.1, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_authors_adam_is_the_solver_of_caffe_written_out(delta, decay):
    config = OptimizerConfig(name="adam_caffe", lr=0.01, delta=delta, weight_decay=decay)
    network = torch.nn.Linear(3, 2).double()
    value = network.weight.detach().clone()
    optimizer = build_optimizer(config, network, torch.nn.Module())
    mean, square = torch.zeros_like(value), torch.zeros_like(value)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 6):
        gradient = torch.randn(2, 3, dtype=torch.float64, generator=generator)
        network.weight.grad = gradient.clone()
        optimizer.step()
        gradient = gradient + decay * value
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        correction = (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        value = value - 0.01 * correction * mean / (square.sqrt() + delta)
        torch.testing.assert_close(network.weight.detach(), value)


def test_the_authors_adam_resumes_where_it_was():
    def stepped(optimizer, weight, steps):
        for step in steps:
            weight.grad = torch.full((1,), 1.0 + step)
            optimizer.step()

    whole, half = (torch.zeros(1, requires_grad=True) for _ in range(2))
    stepped(CaffeAdam([whole], lr=0.1, delta=0.1), whole, range(4))
    first = CaffeAdam([half], lr=0.1, delta=0.1)
    stepped(first, half, range(2))
    second = CaffeAdam([half], lr=0.1, delta=0.1)
    second.load_state_dict(first.state_dict())
    stepped(second, half, range(2, 4))
    assert torch.equal(whole, half)
