import pytest
import torch
from torch import Tensor, nn

from imae.models.network import Network


class Halves(Network):
    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.fc = nn.Linear(3, 2)

    @property
    def classifier(self) -> nn.Linear:
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x / 2


def test_forward_is_the_classifier_on_the_features():
    network, x = Halves(), torch.arange(6.0).view(2, 3)
    torch.testing.assert_close(network(x), network.fc(x / 2))


def test_features_and_logits_come_from_one_pass():
    network, x = Halves(), torch.arange(6.0).view(2, 3)
    features, logits = network.features_and_logits(x)
    assert network.passes == 1
    torch.testing.assert_close(features, x / 2)
    torch.testing.assert_close(logits, network.fc(x / 2))


@pytest.mark.parametrize("left_out", ["features", "classifier"])
def test_a_network_without_a_part_cannot_be_made(left_out):
    parts = {name: vars(Halves)[name] for name in ("features", "classifier") if name != left_out}
    with pytest.raises(TypeError, match=left_out):
        type("Part", (Network,), parts)()
