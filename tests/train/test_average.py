import torch
from torch import nn

from imae.train.state import averaged


def test_it_follows_the_weights_and_takes_over_buffers():
    network = nn.BatchNorm1d(2)
    average = averaged(network, decay=0.9)
    with torch.no_grad():
        network.weight.fill_(2.0)
        network.running_mean.fill_(5.0)
    expected = 1.0
    for _ in range(3):
        average.update_parameters(network)
        expected = 0.9 * expected + 0.1 * 2.0
        torch.testing.assert_close(average.module.weight, torch.full((2,), expected))
    assert average.module.running_mean.tolist() == [5.0, 5.0]
    assert not average.module.training
    assert not any(each.requires_grad for each in average.module.parameters())
    assert network.training
