import pytest
import torch
from torch import nn

from imae.errors import ArgumentError
from imae.models.network import build
from imae.models.small import CNN8


def test_layers_are_those_of_the_authors_code():
    network = CNN8()
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [
        (64, 3, 3, 3),
        (64, 64, 3, 3),
        (128, 64, 3, 3),
        (128, 128, 3, 3),
        (196, 128, 3, 3),
        (196, 196, 3, 3),
        (256, 4 * 4 * 196),
        (10, 256),
    ]
    assert sum(parameter.numel() for parameter in network.parameters()) == 1_639_794


def test_weights_start_within_the_bounds_of_the_authors_code():
    network = build("cnn8", num_classes=10)
    convolution, linear = network.block1[0].weight, network.fc1.weight
    assert convolution.abs().max().item() == pytest.approx((6 / 27) ** 0.5, rel=0.01)
    assert linear.abs().max().item() == pytest.approx((6 / (3136 + 256)) ** 0.5, rel=0.01)


@pytest.mark.parametrize("size", [8, 28, 33])
def test_other_image_sizes(size):
    network = CNN8(in_channels=1, image_size=size)
    assert network(torch.zeros(2, 1, size, size)).shape == (2, 10)


@pytest.mark.parametrize("wrong", [{"image_size": 7}, {"in_channels": 0}])
def test_numbers_that_are_too_small_are_refused(wrong):
    with pytest.raises(ArgumentError, match="must be at least"):
        CNN8(**wrong)
