"""Small networks, for rows and small images: linear, MLP, CNNs, and CIFAR's residual networks."""

from typing import final

from torch import Tensor, nn
from torch.nn import functional

from imae.errors import ArgumentError, check_choice, check_integer
from imae.models.network import Network, he_normal


@final
class SmallCNN(Network):
    """Four convolutions with batch normalisation, one pooling, and the mean over the image.

    Made for the 8 x 8 digits that come with the library; any image size from 2 x 2 on works.

    Args:
        num_classes: Number of classes C.
        in_channels: Channels of the images, 1 for grey.

    Raises:
        ArgumentError: If a number is not positive.

    Examples:
        >>> import torch
        >>> SmallCNN(num_classes=10).eval().features(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """

    def __init__(self, *, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        self.body = nn.Sequential(
            *_convolution(in_channels, 32),
            *_convolution(32, 32),
            nn.MaxPool2d(kernel_size=2),
            *_convolution(32, 64),
            *_convolution(64, 64),
        )
        self.fc = nn.Linear(64, num_classes)
        he_normal(self)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 64 features."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Mean of the last feature maps, shape (N, 64), for images (N, in_channels, H, W)."""
        maps: Tensor = self.body(x)
        return maps.mean(dim=(2, 3))


@final
class MLP(Network):
    """Two hidden layers with normalisation, for rows of numbers or features.

    Layer normalisation by default, so that a batch of one row can be trained on.

    Args:
        num_classes: Number of classes C.
        in_features: Numbers in a row; images are flattened.
        hidden: Units of each hidden layer.
        norm: ``"layer"`` or ``"batch"`` normalisation.

    Raises:
        ArgumentError: If a number is not positive, or there is no such normalisation.

    Examples:
        >>> import torch
        >>> MLP(num_classes=3, in_features=4).features(torch.zeros(2, 4)).shape
        torch.Size([2, 256])
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        in_features: int = 64,
        hidden: int = 256,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("layer", "batch"))
        normalise = nn.LayerNorm if norm == "layer" else nn.BatchNorm1d
        check_integer("in_features", in_features, low=1)
        check_integer("hidden", hidden, low=1)
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_features, hidden),
            normalise(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            normalise(hidden),
            nn.ReLU(),
        )
        self.fc = nn.Linear(hidden, num_classes)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from ``hidden`` features."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Output of the second hidden layer, shape (N, hidden), for rows (N, in_features)."""
        hidden: Tensor = self.body(x)
        return hidden


@final
class LinearClassifier(Network):
    """One linear layer, for rows of very many numbers such as words of texts.

    A network with hidden layers would memorise them: with thousands of features, few rows are
    alike.

    Args:
        num_classes: Number of classes C.
        in_features: Numbers in a row.

    Raises:
        ArgumentError: If a number is not positive.

    Examples:
        >>> import torch
        >>> LinearClassifier(num_classes=3, in_features=5)(torch.zeros(2, 5)).shape
        torch.Size([2, 3])
    """

    def __init__(self, *, num_classes: int = 10, in_features: int = 8192) -> None:
        super().__init__()
        check_integer("in_features", in_features, low=1)
        self.fc = nn.Linear(in_features, num_classes)

    @property
    def classifier(self) -> nn.Linear:
        """The only layer."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """The rows themselves, shape (N, in_features)."""
        return x.flatten(1)


def _convolution(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


_WIDTHS = (64, 128, 196)
_FEATURES = 256


@final
class CNN8(Network):
    """Six convolutions in three pairs, each pair ending in a pooling, then two linear layers.

    Args:
        num_classes: Number of classes C.
        in_channels: Channels of the images, 3 for colour.
        image_size: Height and width of the images in pixels, at least 8.

    Raises:
        ArgumentError: If a number is too small.

    Examples:
        >>> import torch
        >>> CNN8(num_classes=10).eval().features(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])

    Reference:
        Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020;
        the widths and initial weights are those of the authors' published code.
    """

    def __init__(
        self, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32
    ) -> None:
        super().__init__()
        check_integer("in_channels", in_channels, low=1)
        check_integer("image_size", image_size, low=8)
        self.block1 = _pair(in_channels, _WIDTHS[0])
        self.block2 = _pair(_WIDTHS[0], _WIDTHS[1])
        self.block3 = _pair(_WIDTHS[1], _WIDTHS[2])
        pixels = (image_size // 8) ** 2  # three poolings, each halves and rounds down
        self.fc1 = nn.Linear(_WIDTHS[2] * pixels, _FEATURES)
        self.bn1 = nn.BatchNorm1d(_FEATURES)
        self.fc2 = nn.Linear(_FEATURES, num_classes)
        self._initialise()

    @property
    def classifier(self) -> nn.Linear:
        """The last layer, from 256 features."""
        return self.fc2

    def features(self, x: Tensor) -> Tensor:
        """Output of the first linear layer, shape (N, 256), for images (N, in_channels, S, S)."""
        x = self.block3(self.block2(self.block1(x)))
        return functional.relu(self.bn1(self.fc1(x.flatten(1))))

    def _initialise(self) -> None:
        # As the authors' code draws them, so that their results can be compared.
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            elif isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)


def _pair(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2),
    )


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
            # As x[:, :, ::2, ::2], whose gradient is never channels last and so slows down whatever
            # it is added to.
            every_second = functional.avg_pool2d(x, kernel_size=1, stride=2)
            x = functional.pad(every_second, (0, 0, 0, 0, 0, new_channels))
        return functional.relu(x + residual)


def _cifar_stage(in_channels: int, out_channels: int, blocks: int) -> nn.Sequential:
    first = _CIFARBlock(in_channels, out_channels)
    return nn.Sequential(
        first, *(_CIFARBlock(out_channels, out_channels) for _ in range(blocks - 1))
    )
