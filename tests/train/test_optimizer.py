import pytest
import torch
from torch import nn

from imae.train.config import OptimizerConfig
from imae.train.optim import build_optimizer, set_learning_rate


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
