import pytest
import torch
from torch import Tensor, nn

from imae.models.network import he_normal


def drawn(layer: nn.Conv2d) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        he_normal(layer)
    return layer.weight.detach()


def test_variance_is_two_over_fan_in_and_the_bias_is_zero():
    layer = nn.Conv2d(32, 64, kernel_size=5)
    weight = drawn(layer)
    # 51,200 draws: the standard error of the variance is 0.6% of it.
    assert weight.var().item() == pytest.approx(2 / (32 * 25), rel=0.03)
    assert not layer.bias.any()


def test_a_depthwise_convolution_counts_only_its_own_channel():
    weight = drawn(nn.Conv2d(512, 512, kernel_size=5, groups=512, bias=False))
    assert weight.var().item() == pytest.approx(2 / 25, rel=0.06)


def test_linear_layers_are_left_alone():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    he_normal(layer)
    assert torch.equal(layer.weight, before)
