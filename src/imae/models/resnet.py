"""Residual networks: for 32 x 32 images, and ResNet-50 under torchvision's parameter names."""

from typing import final

from torch import Tensor, nn
from torch.nn import functional

from imae.errors import ArgumentError, check_integer
from imae.models.network import Network, he_normal


@final
class CIFARResNet(Network):
    """A residual network of depth 6n + 2: three stages of n blocks with 16, 32 and 64 channels.

    Where the image shrinks, the shortcut takes every second pixel and fills the new channels with
    zeros (option A of the paper), so it has no parameters. Depth 20, 32, 44, 56 and 110 have 0.27,
    0.46, 0.66, 0.85 and 1.7 million parameters, as the paper's Table 6 says.

    Args:
        depth: Number of layers with weights, 6n + 2 for n >= 1.
        num_classes: Number of classes C.
        in_channels: Channels of the images, 3 for colour.

    Raises:
        ArgumentError: If the depth is not 6n + 2, or a number is not positive.

    Examples:
        >>> import torch
        >>> CIFARResNet(depth=20, num_classes=10).features(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])

    Reference:
        He et al., "Deep residual learning for image recognition", CVPR 2016, Section 4.2.
    """

    def __init__(self, *, depth: int, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        check_integer("depth", depth, low=8)
        if depth % 6 != 2:
            raise ArgumentError(f"depth must be 6n + 2 (20, 32, 44, 56, 110, ...), got {depth}")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(in_channels, 16, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _cifar_stage(16, 16, blocks)
        self.layer2 = _cifar_stage(16, 32, blocks)
        self.layer3 = _cifar_stage(32, 64, blocks)
        self.fc = nn.Linear(64, num_classes)
        he_normal(self)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 64 features."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Mean of the last feature maps, shape (N, 64), for images (N, in_channels, H, W)."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean(dim=(2, 3))


class _CIFARBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.stride = 1 if in_channels == out_channels else 2
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        residual = functional.relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        if self.stride == 2:
            new_channels = residual.shape[1] - x.shape[1]
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, new_channels))
        return functional.relu(x + residual)


def _cifar_stage(in_channels: int, out_channels: int, blocks: int) -> nn.Sequential:
    first = _CIFARBlock(in_channels, out_channels)
    return nn.Sequential(
        first, *(_CIFARBlock(out_channels, out_channels) for _ in range(blocks - 1))
    )


_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width inside a block, number of blocks
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
        >>> import torch
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
        self.layer1 = _stage(64, 0)
        self.layer2 = _stage(256, 1)
        self.layer3 = _stage(512, 2)
        self.layer4 = _stage(1024, 3)
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


def _stage(in_channels: int, index: int) -> nn.Sequential:
    width, blocks = _STAGES[index]
    first = _Bottleneck(in_channels, width, stride=1 if index == 0 else 2)
    rest = (_Bottleneck(width * _EXPANSION, width, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
