"""Photos on disk, decoded when they are needed."""

import hashlib
import os
import stat
import warnings
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae._draws import row_draws
from imae.data.split import Data, Inputs, hash_rows
from imae.errors import ArgumentError, DataError, check_integer, import_extra

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not EPS: it starts a program
_LAST_BYTES = 4096  # that tell most files of the same size apart
_MAX_PIXELS = 89_478_485  # Pillow's own bound: a quarter of a gigabyte as RGB

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@final
@dataclass(frozen=True, eq=False)
class ImageFiles(Inputs):
    """Images warped to a square and cropped: at random and mirrored in training, otherwise centred.

    Each image is cropped and mirrored independently. Decoding takes most of the time: let
    ``Batches`` do it in worker processes.

    Args:
        root: Folder that holds the images.
        names: Path of every image below the root, with forward slashes.
        resize: Side of the square an image is warped to.
        crop: Side of the square that is cut out of it.
        mean: Mean of every channel, on pixels scaled to [0, 1].
        std: Standard deviation of every channel, on the same scale.
        flip: Whether half of the images are mirrored in training.
        blue_first: Whether channels are in the order blue, green, red; ``mean`` and ``std`` too.

    Raises:
        ArgumentError: If ``crop`` is below 1 or above ``resize``.
        DataError: From ``gather``, if an image cannot be read.

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning: Mean Absolute Error Does Not Treat Examples
        Equally and Gradient Magnitude's Variance Matters", arXiv 1903.12141 (256, then 227).
    """

    root: Path
    names: Sequence[str]
    resize: int = field(default=256, kw_only=True)
    crop: int = field(default=227, kw_only=True)
    mean: tuple[float, ...] = field(default=IMAGENET_MEAN, kw_only=True)
    std: tuple[float, ...] = field(default=IMAGENET_STD, kw_only=True)
    flip: bool = field(default=True, kw_only=True)
    blue_first: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_integer("crop", self.crop, low=1)
        check_integer("resize", self.resize, low=1)
        if self.crop > self.resize:
            raise ArgumentError(f"crop must be at most resize, got {self.crop} and {self.resize}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared image: (3, crop, crop)."""
        return (3, self.crop, self.crop)

    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The decoded crops of the images at these positions, shape (B, crop, crop, 3), uint8."""
        places = self.resize - self.crop + 1
        if generator is None:
            top = left = np.full(len(rows), places // 2)
            mirror = np.zeros(len(rows), np.int64)
        else:
            top, left, mirror = row_draws(rows, (places, places, 2), generator=generator)
        pixels = np.empty((len(rows), self.crop, self.crop, 3), np.uint8)
        for index, row in enumerate(rows):
            image = self._crop(self.root / self.names[int(row)], int(top[index]), int(left[index]))
            if self.flip and mirror[index]:
                image = image.transpose(0)  # FLIP_LEFT_RIGHT; ten times as quick as numpy's
            pixels[index] = image
        return torch.from_numpy(pixels)

    def finish(self, gathered: Tensor) -> Tensor:
        """The crops normalised, shape (B, 3, crop, crop)."""
        pixels = gathered.permute(0, 3, 1, 2)
        return normalise(pixels.flip(1) if self.blue_first else pixels, self.mean, self.std)

    def take(self, rows: NDArray[np.int64]) -> "ImageFiles":
        """The images at these positions."""
        return replace(self, names=tuple(self.names[row] for row in rows))

    def content_hash(self) -> str:
        """Hash of the bytes of all files and of how they are prepared."""
        # The words distinguish these inputs from those of versions that decoded differently.
        prepared = ("upright on white", len(self), self.resize, self.crop, self.mean, self.std)
        digest = hashlib.sha256(repr(prepared + ("blue first",) * self.blue_first).encode())
        for name in self.names:
            digest.update(hashlib.sha256(_file_bytes(self.root / name)).digest())
        return digest.hexdigest()

    def row_keys(self) -> NDArray[np.uint64]:
        """Hashes of the files, equal for equal bytes.

        Only files of the same size and with the same end are read as a whole.
        """
        paths = [self.root / name for name in self.names]
        sizes = [path.stat().st_size for path in paths]
        repeated = _repeated(sizes)
        ends = [
            (size, _file_bytes(path, last=_LAST_BYTES) if size in repeated else b"")
            for path, size in zip(paths, sizes, strict=True)
        ]
        alike = _repeated(ends)
        return hash_rows(
            _file_bytes(path) if end in alike else repr(end).encode()
            for path, end in zip(paths, ends, strict=True)
        )

    def _crop(self, path: Path, top: int, left: int) -> Any:
        """The crop of the warped image; the rest of the image is not computed."""
        image = decode(path, size=self.resize)
        wide, high = image.width / self.resize, image.height / self.resize
        box = (left * wide, top * high, (left + self.crop) * wide, (top + self.crop) * high)
        box = (*box[:2], min(box[2], image.width), min(box[3], image.height))
        bilinear = import_extra("PIL.Image", extra="data").Resampling.BILINEAR
        return image.resize((self.crop, self.crop), bilinear, box=box)


class BadImageError(DataError):
    """An image that cannot be read."""


def _repeated(values: Sequence[Hashable]) -> set[Hashable]:
    return {value for value, count in Counter(values).items() if count > 1}


def _file_bytes(path: Path, *, last: int | None = None) -> bytes:
    """The content of a file, or its last bytes."""
    try:
        with path.open("rb", buffering=0) as file:
            if last is not None:
                file.seek(max(0, os.fstat(file.fileno()).st_size - last))
            return file.readall()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def normalise(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Pixels minus the channel's mean over its deviation, float32, contiguous, shape (B, C, H, W).

    Args:
        pixels: Shape (B, C, H, W), uint8, in any memory layout.
        mean: Mean of every channel, on pixels scaled to [0, 1].
        std: Standard deviation of every channel, on the same scale.

    Examples:
        >>> normalise(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), (0.5,), (0.25,)).item()
        2.0
    """
    shape = (1, -1, 1, 1)
    scale = torch.tensor([1 / (255 * deviation) for deviation in std]).view(shape)
    shift = torch.tensor(
        [-centre / deviation for centre, deviation in zip(mean, std, strict=True)]
    ).view(shape)
    values = pixels.contiguous().to(torch.float32)  # in this order: bytes are quicker to move
    return values.mul_(scale).add_(shift)


def decode(path: Path, *, size: int | None = None) -> Any:
    """The image in this file, a ``PIL.Image.Image`` in RGB.

    It is turned the way its EXIF orientation says, and transparent pixels are shown on white, as
    viewers and browsers do.

    Args:
        path: The file.
        size: Side it will be warped to. A JPEG four times as large is then decoded at a
            half, a quarter or an eighth of its size, which is faster and looks the same.

    Raises:
        DataError: If it cannot be read as an image, has too many pixels, or values of unknown
            range.
    """
    library = import_extra("PIL.Image", extra="data")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # oddities of metadata, and a size checked below
            with library.open(path, formats=_FORMATS) as image:
                if image.width * image.height > _MAX_PIXELS:
                    raise BadImageError(
                        f"{path}: {image.width} x {image.height} pixels are more than an image may "
                        f"have; make it smaller"
                    )
                if size is not None:
                    image.draft("RGB", (2 * size, 2 * size))
                return _without_transparency(_upright(_eight_bits(image, path)))
    except DataError:
        raise
    except FileNotFoundError as error:
        raise BadImageError(f"{path}: no such image") from error
    # A damaged file makes Pillow's readers fail in many ways (OSError, SyntaxError, ValueError,
    # struct.error, EOFError, DecompressionBombError ...); all mean that it cannot be read.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadImageError(f"{path}: cannot be read as an image ({reason})") from error


def _upright(image: Any) -> Any:
    """The image turned the way its EXIF orientation says."""
    try:
        return import_extra("PIL.ImageOps", extra="data").exif_transpose(image)
    except Exception:  # damaged metadata fails in many ways, and the pixels may be fine
        return image


def _without_transparency(image: Any) -> Any:
    """The image in RGB, on white where it is transparent."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    white = import_extra("PIL.Image", extra="data").new("RGBA", layer.size, "white")
    white.alpha_composite(layer)
    return white.convert("RGB")


def _eight_bits(image: Any, path: Path) -> Any:
    """The image with 8 bits per channel. Pillow would clip 16 bits at 255, so all would be white.

    Raises:
        DataError: If its values are 32-bit integers or floating point.
    """
    is_deep = image.mode == "I" and image.format in ("PNG", "PPM")  # they have 16 bits at most
    if is_deep or image.mode.startswith("I;16"):
        levels = (np.asarray(image) >> 8).astype(np.uint8)
        return import_extra("PIL.Image", extra="data").fromarray(levels)
    if image.mode in ("I", "F"):
        raise BadImageError(
            f"{path}: holds 32-bit values of unknown range; save it with 8 or 16 bits"
        )
    return image


def confined_names(root: Path, names: Sequence[str], *, source: str) -> tuple[str, ...]:
    """Path of every file below the root, with forward slashes and all links followed.

    Args:
        root: Folder that all files must be in.
        names: Files, relative to the root; an absolute name is fine if it is inside.
        source: File that names them, for messages.

    Raises:
        DataError: If a name is blank, holds a NUL, or points outside the root, by ``..``, as an
            absolute path or through a link.
    """
    top = os.path.realpath(root)
    prefix = top if top.endswith(os.sep) else top + os.sep
    folders: dict[str, str] = {}  # a link in a folder's path is followed once for all its files
    inside = []
    for row, name in enumerate(names):
        if not name.strip() or "\0" in name:
            raise DataError(f"{source}: row {row} (counted from 0) has no usable path: {name!r}")
        folder, last = os.path.split(os.path.join(top, name))
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        path = os.path.join(folders[folder], last)
        if last in ("", ".", "..") or os.path.islink(path):
            path = os.path.realpath(path)
        if not path.startswith(prefix):
            raise DataError(
                f"{source}: row {row} (counted from 0) points outside {root}: {name!r}; give root "
                f"a folder that holds all files"
            )
        inside.append(path[len(prefix) :].replace(os.sep, "/"))
    return tuple(inside)


def check_present(data: Data) -> None:
    """Raises if an image file is missing; its content is checked when it is read.

    Raises:
        DataError: If one is missing, is empty or is not a regular file; the message counts them.
    """
    for split in data.splits().values():
        if not isinstance(split.inputs, ImageFiles):
            continue
        wrong = [
            (row, problem)
            for row, name in enumerate(split.inputs.names)
            if (problem := missing_reason(split.inputs.root / name)) is not None
        ]
        if wrong:
            row, problem = wrong[0]
            more = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
            raise BadImageError(f"{data.name}: row {str(split.row_ids[row])!r}: {problem}{more}")


def missing_reason(path: Path) -> str | None:
    """Why there is no file to read here, or None if there is one."""
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: cannot be opened ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return f"{path}: is not a regular file"
    return f"{path}: is empty (0 bytes)" if status.st_size == 0 else None
