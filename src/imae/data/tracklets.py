"""Tracklets for retrieval: sets of frames of one identity, seen by one camera."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae._registry import Imported
from imae.data.images import ArrayImages
from imae.data.sources.cifar import CIFAR100
from imae.data.sources.download import data_root
from imae.data.split import Inputs, Split
from imae.errors import DataError


@dataclass(frozen=True)
class Tracklets:
    """Tracklets of a re-identification set, for retrieval.

    Args:
        frames: Frames of all tracklets, one after another, as the network takes them.
        starts: Position of the first frame of each tracklet, shape (K,).
        stops: Position after the last frame of each tracklet, shape (K,).
        person_ids: Identity of each tracklet, shape (K,); one that no query has is a distractor.
        cameras: Camera of each tracklet, shape (K,), from 1.
        is_query: Whether a tracklet is a query, shape (K,), bool.

    Raises:
        DataError: If lengths differ, a tracklet has no frame or missing frames, or two
            share a frame.
    """

    frames: Inputs
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    person_ids: NDArray[np.int64]
    cameras: NDArray[np.int64]
    is_query: NDArray[np.bool_]

    def __post_init__(self) -> None:
        columns = (self.starts, self.stops, self.person_ids, self.cameras, self.is_query)
        if any(column.shape != self.starts.shape for column in columns):
            raise DataError(f"tracklet columns of shapes {[column.shape for column in columns]}")
        bad = (self.starts < 0) | (self.stops <= self.starts) | (self.stops > len(self.frames))
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"tracklet {row}: frames {self.starts[row]} to {self.stops[row]} of "
                f"{len(self.frames)}"
            )
        order = np.argsort(self.starts, kind="stable")
        shared = self.starts[order[1:]] < self.stops[order[:-1]]
        if shared.any():
            place = int(shared.argmax())
            raise DataError(f"tracklets {order[place]} and {order[place + 1]} share frames")

    def __len__(self) -> int:
        return len(self.starts)

    def frame_rows(self, tracklet: int) -> NDArray[np.int64]:
        """Positions of the frames of one tracklet, for ``frames.batch``."""
        return np.arange(self.starts[tracklet], self.stops[tracklet])

    @property
    def owners(self) -> NDArray[np.int64]:
        """Tracklet of every frame, shape (N,); -1 for a frame that belongs to none."""
        owners = np.full(len(self.frames), -1, np.int64)
        for tracklet, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            owners[start:stop] = tracklet
        return owners

    @property
    def query_rows(self) -> NDArray[np.int64]:
        """Positions of the queries."""
        return np.flatnonzero(self.is_query)

    @property
    def gallery_rows(self) -> NDArray[np.int64]:
        """Positions of the gallery: all tracklets including queries, as in the official protocol.

        A query is never compared with itself: tracklets of its identity from its own camera do not
        count.
        """
        return np.arange(len(self))


def as_tracklets(split: Split) -> Tracklets:
    """Each row as a tracklet of one frame, which is a query; its identity is its true label.

    Every row has a camera of its own, so a query is compared with all rows except itself.

    Examples:
        >>> from imae.data import load
        >>> tracklets = as_tracklets(load("digits").test)
        >>> len(tracklets), tracklets.query_rows[:3].tolist()
        (355, [0, 1, 2])
    """
    rows = np.arange(len(split))
    labels = split.labels if split.clean_labels is None else split.clean_labels
    return Tracklets(
        split.inputs, rows, rows + 1, labels, cameras=rows + 1, is_query=np.ones(len(rows), bool)
    )


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
        DataError: If the set is missing, or not the published one.
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


_LOADERS: Mapping[str, Callable[..., Tracklets | None]] = {
    "cifar100": unseen_class_tracklets,
    "mars": Imported("imae.data.sources.photo_sets:mars_tracklets"),
}


def load_tracklets(
    name: str, *, root: str | os.PathLike[str] | None = None, **options: Any
) -> Tracklets | None:
    """The tracklets of a named set, or None if it has none.

    Args:
        name: Name of the set.
        root: Folder of the data sets, or None for the default one.
        options: Options that the set was loaded with.

    Raises:
        DataError: If the set is missing.

    Examples:
        >>> load_tracklets("digits") is None
        True
    """
    loader = _LOADERS.get(name)
    if loader is None:
        return None
    takes = inspect.signature(loader.find() if isinstance(loader, Imported) else loader).parameters
    return loader(root, **{key: value for key, value in options.items() if key in takes})
