"""The rows of a run: loaded, given noise, held out, and measured on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.data import Inputs, Split, hold_out, load
from imae.data.fitted import fit_preparation
from imae.errors import ArgumentError, DataError
from imae.methods.catalog import METHODS
from imae.noise import NoisyLabels, parse
from imae.train.config import Config
from imae.train.corrupt import corrupt_split
from imae.train.frozen import frozen_features, published_images
from imae.train.given_labels import relabel_from_file

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
    """

    train: Split
    validation: Split | None
    test: Split | None
    trusted: Split | None = None
    transition: NDArray[np.float64] | None = None
    images: Inputs | None = None

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
    counted = transition = _counted_transition(train)
    if config.noise is not None:
        corrupt = _noise(config)
        noisy = corrupt(train, config.seed)
        train = train.relabel(noisy.labels)
        # Noise on labels that were noisy before: from the truth to the given label, then on.
        transition = noisy.transition if counted is None else counted @ noisy.transition
        if validation is not None:
            validation = validation.relabel(corrupt(validation, config.seed + 1).labels)
    if validation is None and settings.hold_out > 0:
        train, validation = hold_out(train, settings.hold_out, config.seed)
    if train.weights is not None and not train.weights.any():
        raise DataError(f"{settings.name}: all rows to train on have weight 0")
    return Prepared(train, validation, data.test, trusted, transition, images)


def _sampled(train: Split, rows: int, seed: int) -> Split:
    if rows >= len(train):
        raise ArgumentError(f"data.rows: {rows} of {len(train)} training rows; leave it out")
    return hold_out(train, rows / len(train), seed, purpose="rows")[1]


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


def _counted_transition(train: Split) -> NDArray[np.float64] | None:
    """How often each class has each given label, where the truth is known."""
    if train.clean_labels is None:
        return None
    counts = np.zeros((train.num_classes, train.num_classes))
    np.add.at(counts, (train.clean_labels, train.labels), 1)
    counts += np.eye(train.num_classes) * (counts.sum(1) == 0)  # a class without a row
    transition: NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return transition
