import pytest
import torch
from torch import Tensor
from torch.nn import functional

from imae.errors import ArgumentError
from imae.models.network import Network, build
from imae.models.photos import ResNet50


@pytest.fixture(scope="module")
def network(mix_statistics) -> Network:
    network = build("resnet50", num_classes=1000).eval()
    mix_statistics(network)
    return network


def torchvision_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnet50, written out from its published layout."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)}

    def batch_norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    batch_norm("bn1", 64)
    entering = 64
    for layer, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
        for block in range(blocks):
            prefix = f"layer{layer}.{block}"
            shapes[f"{prefix}.conv1.weight"] = (width, entering, 1, 1)
            batch_norm(f"{prefix}.bn1", width)
            shapes[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            batch_norm(f"{prefix}.bn2", width)
            shapes[f"{prefix}.conv3.weight"] = (4 * width, width, 1, 1)
            batch_norm(f"{prefix}.bn3", 4 * width)
            if block == 0:
                shapes[f"{prefix}.downsample.0.weight"] = (4 * width, entering, 1, 1)
                batch_norm(f"{prefix}.downsample.1", 4 * width)
            entering = 4 * width
    shapes["fc.weight"], shapes["fc.bias"] = (1000, 2048), (1000,)
    return shapes


def test_names_and_shapes_are_torchvisions(network):
    state = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert state == torchvision_shapes()
    assert list(state) == list(torchvision_shapes())
    assert len(list(network.parameters())) == 161
    # torchvision's documentation gives this number for ResNet50_Weights.
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032


def reference(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The forward pass of torchvision, as plain functions of the named tensors."""

    def norm(name: str, x: Tensor) -> Tensor:
        parts = (state[f"{name}.{part}"] for part in ("running_mean", "running_var"))
        return functional.batch_norm(x, *parts, state[f"{name}.weight"], state[f"{name}.bias"])

    x = functional.conv2d(x, state["conv1.weight"], stride=2, padding=3)
    x = functional.max_pool2d(norm("bn1", x).relu(), 3, 2, 1)
    for layer, blocks in enumerate([3, 4, 6, 3], start=1):
        for block in range(blocks):
            prefix, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = norm(f"{prefix}.bn1", functional.conv2d(x, state[f"{prefix}.conv1.weight"]))
            y = functional.conv2d(
                y.relu(), state[f"{prefix}.conv2.weight"], stride=stride, padding=1
            )
            y = norm(f"{prefix}.bn2", y).relu()
            y = norm(f"{prefix}.bn3", functional.conv2d(y, state[f"{prefix}.conv3.weight"]))
            if block == 0:
                x = functional.conv2d(x, state[f"{prefix}.downsample.0.weight"], stride=stride)
                x = norm(f"{prefix}.downsample.1", x)
            x = (x + y).relu()
    return functional.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])


def test_outputs_are_those_of_the_published_layout(network):
    x = torch.randn(2, 3, 70, 70, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(x), reference(network.state_dict(), x))


def test_channels_are_checked():
    with pytest.raises(ArgumentError, match="in_channels must be at least 1"):
        ResNet50(in_channels=0)
