"""The rows of a run: loaded, given noise, held out, and measured on."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from imae.data import ArrayImages, Data, ImageFiles, Split, extract_features, hold_out, load
from imae.data.fitted import fit_preparation
from imae.data.sources.root import data_root
from imae.errors import ArgumentError
from imae.models import PUBLISHED_INPUTS, build, load_weights, pretrained_weights
from imae.noise import KINDS, apply, parse, parse_mapping
from imae.train.config import Config, DataConfig

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows that a run uses.

    Args:
        train: Rows to train on, under their given labels.
        validation: Rows held out under their given labels, if any.
        test: Rows to report on, if the data has them.
    """

    train: Split
    validation: Split | None
    test: Split | None

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
    data = load(settings.name, root=settings.root, **settings.options)
    if settings.features is not None:
        data = _as_features(data, settings)
    train, validation = data.train, data.validation
    if config.noise is not None:
        train = _corrupt(train, config, config.seed)
        validation = validation and _corrupt(validation, config, config.seed + 1)
    if validation is None and settings.hold_out > 0:
        train, validation = hold_out(train, settings.hold_out, config.seed)
    return Prepared(train, validation, data.test)


def _corrupt(split: Split, config: Config, seed: int) -> Split:
    assert config.noise is not None
    spec = parse(config.noise)
    mapping = config.noise_map
    noisy = apply(
        spec,
        split.labels,
        num_classes=split.num_classes,
        seed=seed,
        exact=config.noise_exact,
        mapping=None if mapping is None else parse_mapping(mapping, split.class_names),
        features=_flat_inputs(split) if "features" in KINDS.find(spec.kind).defaults else None,
    )
    return split.relabel(noisy.labels)


def _flat_inputs(split: Split) -> NDArray[np.float32]:
    chunks = np.array_split(np.arange(len(split)), range(_ROWS_AT_ONCE, len(split), _ROWS_AT_ONCE))
    parts = [split.inputs.batch(rows, generator=None).flatten(1).numpy() for rows in chunks]
    return np.concatenate(parts)


def _as_features(data: Data, settings: DataConfig) -> Data:
    name = settings.features
    assert name is not None
    if name not in PUBLISHED_INPUTS:
        known = ", ".join(PUBLISHED_INPUTS)
        raise ArgumentError(f"features must be one of {known}, got {name!r}")
    weights = pretrained_weights(name)
    network = build(name, num_classes=1000)
    load_weights(network, weights)
    resized = _for_published(name)
    features = data.map_splits(
        lambda split: extract_features(
            resized(split),
            network.features,
            name=weights.name,
            cache=data_root() / "features",
            workers=settings.workers,
        )
    )
    return fit_preparation(features)


def _for_published(name: str) -> Callable[[Split], Split]:
    """Images prepared the way that the published weights were trained on."""
    wanted = PUBLISHED_INPUTS[name]
    mean = tuple(each / 255 for each in wanted.mean)
    std = tuple(each / 255 for each in wanted.std)

    def prepared(split: Split) -> Split:
        inputs = split.inputs
        if isinstance(inputs, ImageFiles):
            size = wanted.image_size
            resize = max(inputs.resize, size)
            return replace(
                split, inputs=replace(inputs, mean=mean, std=std, crop=size, resize=resize)
            )
        if isinstance(inputs, ArrayImages) and inputs.shape[0] == len(mean):
            return replace(split, inputs=replace(inputs, mean=mean, std=std))
        raise ArgumentError(f"features of {name} are for colour images")

    return prepared
