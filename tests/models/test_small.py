import pytest
import torch
from torch import nn
from torch.nn import functional

from imae.errors import ArgumentError
from imae.models.network import Network
from imae.models.small import MLP, SmallCNN


def made(network_class, **options) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return network_class(**options)


@pytest.mark.parametrize(
    ("network_class", "shape"), [(SmallCNN, (1, 8, 8)), (MLP, (1, 8, 8)), (MLP, (64,))]
)
def test_it_learns_32_rows_by_heart(network_class, shape):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(32, *shape, generator=generator)
    target = torch.randint(10, (32,), generator=generator)
    network = made(network_class)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), target).backward()
        optimizer.step()
    assert (network(inputs).argmax(1) == target).all()


@pytest.mark.parametrize("size", [(2, 2), (8, 8), (28, 20)])
def test_small_cnn_takes_any_image_size(size):
    assert SmallCNN(in_channels=3)(torch.zeros(2, 3, *size)).shape == (2, 10)


def test_mlp_trains_on_one_row():
    network = MLP(num_classes=3, in_features=4, hidden=8).train()
    assert network.features(torch.zeros(1, 4)).shape == (1, 8)
    assert isinstance(network.classifier, nn.Linear)


@pytest.mark.parametrize(
    ("network_class", "wrong"),
    [
        (SmallCNN, {"in_channels": 0}),
        (MLP, {"in_features": 0}),
        (MLP, {"hidden": 0}),
    ],
)
def test_numbers_that_are_too_small_are_refused(network_class, wrong):
    (name,) = wrong
    assert network_class(**{name: 1}).classifier.out_features == 10
    with pytest.raises(ArgumentError, match=f"{name} must be at least 1"):
        network_class(**wrong)


def test_the_normalisation_of_the_mlp_can_be_chosen():
    kinds = {
        norm: {type(layer) for layer in MLP(in_features=4, norm=norm).body}
        for norm in ("layer", "batch")
    }
    assert torch.nn.LayerNorm in kinds["layer"]
    assert torch.nn.BatchNorm1d in kinds["batch"] - kinds["layer"]
    with pytest.raises(ArgumentError, match="norm must be one of layer, batch, got 'none'"):
        MLP(norm="none")
