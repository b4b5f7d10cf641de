"""Small networks that train in seconds: one for small images, one for tables of numbers."""

from typing import final

from torch import Tensor, nn

from imae._checks import check_integer
from imae.models.initialise import he_normal
from imae.models.network import Network


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
    """Two hidden layers with layer normalisation, for rows of numbers or features.

    Layer and not batch normalisation, so that a batch of one row can be trained on.

    Args:
        num_classes: Number of classes C.
        in_features: Numbers in a row; images are flattened.
        hidden: Units of each hidden layer.

    Raises:
        ArgumentError: If a number is not positive.

    Examples:
        >>> import torch
        >>> MLP(num_classes=3, in_features=4).features(torch.zeros(2, 4)).shape
        torch.Size([2, 256])
    """

    def __init__(self, *, num_classes: int = 10, in_features: int = 64, hidden: int = 256) -> None:
        super().__init__()
        check_integer("in_features", in_features, low=1)
        check_integer("hidden", hidden, low=1)
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_features, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
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


def _convolution(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )
