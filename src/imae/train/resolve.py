"""Settings left open, filled in from the data and the machine."""

from collections.abc import Sequence
from typing import Any

import torch

from imae.errors import ArgumentError
from imae.methods.catalog import METHODS
from imae.methods.matrix import is_matrix_file, read_matrix
from imae.train.config import Config
from imae.train.prepare import Prepared

_DEFAULT_EPOCHS = 40
_DEFAULT_BATCH_SIZE = 64
_SMALL_IMAGE = 24
_PHOTO = 96


def resolved(config: Config, prepared: Prepared) -> Config:
    """The configuration with nothing left open: what is written down, and what a resume reads.

    Raises:
        ArgumentError: If the batch is larger than the data.
    """
    rows = len(prepared.train)
    train = config.train
    if train.batch_size is not None and train.batch_size > rows:
        raise ArgumentError(
            f"train.batch_size: {train.batch_size} is more than the {rows} rows to train on"
        )
    batch_size = train.batch_size or min(_DEFAULT_BATCH_SIZE, rows)
    epochs = train.epochs or (None if train.steps is not None else _DEFAULT_EPOCHS)
    name = config.model.name or model_for(prepared.train.inputs.shape)
    changes: dict[str, Any] = {
        "train": train.model_copy(update={"batch_size": batch_size, "epochs": epochs}),
        "model": config.model.model_copy(update={"name": name}),
        "method": config.method.model_copy(
            update={"arguments": _method_arguments(config, prepared.train.num_classes)}
        ),
        "data": config.data.model_copy(update={"trusted": _trusted(config, prepared)}),
        "machine": config.machine.model_copy(
            update={"threads": config.machine.threads or torch.get_num_threads()}
        ),
    }
    return config.model_copy(update=changes)


def model_for(shape: Sequence[int]) -> str:
    """Name of a network that suits inputs of this shape.

    Examples:
        >>> model_for((64,)), model_for((1, 8, 8)), model_for((3, 32, 32)), model_for((3, 227, 227))
        ('mlp', 'small_cnn', 'resnet20', 'resnet50')
    """
    if len(shape) != 3:
        return "mlp"
    if max(shape[1:]) < _SMALL_IMAGE:
        return "small_cnn"
    return "resnet20" if max(shape[1:]) < _PHOTO else "resnet50"


def _method_arguments(config: Config, num_classes: int) -> dict[str, Any]:
    arguments = dict(config.method.arguments)
    if "num_classes" in METHODS.find(config.method.name).defaults:
        arguments.setdefault("num_classes", num_classes)
    # The numbers, not the name of their file: the run must outlive it.
    return {
        key: read_matrix(key, value).tolist() if is_matrix_file(value) else value
        for key, value in arguments.items()
    }


def _trusted(config: Config, prepared: Prepared) -> int | str | None:
    if config.data.trusted is not None or prepared.trusted is None:
        return config.data.trusted
    return len(prepared.trusted)
