"""Start weights."""

from torch import nn


def he_normal(network: nn.Module) -> None:
    """Draws every convolution's weights from a normal of variance 2 / fan-in; biases become 0.

    Fan-in rather than fan-out, because PyTorch's fan-out ignores groups and would start a
    depthwise convolution with weights near 0. Linear layers keep PyTorch's own start.

    Args:
        network: Changed in place.

    Examples:
        >>> layer = nn.Conv2d(64, 128, kernel_size=3)
        >>> he_normal(layer)
        >>> round(layer.weight.detach().var().item() * 64 * 9, 1)
        2.0

    Reference:
        He et al., "Delving deep into rectifiers", ICCV 2015, Eq. (10).
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
