"""The rows of a run: loaded, corrupted, held out, and described for later predictions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.data import (
    ArrayImages,
    ImageFiles,
    Inputs,
    Split,
    Table,
    extract_features,
    hold_out,
    load,
    sample_rows,
)
from imae.data.preparation import describe_preparation, fit_preparation, without_rows
from imae.data.sources.archive import data_root
from imae.errors import ArgumentError, DataError
from imae.methods.catalog import METHODS
from imae.models import PUBLISHED_INPUTS, build, load_weights, pretrained_weights
from imae.noise import NoisyLabels, parse
from imae.records import RunFolder
from imae.train.config import Config
from imae.train.relabel import (
    corrupt_split,
    counted_transition,
    plant_wrong_labels,
    relabel_from_file,
)


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


_TRUSTED_PER_CLASS = 10


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows that a run uses.

    Args:
        train: Rows to train on, under their given labels.
        validation: Rows held out under their given labels, if any.
        test: Rows to report on, if the data has them.
        trusted: Rows with labels known to be right, for methods that learn from some.
        transition: Chance of each given label, by true label, shape (C, C), where it is known.
        images: The images that a frozen network made features of, if they are trained on.
        planted: Rows whose label in ``train`` was drawn wrong, under their given labels.
        is_held_out: Whether ``validation`` was taken from the training rows of the data.
    """

    train: Split
    validation: Split | None
    test: Split | None
    trusted: Split | None = None
    transition: NDArray[np.float64] | None = None
    images: Inputs | None = None
    planted: Split | None = None
    is_held_out: bool = False

    @property
    def unseen(self) -> tuple[Split, ...]:
        """Training rows of the data under labels that are not trained on: held out, planted."""
        held = self.validation if self.is_held_out else None
        return tuple(split for split in (held, self.planted) if split is not None)

    @property
    def is_planted(self) -> NDArray[np.bool_] | None:
        """Whether the label of each training row was drawn wrong, shape (N,), if any was."""
        planted = self.planted
        return None if planted is None else np.isin(self.train.row_ids, planted.row_ids)

    @property
    def is_flipped(self) -> NDArray[np.bool_] | None:
        """Whether the given label of each training row is wrong, shape (N,), where known."""
        if self.train.clean_labels is None:
            return None
        flipped: NDArray[np.bool_] = self.train.labels != self.train.clean_labels
        return flipped


def prepare(config: Config) -> Prepared:
    """Loads the data of a run, adds noise and holds rows out.

    Noise comes first, so that the held-out labels are as wrong as those trained on; a validation
    part that the data brings along gets noise of the same kind.

    Raises:
        ArgumentError: If an option does not fit the data.
        DataError: If the data cannot be used.
    """
    settings = config.data
    for name in ("root", "path", "name_or_path"):
        if name in settings.options:
            raise ArgumentError(
                f"data.options.{name}: no option; data.name and data.root say where it is"
            )
    data = load(settings.name, root=settings.root, **settings.options)
    if settings.labels is not None:
        skipped = [row.row_id for row in data.skipped]
        labelled = relabel_from_file(data.train, Path(settings.labels), skipped=skipped)
        data = replace(data, train=labelled)
    if settings.rows is not None:  # before the features, which take long
        data = replace(data, train=_sampled(data.train, settings.rows, config.seed))
    images = None
    if settings.features is not None:
        as_features = frozen_features(settings.features, workers=settings.workers)
        images = published_images(settings.features, data.train.inputs)
        data = fit_preparation(data.map_splits(as_features))
    train, validation = data.train, data.validation
    train, validation, trusted = _set_trusted_aside(train, validation, config)
    counted = transition = counted_transition(train)
    if config.noise is not None:
        corrupt = _noise(config)
        noisy = corrupt(train, config.seed)
        train = train.relabel(noisy.labels)
        # Noise on labels that were noisy before: from the truth to the given label, then on.
        transition = noisy.transition if counted is None else counted @ noisy.transition
        if validation is not None:
            validation = validation.relabel(corrupt(validation, config.seed + 1).labels)
    is_held_out = validation is None and settings.hold_out > 0
    if is_held_out:
        train, validation = hold_out(train, settings.hold_out, config.seed)
    if train.weights is not None and not train.weights.any():
        raise DataError(f"{settings.name}: all rows to train on have weight 0")
    share = settings.planted
    train, planted = plant_wrong_labels(train, share, config.seed) if share else (train, None)
    parts = (train, validation, data.test, trusted)
    return Prepared(*parts, transition, images, planted, is_held_out)


def _sampled(train: Split, rows: int, seed: int) -> Split:
    if rows >= len(train):
        raise ArgumentError(f"data.rows: {rows} of {len(train)} training rows; leave it out")
    return sample_rows(train, rows, seed)


def _is_truth_known(train: Split, config: Config) -> bool:
    return train.clean_labels is not None or config.noise is not None


def _set_trusted_aside(
    train: Split, validation: Split | None, config: Config
) -> tuple[Split, Split | None, Split | None]:
    """Training rows, validation rows, and the rows with labels known to be right."""
    wanted = config.data.trusted
    if (
        wanted is None
        and METHODS.build(config.method.name, **config.method.arguments).needs_trusted
    ):
        wanted = _TRUSTED_PER_CLASS * train.num_classes
        if not _is_truth_known(train, config):
            raise ArgumentError(
                f"{config.method.name} learns from rows with labels known to be right: give the "
                "data a validation part with such labels and set data.trusted=validation"
            )
    if wanted is None:
        return train, validation, None
    if wanted == "validation":
        if validation is None:
            raise ArgumentError("data.trusted: the data brings no validation part")
        return train, None, _under_true_labels(validation)
    assert isinstance(wanted, int)
    if not _is_truth_known(train, config):
        raise ArgumentError(
            "data.trusted: the true labels of these rows are not known; give the data a "
            "validation part with labels that are right and set data.trusted=validation"
        )
    if wanted >= len(train):
        raise ArgumentError(f"data.trusted: {wanted} rows of {len(train)} leave none to train on")
    train, trusted = hold_out(train, wanted / len(train), config.seed, purpose="trusted")
    return train, validation, _under_true_labels(trusted)


def _under_true_labels(split: Split) -> Split:
    return split if split.clean_labels is None else replace(split, labels=split.clean_labels)


def _noise(config: Config) -> Callable[[Split, int], NoisyLabels]:
    assert config.noise is not None
    spec = parse(config.noise)
    return lambda split, seed: corrupt_split(
        split, spec, seed=seed, mapping=config.noise_map, exact=config.noise_exact
    )


@dataclass(frozen=True, eq=False)
class Preparation:
    """What one must know to put new rows before the network of a run.

    Args:
        class_names: Names of the classes, in the order of the logits.
        input_shape: Shape of one prepared row.
        described: How rows become inputs, in plain values.
        like: Inputs without rows, prepared as those that new rows are read as.
        features: For a run on features of a frozen network, those without rows, in their scale.
    """

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    described: dict[str, Any]
    like: Inputs
    features: Table | None = None


def describe(prepared: Prepared, network: str | None) -> dict[str, Any]:
    """How the rows of a run are prepared, in plain values for ``RunFolder.write_preparation``.

    Args:
        prepared: The rows.
        network: Name of the frozen network whose features they are, if they are features.
    """
    inputs = prepared.train.inputs
    described = describe_preparation(inputs)
    if prepared.images is not None:
        images = describe_preparation(prepared.images)
        statistics = {name: described[name] for name in ("mean", "std")}
        described = {"kind": "frozen_features", "network": network, "images": images, **statistics}
    return {
        "class_names": list(prepared.train.class_names),
        "input_shape": list(inputs.shape),
        "preparation": described,
    }


def read_preparation(folder: RunFolder) -> Preparation:
    """How the rows of a run are prepared, as its folder says; its data is not needed.

    Raises:
        DataError: If the folder does not say, or what it says is damaged.
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
        return Preparation(
            class_names=tuple(map(str, content["class_names"])),
            input_shape=tuple(map(int, content["input_shape"])),
            described=described,
            like=without_rows(like),
            features=features if isinstance(features, Table) else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}); train the run again") from error
