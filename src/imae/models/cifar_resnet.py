"""Residual networks for images of 32 x 32 pixels."""

from typing import final

from torch import Tensor, nn
from torch.nn import functional

from imae._checks import check_integer
from imae.errors import ArgumentError
from imae.models.initialise import he_normal
from imae.models.network import Network


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
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
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


class _Block(nn.Module):
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


def _stage(in_channels: int, out_channels: int, blocks: int) -> nn.Sequential:
    first = _Block(in_channels, out_channels)
    return nn.Sequential(first, *(_Block(out_channels, out_channels) for _ in range(blocks - 1)))
