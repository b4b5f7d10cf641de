import pytest
import torch
from torch import nn


@pytest.fixture(scope="session")
def mix_statistics():
    """Gives every batch norm its own mean and variance, so that no two can be mixed up."""

    def mix(network: nn.Module) -> None:
        generator = torch.Generator().manual_seed(0)
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(std=0.1, generator=generator)
                layer.running_var.uniform_(0.5, 1.5, generator=generator)

    return mix
