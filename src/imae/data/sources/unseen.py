"""Tracklets of the classes of CIFAR-100 that its variant "half" does not train on."""

import os

import numpy as np
from numpy.typing import NDArray

from imae.data.images import ArrayImages
from imae.data.sources.archive import data_root
from imae.data.sources.cifar import CIFAR100
from imae.data.tracklets import Tracklets

_FRAMES = 5
_SHIFT = 4  # pixels
_BRIGHTNESS = 0.6


def unseen_class_tracklets(
    root: str | os.PathLike[str] | None = None, variant: str = "fine"
) -> Tracklets | None:
    """Tracklets of test images of the 50 classes that ``variant="half"`` leaves out.

    The images of a class are divided between two cameras that share no image. The first shows them
    as they are; the second mirrored, moved by four pixels and at 60% of their brightness. Five
    images of a class and a camera are a tracklet, and every tracklet is a query: 1,000 in all.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: The variant of ``cifar100``; other variants have no unseen class, and give None.

    Raises:
        DataError: If the set is not there, or not the published one.
    """
    if variant != "half":
        return None
    arrays = CIFAR100.read(data_root(root))
    pixels, labels = arrays["test_images"], arrays["test_labels"].astype(np.int64)
    frames: list[NDArray[np.uint8]] = []
    classes, cameras = [], []
    for label in range(1, len(CIFAR100.class_names), 2):
        halves = np.array_split(np.flatnonzero(labels == label), 2)
        for camera, half in enumerate(halves, start=1):
            for start in range(0, len(half) - _FRAMES + 1, _FRAMES):
                images = pixels[half[start : start + _FRAMES]]
                frames.append(images if camera == 1 else second_camera(images))
                classes.append(label)
                cameras.append(camera)
    starts = _FRAMES * np.arange(len(frames))
    return Tracklets(
        frames=ArrayImages(np.concatenate(frames), mean=CIFAR100.mean, std=CIFAR100.std),
        starts=starts,
        stops=starts + _FRAMES,
        person_ids=np.array(classes, np.int64),
        cameras=np.array(cameras, np.int64),
        is_query=np.ones(len(frames), bool),
    )


def second_camera(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The images mirrored, moved to the lower right on black, and darker.

    Args:
        images: Shape (N, C, H, W).

    Examples:
        >>> image = np.full((1, 1, 8, 8), 100, np.uint8)
        >>> second_camera(image)[0, 0, 3:5, 3:5].tolist()
        [[0, 0], [0, 60]]
    """
    moved = np.zeros_like(images)
    mirrored = images[:, :, :-_SHIFT, ::-1][:, :, :, :-_SHIFT]
    moved[:, :, _SHIFT:, _SHIFT:] = np.rint(_BRIGHTNESS * mirrored)
    return moved
