"""Small images on disk, read into memory once."""

from dataclasses import replace

import numpy as np

from imae.data.array_images import ArrayImages
from imae.data.image_files import ImageFiles, decode
from imae.data.split import Data, Split
from imae.errors import ArgumentError, DataError


def read_into_memory(data: Data) -> Data:
    """The data with its images decoded at their own size, which must be the same for all.

    Args:
        data: Data whose inputs are image files.

    Raises:
        ArgumentError: If the inputs are no image files.
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
                    f"{files.root / name}: is {image.width} x {image.height} where others are "
                    f"{first[0][0]} x {first[0][1]}; resize them, or read them without in_memory"
                )
            if pixels is None:
                pixels = np.empty((len(files), 3, image.height, image.width), np.uint8)
            pixels[row] = np.asarray(image).transpose(2, 0, 1)
        assert pixels is not None, "a split has rows"
        images = ArrayImages(pixels, mean=files.mean, std=files.std, flip=files.flip)
        return replace(split, inputs=images)

    return data.map_splits(decoded)
