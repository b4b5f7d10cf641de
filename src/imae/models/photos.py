"""Networks for photos whose published weights fit: ResNet-50, BN-Inception, EfficientNet-Lite."""

import math
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from imae.errors import ArgumentError, check_integer
from imae.models.network import Network, he_normal

_RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width inside a block, number of blocks
_EXPANSION = 4


@final
class ResNet50(Network):
    """ResNet-50 with torchvision's names and shapes, so that its published weights load.

    As in torchvision, the stride of a shrinking block is in the 3 x 3 convolution, not in the
    first 1 x 1 ("version 1.5"); with the paper's placement the same weights give other outputs.

    Args:
        num_classes: Number of classes C.
        in_channels: Channels of the images, 3 for colour.

    Raises:
        ArgumentError: If a number is not positive.

    Examples:
        >>> ResNet50(num_classes=14).eval().features(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 2048])

    Reference:
        He et al., "Deep residual learning for image recognition", CVPR 2016, Table 1.
    """

    def __init__(self, *, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        self.conv1 = nn.Conv2d(in_channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _resnet_stage(64, 0)
        self.layer2 = _resnet_stage(256, 1)
        self.layer3 = _resnet_stage(512, 2)
        self.layer4 = _resnet_stage(1024, 3)
        self.fc = nn.Linear(2048, num_classes)
        he_normal(self)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 2,048 features."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Mean of the last feature maps, shape (N, 2048), for images (N, in_channels, H, W)."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))


class _Bottleneck(nn.Module):
    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * _EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        residual = functional.relu(self.bn1(self.conv1(x)))
        residual = functional.relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        shortcut = x if self.downsample is None else self.downsample(x)
        return functional.relu(shortcut + residual)


def _resnet_stage(in_channels: int, index: int) -> nn.Sequential:
    width, blocks = _RESNET_STAGES[index]
    first = _Bottleneck(in_channels, width, stride=1 if index == 0 else 2)
    rest = (_Bottleneck(width * _EXPANSION, width, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


class _Widths(NamedTuple):
    """Channels of one block's branches; without the two plain ones the block halves the image."""

    plain: int | None
    reduce: int
    single: int
    double_reduce: int
    double: int
    pool: int | None


_BLOCKS = {
    "3a": _Widths(64, 64, 64, 64, 96, 32),
    "3b": _Widths(64, 64, 96, 64, 96, 64),
    "3c": _Widths(None, 128, 160, 64, 96, None),
    "4a": _Widths(224, 64, 96, 96, 128, 128),
    "4b": _Widths(192, 96, 128, 96, 128, 128),
    "4c": _Widths(160, 128, 160, 128, 160, 128),
    "4d": _Widths(96, 128, 192, 160, 192, 128),
    "4e": _Widths(None, 128, 192, 192, 256, None),
    "5a": _Widths(352, 192, 320, 160, 224, 128),
    "5b": _Widths(352, 192, 320, 192, 224, 128),
}
_MAX_POOLED = ("5b",)  # its pool branch takes the maximum, those of the others the mean


@final
class BNInception(Network):
    """BN-Inception (GoogLeNet V2): ten inception blocks and an embedding of 1,024 numbers.

    The names and shapes are those of the published ``bn_inception`` weights, which expect pixels
    of 0 to 255 in the order blue, green, red, less the mean (104, 117, 128). Any image size
    from 7 x 7 on works, for example 224 x 224 and the paper's 227 x 227: the last pooling takes
    the whole map.

    Args:
        num_classes: Number of classes C.
        in_channels: Channels of the images, 3 for colour.

    Raises:
        ArgumentError: If a number is not positive.

    Examples:
        >>> BNInception(num_classes=625).eval().features(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1024])

    Reference:
        Ioffe and Szegedy, "Batch normalization: accelerating deep network training by reducing
        internal covariate shift", ICML 2015, appendix.
    """

    def __init__(self, *, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        self._add("conv1_7x7_s2", in_channels, 64, kernel=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64)
        self._add("conv2_3x3", 64, 192, kernel=3)
        channels = 192
        for name, widths in _BLOCKS.items():
            channels = self._add_block(f"inception_{name}", channels, widths)
        self.last_linear = nn.Linear(channels, num_classes)
        he_normal(self)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 1,024 features."""
        return self.last_linear

    def features(self, x: Tensor) -> Tensor:
        """The embedding, shape (N, 1024), of images of shape (N, in_channels, H, W)."""
        x = _halve(self._run("conv1_7x7_s2", x))
        x = self._run("conv2_3x3_reduce", x)
        x = _halve(self._run("conv2_3x3", x))
        for name, widths in _BLOCKS.items():
            x = self._run_block(f"inception_{name}", x, widths)
        return x.mean(dim=(2, 3))

    def _add(
        self, name: str, in_channels: int, out_channels: int, *, kernel: int = 1, stride: int = 1
    ) -> None:
        # The published names are flat, so the layers of a block are children of the network.
        layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2)
        self.add_module(name, layer)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(out_channels))

    def _add_block(self, name: str, channels: int, widths: _Widths) -> int:
        stride = 1 if widths.pool else 2
        if widths.plain:
            self._add(f"{name}_1x1", channels, widths.plain)
        self._add(f"{name}_3x3_reduce", channels, widths.reduce)
        self._add(f"{name}_3x3", widths.reduce, widths.single, kernel=3, stride=stride)
        self._add(f"{name}_double_3x3_reduce", channels, widths.double_reduce)
        self._add(f"{name}_double_3x3_1", widths.double_reduce, widths.double, kernel=3)
        self._add(f"{name}_double_3x3_2", widths.double, widths.double, kernel=3, stride=stride)
        if widths.pool:
            self._add(f"{name}_pool_proj", channels, widths.pool)
        return (widths.plain or 0) + widths.single + widths.double + (widths.pool or channels)

    def _run_block(self, name: str, x: Tensor, widths: _Widths) -> Tensor:
        single = self._run(f"{name}_3x3", self._run(f"{name}_3x3_reduce", x))
        double = self._run(f"{name}_double_3x3_reduce", x)
        double = self._run(f"{name}_double_3x3_1", double)
        double = self._run(f"{name}_double_3x3_2", double)
        if not widths.pool:
            return torch.cat([single, double, _halve(_even(x))], dim=1)
        pool = functional.max_pool2d if name.endswith(_MAX_POOLED) else functional.avg_pool2d
        pooled = self._run(f"{name}_pool_proj", pool(x, kernel_size=3, stride=1, padding=1))
        return torch.cat([self._run(f"{name}_1x1", x), single, double, pooled], dim=1)

    def _run(self, name: str, x: Tensor) -> Tensor:
        layer, norm = self.get_submodule(name), self.get_submodule(f"{name}_bn")
        return functional.relu(norm(layer(x)))


def _halve(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, kernel_size=3, stride=2, ceil_mode=True)


def _even(x: Tensor) -> Tensor:
    """The maps with a row or column of zeros more where their height or width is odd.

    Inside a block the pool must give as many rows as the convolutions beside it, and for odd maps
    the published network's gives one less, so it takes few image sizes. The zeros change no
    maximum, because no activation after a ReLU is negative.
    """
    height, width = x.shape[2:]
    return functional.pad(x, (0, width % 2, 0, height % 2))


class _Stage(NamedTuple):
    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
_SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}  # factors of the widths and the depths
_STEM, _HEAD = 32, 1280
_EPSILON = 1e-3  # of the batch normalisation the weights were trained with


@final
class EfficientNetLite(Network):
    """EfficientNet without squeeze-and-excitation and with ReLU6: fast features on a CPU.

    The published weights expect 224, 240 and 260 pixels for sizes 0, 1 and 2, and inputs of
    (pixel - 127) / 128. The dropout and the dropped blocks of the original training are omitted:
    here the network gives features, or is tuned for a short time.

    Args:
        size: 0, 1 or 2.
        num_classes: Number of classes C.
        in_channels: Channels of the images, 3 for colour.

    Raises:
        ArgumentError: If the size is another, or a number is not positive.

    Examples:
        >>> EfficientNetLite(size=0).eval().features(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1280])

    Reference:
        Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks",
        ICML 2019; the Lite variants are from the authors' published code, 2020.
    """

    def __init__(self, *, size: int, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        if size not in _SCALES:
            raise ArgumentError(f"size must be one of 0, 1, 2, got {size!r}")
        self._conv_stem = _convolution(in_channels, _STEM, kernel=3, stride=2)
        self._bn0 = nn.BatchNorm2d(_STEM, eps=_EPSILON)
        blocks = _blocks(*_SCALES[size])
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = _convolution(blocks[-1].out_channels, _HEAD, kernel=1)
        self._bn1 = nn.BatchNorm2d(_HEAD, eps=_EPSILON)
        self._fc = nn.Linear(_HEAD, num_classes)
        he_normal(self)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 1,280 features."""
        return self._fc

    def features(self, x: Tensor) -> Tensor:
        """Mean of the last feature maps, shape (N, 1280), for images (N, in_channels, H, W)."""
        x = functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = functional.relu6(self._bn1(self._conv_head(x)))
        return x.mean(dim=(2, 3))


class _InvertedBottleneck(nn.Module):
    def __init__(self, in_channels: int, stage: _Stage) -> None:
        super().__init__()
        self.out_channels = stage.channels
        self.has_shortcut = stage.stride == 1 and in_channels == stage.channels
        width = in_channels * stage.expansion
        self.is_expanded = stage.expansion > 1
        if self.is_expanded:
            self._expand_conv = _convolution(in_channels, width, kernel=1)
            self._bn0 = nn.BatchNorm2d(width, eps=_EPSILON)
        self._depthwise_conv = _convolution(
            width, width, kernel=stage.kernel, stride=stage.stride, groups=width
        )
        self._bn1 = nn.BatchNorm2d(width, eps=_EPSILON)
        self._project_conv = _convolution(width, stage.channels, kernel=1)
        self._bn2 = nn.BatchNorm2d(stage.channels, eps=_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        wide = functional.relu6(self._bn0(self._expand_conv(x))) if self.is_expanded else x
        wide = functional.relu6(self._bn1(self._depthwise_conv(wide)))
        narrow: Tensor = self._bn2(self._project_conv(wide))
        return x + narrow if self.has_shortcut else narrow


class _HalvingConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow pads it, with the odd pixel to the right and below."""

    def forward(self, input: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (
            max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            for size in input.shape[2:]
        )
        sides = (width // 2, width - width // 2, height // 2, height - height // 2)
        output: Tensor = super().forward(functional.pad(input, sides))
        return output


def _convolution(
    in_channels: int, out_channels: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    if stride == 1:  # both frameworks pad alike
        return nn.Conv2d(
            in_channels, out_channels, kernel, padding=kernel // 2, groups=groups, bias=False
        )
    return _HalvingConv2d(in_channels, out_channels, kernel, stride, groups=groups, bias=False)


def _blocks(width_factor: float, depth_factor: float) -> list[_InvertedBottleneck]:
    blocks: list[_InvertedBottleneck] = []
    channels = _STEM
    for stage in _STAGES:
        is_scaled = stage not in (_STAGES[0], _STAGES[-1])
        repeats = math.ceil(stage.blocks * depth_factor) if is_scaled else stage.blocks
        scaled = stage._replace(channels=_rounded(stage.channels * width_factor))
        for repeat in range(repeats):
            blocks.append(
                _InvertedBottleneck(channels, scaled if repeat == 0 else scaled._replace(stride=1))
            )
            channels = scaled.channels
    return blocks


def _rounded(channels: float) -> int:
    """The multiple of 8 nearest to ``channels`` that is not more than a tenth below it."""
    nearest = int(channels + 4) // 8 * 8
    return nearest + 8 if nearest < 0.9 * channels else nearest
