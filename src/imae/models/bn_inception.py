"""GoogLeNet with batch normalisation, under the parameter names of the published weights."""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from imae._checks import check_integer
from imae.models.network import Network, he_normal


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
