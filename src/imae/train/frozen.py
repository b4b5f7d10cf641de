"""Images as features of a published network, which itself is not trained."""

from collections.abc import Callable
from dataclasses import replace

from imae.data import ArrayImages, ImageFiles, Inputs, Split, extract_features
from imae.data.sources.root import data_root
from imae.errors import ArgumentError
from imae.models import PUBLISHED_INPUTS, build, load_weights, pretrained_weights


def frozen_features(name: str, *, workers: int = 0) -> Callable[[Split], Split]:
    """What turns a split of images into one of features, and keeps those in a cache.

    Args:
        name: The published network.
        workers: Processes that read and decode.

    Raises:
        ArgumentError: If there is no such network; when called, if the rows are no colour images.
    """
    _check_published(name)
    weights = pretrained_weights(name)
    network = build(name, num_classes=1000)
    load_weights(network, weights)
    return lambda split: extract_features(
        replace(split, inputs=published_images(name, split.inputs)),
        network.features,
        name=weights.name,
        cache=data_root() / "features",
        workers=workers,
    )


def published_images(name: str, inputs: Inputs) -> Inputs:
    """The images prepared the way that the published weights were trained on.

    Args:
        name: The published network.
        inputs: Colour images, in files or in memory.

    Raises:
        ArgumentError: If there is no such network, or the inputs are no colour images.
    """
    _check_published(name)
    wanted = PUBLISHED_INPUTS[name]
    mean = tuple(each / 255 for each in wanted.mean)
    std = tuple(each / 255 for each in wanted.std)
    if isinstance(inputs, ImageFiles):
        size = wanted.image_size
        return replace(inputs, mean=mean, std=std, crop=size, resize=max(inputs.resize, size))
    if isinstance(inputs, ArrayImages) and inputs.shape[0] == len(mean):
        return replace(inputs, mean=mean, std=std)
    raise ArgumentError(f"features of {name} are for colour images")


def _check_published(name: str) -> None:
    if name not in PUBLISHED_INPUTS:
        known = ", ".join(PUBLISHED_INPUTS)
        raise ArgumentError(f"features must be one of {known}, got {name!r}")
