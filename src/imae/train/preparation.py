"""The preparation that a run has stored, for new rows and for a resume; features of networks."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from imae.data import ArrayImages, Data, ImageFiles, Inputs, Split, Table, extract_features
from imae.data.extract import embed_texts, is_text_embedding
from imae.data.labels import LABEL_KINDS
from imae.data.preparation import without_rows
from imae.data.sources.download import data_root
from imae.errors import ArgumentError, DataError
from imae.models import PUBLISHED_INPUTS, Network, build, load_weights, pretrained_weights
from imae.models.weights import PACKAGED_WEIGHTS
from imae.records import RunFolder, RunLabels
from imae.train.config import ModelConfig
from imae.train.machine import has_bfloat16

_LATER = {"date_format", "number_format"}  # keys that runs of earlier versions do not have
_SMALL = 96
_ENLARGED = 112


def frozen_features(name: str, workers: int = 0) -> Callable[[Split], Split]:
    """A function that turns a split of images or texts into one of features.

    Features of images are cached. Texts need the name of an embedding (``embed_texts``).

    Images in memory that are much smaller than those the network was published for are enlarged
    to 112 x 112 first: CIFAR's objects would otherwise be smaller than anything it has seen.
    Features are computed in bfloat16 where the processor has instructions for it, twice as fast.

    Args:
        name: The published network, or the embedding of texts.
        workers: Processes that read and decode.

    Raises:
        ArgumentError: If there is no such network; when called, if the rows are not colour images,
            or not texts.
    """
    if is_text_embedding(name):
        return lambda split: replace(split, inputs=embed_texts(split.inputs, name))
    network = frozen_network(name)

    def features(split: Split) -> Split:
        images = replace(split, inputs=published_images(name, split.inputs))
        shape = images.inputs.shape
        kind = ("-112" if _is_small(shape) else "") + ("-bf16" if has_bfloat16() else "")
        return extract_features(
            images,
            image_features(network, shape),
            name=f"{pretrained_weights(name).name}{kind}",
            cache=data_root() / "features",
            workers=workers,
        )

    return features


def image_features(network: Network, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """The function with which a frozen network turns images of this shape into features."""
    network = network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = (_ENLARGED, _ENLARGED) if _is_small(shape) else None

    def features(images: Tensor) -> Tensor:
        if size is not None:
            images = functional.interpolate(images, size, mode="bicubic", align_corners=False)
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16()):
            found = network.features(images.contiguous(memory_format=torch.channels_last))
        return found.float()

    return features


def _is_small(shape: tuple[int, ...]) -> bool:
    return max(shape[1:]) < _SMALL


def frozen_network(name: str) -> Network:
    """A network with its published weights.

    Raises:
        ArgumentError: If there is no such network.
    """
    if name not in PACKAGED_WEIGHTS:
        raise _unknown_features(name)
    network = build(name, num_classes=1000)
    load_weights(network, pretrained_weights(name))
    return network


def published_images(name: str, inputs: Inputs) -> Inputs:
    """The images prepared as for the training of the published weights; texts unchanged.

    Args:
        name: The published network, or an embedding of texts.
        inputs: Colour images, in files or in memory, or texts.

    Raises:
        ArgumentError: If there is no such network, or the inputs are not colour images.
    """
    if is_text_embedding(name):
        return inputs
    prepared = published_pixels(name, inputs)
    if isinstance(prepared, ImageFiles):
        size = PUBLISHED_INPUTS[name].image_size
        return replace(prepared, crop=size, resize=max(prepared.resize, size))
    return prepared


def published_pixels(name: str, inputs: Inputs) -> Inputs:
    """The images at their own size, with the pixels that the published weights were trained on.

    Raises:
        ArgumentError: If there is no such network, or the inputs are not colour images.
    """
    if name not in PUBLISHED_INPUTS:
        raise _unknown_features(name)
    wanted = PUBLISHED_INPUTS[name]
    is_colour = isinstance(inputs, ArrayImages) and inputs.shape[0] == len(wanted.mean)
    if not (isinstance(inputs, ImageFiles) or is_colour):
        raise ArgumentError(
            f"features of {name} are for colour images, which these rows are not; leave "
            "data.features (--features) out"
        )
    assert isinstance(inputs, ArrayImages | ImageFiles)
    mean = tuple(each / 255 for each in wanted.mean)
    std = tuple(each / 255 for each in wanted.std)
    return replace(inputs, mean=mean, std=std, blue_first=wanted.is_blue_first)


def with_start_pixels(model: ModelConfig, data: Data, *, is_scaled: bool) -> tuple[Data, bool]:
    """The data as a network's initial weights need it, and whether it is then standardised.

    Published weights that were trained on blue, green, red pixels of 0 to 255 get such pixels.

    Raises:
        ArgumentError: If the weights need them, and the inputs are not colour images.
    """
    name = model.name or ""
    published = PUBLISHED_INPUTS.get(name)
    if model.init is None or published is None or not published.is_blue_first:
        return data, is_scaled

    def prepared(split: Split) -> Split:
        return replace(split, inputs=published_pixels(name, split.inputs))

    return data.map_splits(prepared), True


def full_embedding(name: str | None) -> str | None:
    """The name of features with the path of a folder of embeddings made absolute."""
    is_folder = name not in (None, "wordllama", *PUBLISHED_INPUTS)
    return os.path.abspath(name) if is_folder and name is not None else name


def _unknown_features(name: str) -> ArgumentError:
    return ArgumentError(
        f"features must be one of {', '.join(PACKAGED_WEIGHTS)} for images, wordllama or a folder "
        f"for texts, got {name!r}"
    )


@dataclass(frozen=True, eq=False)
class Preparation:
    """What is needed to use the network of a run on new rows.

    Args:
        class_names: Names of the classes, in the order of the logits.
        input_shape: Shape of one prepared row.
        described: How rows become inputs, as plain values.
        like: Inputs without rows, a template for new rows.
        features: For a run on features of a frozen network, a template for these.
        label_kind: What the labels were in the data, one of ``LABEL_KINDS``.
    """

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    described: dict[str, Any]
    like: Inputs
    features: Table | None = None
    label_kind: str = "name"


def read_preparation(folder: RunFolder) -> Preparation:
    """Reads how the rows of a run are prepared from its folder; its data is not needed.

    Raises:
        DataError: If the folder does not hold the preparation, or it is damaged.
    """
    content = folder.preparation()
    path = folder.path / "preparation.json"
    try:
        described = dict(content["preparation"])
        features = None
        like = described
        if described["kind"] == "frozen_features":
            features = without_rows({**described, "kind": "features", "columns": None})
            like = described["images"]
        shape = tuple(map(int, content["input_shape"]))
        read = without_rows(like)
        if shape != (read if features is None else features).shape:
            raise ValueError(f"inputs of shape {shape} do not match the rest")
        kind = content.get("label_kind", "name")  # runs of earlier versions have none
        if kind not in LABEL_KINDS:
            raise ValueError(f"unknown kind of labels {kind!r}")
        return Preparation(
            class_names=tuple(map(str, content["class_names"])),
            input_shape=shape,
            described=described,
            like=read,
            features=features if isinstance(features, Table) else None,
            label_kind=kind,
        )
    # The file may hold anything, of any type and size.
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise DataError(f"{path}: is damaged ({error}); train the run again") from error


def check_same_data(
    run: RunFolder, labels: RunLabels, held: RunLabels | None, described: dict[str, Any]
) -> None:
    """Raises if the data has changed since a run was started.

    Args:
        run: The run folder.
        labels: Labels of the rows to train on.
        held: Labels that are not trained on, if there are any.
        described: Their preparation and the hashes of all parts, as ``rows.describe`` gives them.

    Raises:
        DataError: If a row, a label, a weight, the content of a part or the preparation differs.
    """
    _check_same_labels(run.labels(), labels, run)
    held_before = run.held_labels()  # runs of earlier versions have none
    if held is not None and held_before is not None:
        _check_same_labels(held_before, held, run)
    _check_same_inputs(run.preparation(), described, run)


def _check_same_labels(before: RunLabels, now: RunLabels, run: RunFolder) -> None:
    if len(before.given) == len(now.given):
        changed = (before.row_ids != now.row_ids) | (before.given != now.given)
        if changed.any():
            row = f"row {str(now.row_ids[int(changed.argmax())])!r} differs"
        elif not _are_equal(before.clean, now.clean):
            row = "the true labels differ"
        else:
            return
    else:
        row = f"{len(now.given)} rows instead of {len(before.given)}"
    raise DataError(f"{run.path}: the data is not what this run was started on: {row}")


def _are_equal(before: NDArray[np.int64] | None, now: NDArray[np.int64] | None) -> bool:
    if before is None or now is None:
        return before is now
    return np.array_equal(before, now)


def _check_same_inputs(before: dict[str, Any], now: dict[str, Any], run: RunFolder) -> None:
    """Compares the content of every part of the data, and how rows are prepared."""
    hashes = before.get("content", {})  # runs of earlier versions have none
    for part in hashes.keys() | (now["content"].keys() if hashes else set()):
        if hashes.get(part) != now["content"].get(part):
            raise DataError(
                f"{run.path}: the data is not what this run was started on: the {part} part differs"
            )
    annotations = before.get("annotations", {})  # nor have they these
    for name, value in now["annotations"].items():
        if annotations.get(name, value) != value:
            raise DataError(
                f"{run.path}: the data is not what this run was started on: the {name} differ"
            )
    for key in ("class_names", "input_shape", "preparation"):
        if not _is_close(before.get(key), now[key]):
            raise DataError(
                f"{run.path}: the data is not what this run was started on: its {key} differs"
            )


def _is_close(before: Any, now: Any) -> bool:
    """Whether nested values are equal; numbers may differ in their last digits between machines.

    Values that an earlier version did not store are not compared.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        same = before.keys() | (_LATER & now.keys())
        return same == now.keys() and all(_is_close(before[key], now[key]) for key in before)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_is_close, before, now))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)
    return bool(before == now)
