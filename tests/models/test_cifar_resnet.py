import pytest
import torch
from torch import nn

from imae.errors import ArgumentError
from imae.models.small import CIFARResNet


@pytest.mark.parametrize(
    ("depth", "count", "millions", "digits"),
    [  # the last two columns are the paper's number and its decimals
        (20, 269_722, 0.27, 2),
        (32, 464_154, 0.46, 2),
        (44, 658_586, 0.66, 2),
        (56, 853_018, 0.85, 2),
        (110, 1_727_962, 1.7, 1),
    ],
)
def test_parameters_and_layers_are_the_papers(depth, count, millions, digits):
    network = CIFARResNet(depth=depth)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert round(count / 1e6, digits) == millions
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


def test_the_image_is_halved_twice():
    network, shapes = CIFARResNet(depth=8), []
    for stage in (network.layer1, network.layer2, network.layer3):
        stage.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    network(torch.zeros(2, 3, 32, 32))
    assert shapes == [(2, 16, 32, 32), (2, 32, 16, 16), (2, 64, 8, 8)]


def test_a_shrinking_shortcut_takes_every_second_pixel_and_adds_zero_channels():
    block = CIFARResNet(depth=8).layer2[0]
    nn.init.zeros_(block.bn2.weight)  # the residual is 0, so the shortcut is all there is
    x = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    y = block(x)
    assert torch.equal(y[:, :16], x[:, :, ::2, ::2])
    assert not y[:, 16:].any()


def test_the_gradient_of_a_shrinking_shortcut_keeps_the_layout():
    block = CIFARResNet(depth=8).layer2[0]
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    (gradient,) = torch.autograd.grad(block(x).sum(), x)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    expected = torch.zeros(2, 16, 8, 8)
    expected[:, :, ::2, ::2] = 1
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("depth", [2, 7, 9, 21, 34])
def test_other_depths_are_refused(depth):
    with pytest.raises(ArgumentError, match="depth must be"):
        CIFARResNet(depth=depth)


def test_channels_are_checked():
    assert CIFARResNet(depth=8, in_channels=1)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ArgumentError, match="in_channels must be at least 1"):
        CIFARResNet(depth=8, in_channels=0)
