import pytest
import torch
from torch import Tensor
from torch.nn import functional

from imae.errors import ArgumentError
from imae.models.network import Network, build
from imae.models.photos import BNInception

# Output channels of the published layers, in the order of the file:
# 1x1, 3x3 reduce, 3x3, double reduce, double 1, double 2, pool projection.
FULL = {
    "3a": (64, 64, 64, 64, 96, 96, 32),
    "3b": (64, 64, 96, 64, 96, 96, 64),
    "4a": (224, 64, 96, 96, 128, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128, 128),
    "4c": (160, 128, 160, 128, 160, 160, 128),
    "4d": (96, 128, 192, 160, 192, 192, 128),
    "5a": (352, 192, 320, 160, 224, 224, 128),
    "5b": (352, 192, 320, 192, 224, 224, 128),
}
HALVING = {"3c": (128, 160, 64, 96, 96), "4e": (128, 192, 192, 256, 256)}
ENTERING = {
    "3a": 192, "3b": 256, "3c": 320, "4a": 576, "4b": 576, "4c": 576, "4d": 608, "4e": 608,
    "5a": 1056, "5b": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def network(mix_statistics) -> Network:
    network = build("bn_inception", num_classes=1000).eval()
    mix_statistics(network)
    return network


def published_convolutions() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "conv1_7x7_s2": (64, 3, 7, 7),
        "conv2_3x3_reduce": (64, 64, 1, 1),
        "conv2_3x3": (192, 64, 3, 3),
    }
    for block, entering in ENTERING.items():
        prefix = f"inception_{block}"
        inner = FULL[block][1:6] if block in FULL else HALVING[block]
        reduce, single, double_reduce, double_1, double_2 = inner
        if block in FULL:
            shapes[f"{prefix}_1x1"] = (FULL[block][0], entering, 1, 1)
        shapes[f"{prefix}_3x3_reduce"] = (reduce, entering, 1, 1)
        shapes[f"{prefix}_3x3"] = (single, reduce, 3, 3)
        shapes[f"{prefix}_double_3x3_reduce"] = (double_reduce, entering, 1, 1)
        shapes[f"{prefix}_double_3x3_1"] = (double_1, double_reduce, 3, 3)
        shapes[f"{prefix}_double_3x3_2"] = (double_2, double_1, 3, 3)
        if block in FULL:
            shapes[f"{prefix}_pool_proj"] = (FULL[block][6], entering, 1, 1)
    return shapes


def test_names_and_shapes_are_the_published(network):
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in published_convolutions().items():
        expected[f"{name}.weight"], expected[f"{name}.bias"] = shape, shape[:1]
        for part in ("weight", "bias", "running_mean", "running_var"):
            expected[f"{name}_bn.{part}"] = shape[:1]
        expected[f"{name}_bn.num_batches_tracked"] = ()
    expected["last_linear.weight"], expected["last_linear.bias"] = (1000, 1024), (1000,)
    state = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    assert state == expected
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_295_240


def reference(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The published forward pass, as plain functions of the named tensors."""

    def unit(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        padding = weight.shape[-1] // 2
        x = functional.conv2d(x, weight, state[f"{name}.bias"], stride, padding)
        mean, var = state[f"{name}_bn.running_mean"], state[f"{name}_bn.running_var"]
        weight, bias = state[f"{name}_bn.weight"], state[f"{name}_bn.bias"]
        return functional.batch_norm(x, mean, var, weight, bias).relu()

    def halved(x: Tensor) -> Tensor:
        return functional.max_pool2d(x, 3, stride=2, ceil_mode=True)

    x = halved(unit("conv1_7x7_s2", x, stride=2))
    x = halved(unit("conv2_3x3", unit("conv2_3x3_reduce", x)))
    for block in ENTERING:
        prefix, stride = f"inception_{block}", 2 if block in HALVING else 1
        single = unit(f"{prefix}_3x3", unit(f"{prefix}_3x3_reduce", x), stride)
        double = unit(f"{prefix}_double_3x3_1", unit(f"{prefix}_double_3x3_reduce", x))
        double = unit(f"{prefix}_double_3x3_2", double, stride)
        if block in HALVING:
            x = torch.cat([single, double, halved(x)], 1)
            continue
        if block == "5b":
            pooled = functional.max_pool2d(x, 3, stride=1, padding=1)
        else:
            pooled = functional.avg_pool2d(x, 3, stride=1, padding=1)
        projected = unit(f"{prefix}_pool_proj", pooled)
        x = torch.cat([unit(f"{prefix}_1x1", x), single, double, projected], 1)
    return functional.linear(x.mean((2, 3)), state["last_linear.weight"], state["last_linear.bias"])


@pytest.mark.parametrize("size", [64, 227])  # 227 pixels give an odd map before the second pool
def test_outputs_are_those_of_the_published_layout(network, size):
    x = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(x), reference(network.state_dict(), x))


@pytest.mark.parametrize("size", [7, 33, 97, 120])  # the published pools fail on their odd maps
def test_any_image_size_gives_an_embedding(network, size):
    with torch.no_grad():
        assert network.features(torch.zeros(1, 3, size, size + 1)).shape == (1, 1024)


def test_channels_are_checked():
    with pytest.raises(ArgumentError, match="in_channels must be at least 1"):
        BNInception(in_channels=0)
