"""Images held in memory and augmented as whole batches; image files that cannot be read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from imae._draws import row_draws
from imae.data.image_files import ImageFiles, decode, missing_reason, normalise
from imae.data.split import Data, Inputs, Skipped, Split, hash_rows
from imae.errors import ArgumentError, DataError, check_integer


@final
@dataclass(frozen=True, eq=False)
class ArrayImages(Inputs):
    """Images of one size; in training each is padded with black, cropped back and mirrored.

    Each image is cropped and mirrored independently of the others.

    Args:
        pixels: Images, shape (N, C, H, W), uint8.
        mean: Mean of every channel, on pixels scaled to [0, 1].
        std: Standard deviation of every channel, on the same scale.
        pad: Black pixels added on each side before the crop; 0 for no crop.
        flip: Whether half of the images are mirrored; turn it off for digits and letters.
        blue_first: Whether channels are in the order blue, green, red; ``mean`` and ``std`` too.

    Raises:
        ArgumentError: If ``pad`` is negative.
        DataError: If the shape, the dtype or the number of channel statistics does not fit.

    Examples:
        >>> images = ArrayImages(np.zeros((5, 1, 8, 8), np.uint8), mean=(0.5,), std=(0.25,))
        >>> images.batch(np.array([0, 3]), generator=torch.Generator().manual_seed(1)).shape
        torch.Size([2, 1, 8, 8])
    """

    pixels: NDArray[np.uint8]
    mean: tuple[float, ...] = field(kw_only=True)
    std: tuple[float, ...] = field(kw_only=True)
    pad: int = field(default=4, kw_only=True)
    flip: bool = field(default=True, kw_only=True)
    blue_first: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_integer("pad", self.pad, low=0)
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise DataError(
                f"images must be uint8 of shape (N, C, H, W), "
                f"got {self.pixels.dtype} of shape {self.pixels.shape}"
            )
        channels = self.pixels.shape[1]
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise DataError(
                f"{channels} channels need as many means and positive deviations, "
                f"got mean {self.mean} and std {self.std}"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: (C, H, W)."""
        return self.pixels.shape[1:]

    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The images at these positions, shape (B, C, H, W), uint8."""
        pixels = self.pixels[rows]
        if generator is not None:
            pixels = self._augment(pixels, rows, generator)
        return torch.from_numpy(pixels)

    def finish(self, gathered: Tensor) -> Tensor:
        """The images normalised, shape (B, C, H, W)."""
        return normalise(gathered.flip(1) if self.blue_first else gathered, self.mean, self.std)

    def take(self, rows: NDArray[np.int64]) -> "ArrayImages":
        """The images at these positions."""
        return replace(self, pixels=self.pixels[rows])

    def content_hash(self) -> str:
        """Hash of the pixels and the channel statistics."""
        prepared = (self.pixels.shape, self.mean, self.std)
        digest = hashlib.sha256(repr(prepared + ("blue first",) * self.blue_first).encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        return digest.hexdigest()

    def row_keys(self) -> NDArray[np.uint64]:
        """Hashes of the pixels of every image."""
        return hash_rows(np.ascontiguousarray(image).data for image in self.pixels)

    def _augment(
        self, pixels: NDArray[np.uint8], rows: NDArray[np.int64], generator: torch.Generator
    ) -> NDArray[np.uint8]:
        number, channels, height, width = pixels.shape
        pad = self.pad
        top, left, mirror = row_draws(rows, (2 * pad + 1, 2 * pad + 1, 2), generator=generator)
        if pad:
            padded = np.zeros((number, channels, height + 2 * pad, width + 2 * pad), np.uint8)
            padded[:, :, pad : pad + height, pad : pad + width] = pixels
            # A view of all crops of all images; indexing it copies the one crop of each.
            crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
            pixels = crops[np.arange(number), :, top, left]
        if self.flip:
            mirrored = np.flatnonzero(mirror)
            pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return pixels


def channel_statistics(
    pixels: NDArray[np.uint8],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel, on pixels scaled to [0, 1].

    They come from exact counts of the 256 values, so they are the same on every machine. A
    constant channel gets deviation 1, so that it can be divided by.

    Args:
        pixels: Images, shape (N, C, H, W), uint8.

    Examples:
        >>> channel_statistics(np.array([0, 255], np.uint8).reshape(2, 1, 1, 1))
        ((0.5,), (0.5,))
    """
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(pixels.shape[1]):
        counts = np.zeros(256, np.int64)
        for start in range(0, len(pixels), 1024):  # bincount widens to 8 bytes a pixel
            counts += np.bincount(pixels[start : start + 1024, channel].ravel(), minlength=256)
        share = counts / counts.sum()
        mean = float(share @ values)
        deviation = float(np.sqrt(share @ (values - mean) ** 2))
        means.append(mean)
        deviations.append(deviation if deviation > 0 else 1.0)
    return tuple(means), tuple(deviations)


def read_into_memory(data: Data) -> Data:
    """The data with its images decoded at their own size, which must be the same for all.

    Args:
        data: Data whose inputs are image files.

    Raises:
        ArgumentError: If the inputs are not image files.
        DataError: If an image cannot be read, or has another size than the first.
    """
    first: list[tuple[int, int]] = []

    def decoded(split: Split) -> Split:
        files = split.inputs
        if not isinstance(files, ImageFiles):
            raise ArgumentError("in_memory is for images in files")
        pixels = None
        for row, name in enumerate(files.names):
            image = decode(files.root / name)
            if not first:
                first.append(image.size)
            if image.size != first[0]:
                raise DataError(
                    f"{files.root / name}: is {image.width} x {image.height}, others are "
                    f"{first[0][0]} x {first[0][1]}; resize them, or read them without in_memory"
                )
            if pixels is None:
                pixels = np.empty((len(files), 3, image.height, image.width), np.uint8)
            pixels[row] = np.asarray(image).transpose(2, 0, 1)
        assert pixels is not None, "a split has rows"
        images = ArrayImages(pixels, mean=files.mean, std=files.std, flip=files.flip)
        return replace(split, inputs=images)

    return data.map_splits(decoded)


def drop_unreadable(data: Data, *, workers: int = 0) -> Data:
    """The data without the images that cannot be read, which it lists under ``skipped``.

    Every image is decoded once, so this takes about as long as an epoch of reading.

    Args:
        data: Data whose inputs are image files; other inputs are returned unchanged.
        workers: Processes that decode; 0 does it in this one.

    Raises:
        ArgumentError: If ``workers`` is negative.
        DataError: If a split loses all its images, or the training rows a whole class.
    """
    check_integer("workers", workers, low=0)
    skipped: list[Skipped] = []

    def readable(split: Split) -> Split:
        problems = _problems(split, workers)
        kept = [row for row, problem in enumerate(problems) if problem is None]
        skipped.extend(
            Skipped(str(split.row_ids[row]), problem)
            for row, problem in enumerate(problems)
            if problem is not None
        )
        if not kept:
            raise DataError(f"{data.name}: no image can be read; the first: {problems[0]}")
        return split.take(np.array(kept)) if len(kept) < len(split) else split

    cleaned = data.map_splits(readable)
    left = np.bincount(cleaned.train.labels, minlength=data.num_classes)
    lost = np.flatnonzero((left == 0) & (np.bincount(data.train.labels, minlength=len(left)) > 0))
    if len(lost):
        raise DataError(
            f"{data.name}: no image of class {data.class_names[lost[0]]!r} can be read; "
            f"the first problem: {skipped[0].reason}"
        )
    if not skipped:
        return cleaned
    return replace(cleaned, skipped=(*data.skipped, *skipped)).with_notes(
        f"{len(skipped)} images cannot be read and are skipped; the first: {skipped[0].reason}"
    )


def _problems(split: Split, workers: int) -> Sequence[str | None]:
    """What is wrong with the image of every row, or None."""
    if not isinstance(split.inputs, ImageFiles):
        return [None] * len(split)
    loader = DataLoader(
        _Checks(split.inputs), batch_size=None, num_workers=workers, generator=torch.Generator()
    )
    return [problem or None for problem in loader]


class _Checks(Dataset[str]):
    """What is wrong with each image, as text that may be empty."""

    def __init__(self, images: ImageFiles) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> str:
        path = self._images.root / self._images.names[row]
        missing = missing_reason(path)
        if missing is not None:
            return missing
        try:
            decode(path, size=1)
        except DataError as error:
            return str(error)
        return ""
