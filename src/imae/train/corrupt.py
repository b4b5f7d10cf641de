"""Noise on the labels of a split."""

import math

import numpy as np
from numpy.typing import NDArray

from imae.data.split import Split
from imae.errors import ArgumentError
from imae.noise import KINDS, NoiseSpec, NoisyLabels, apply, parse_mapping

_ROWS_AT_ONCE = 256


def corrupt_split(
    split: Split, spec: NoiseSpec, *, seed: int, mapping: str | None = None, exact: bool = False
) -> NoisyLabels:
    """The labels of a split under noise.

    Args:
        split: Rows whose labels count as clean.
        spec: Kind and rate.
        seed: Seed of every draw.
        mapping: ``FROM:TO,FROM:TO`` by class name or number, for ``pairs``.
        exact: Change exactly the asked part of the rows.

    Raises:
        ArgumentError: If the kind lacks what it needs or does not take what it got.
    """
    options = KINDS.find(spec.kind).defaults
    if "mapping" in options and mapping is None:
        raise ArgumentError(f"noise {spec.kind!r} needs a map FROM:TO,FROM:TO")
    if "mapping" not in options and mapping is not None:
        raise ArgumentError(f"noise {spec.kind!r} takes no map; leave it out")
    if "exact" not in options and exact:
        raise ArgumentError(f"noise {spec.kind!r} has no exact number of changes; leave that out")
    return apply(
        spec,
        split.labels,
        num_classes=split.num_classes,
        seed=seed,
        exact=exact,
        mapping=None if mapping is None else parse_mapping(mapping, split.class_names),
        features=_features(split) if "features" in options else None,
    )


def _features(split: Split) -> NDArray[np.float32]:
    features = np.empty((len(split), math.prod(split.inputs.shape)), dtype=np.float32)
    for start in range(0, len(split), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(split)))
        features[rows] = split.inputs.batch(rows, generator=None).flatten(1).numpy()
    return features
