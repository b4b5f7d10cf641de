"""What a person should know about data before training on it."""

import re
from collections import defaultdict

import numpy as np

from imae.data.encoding import RawTable
from imae.data.features import HashedText, Table
from imae.data.split import Data

_MOST_NAMES = 5
_MANY_CLASSES = 20
_DECIMAL = re.compile(r"-?\d*\.\d+(e-?\d+)?", re.IGNORECASE)


def label_notes(data: Data) -> list[str]:
    """Doubts about the labels: numbers that are measured, and classes that may be one.

    Examples:
        >>> from imae.data import from_arrays
        >>> label_notes(from_arrays(np.eye(6), ["cat", "Cat", "dog"] * 2))
        ["classes 'Cat' and 'cat' differ only in case or blanks; are they one class?"]
    """
    notes = []
    alike = defaultdict(list)
    for name in data.class_names:
        alike[" ".join(name.lower().split())].append(name)
    for same in alike.values():
        if len(same) > 1:
            listed = " and ".join(map(repr, same))
            notes.append(f"classes {listed} differ only in case or blanks; are they one class?")
    names = data.class_names
    decimals = sum(_DECIMAL.fullmatch(name) is not None for name in names)
    if decimals > len(names) / 2:
        notes.append(
            f"the labels are {len(names)} different numbers with decimals, for example {names[0]}; "
            f"they look like measurements, and this program predicts classes"
        )
    elif len(names) > max(_MANY_CLASSES, len(data.train) / 2):
        notes.append(f"there are {len(names)} classes for {len(data.train)} training rows")
    counts = np.bincount(data.train.labels, minlength=len(names))
    rare = [names[label] for label in np.flatnonzero(counts == 1)]
    if rare:
        which = f"class {rare[0]!r} has" if len(rare) == 1 else f"{len(rare)} classes have"
        notes.append(f"{which} only one training row")
    return notes


def describe(data: Data) -> str:
    """One line of what was read: rows, classes with their counts, and columns.

    Examples:
        >>> from imae.data import load
        >>> describe(load("digits"))  # doctest: +ELLIPSIS
        'digits: 1442 training rows, 355 test rows; 10 classes (0 143, ...); images 1 x 8 x 8'
    """
    kinds = {"train": "training", "validation": "validation", "test": "test"}
    rows = ", ".join(f"{len(split)} {kinds[part]} rows" for part, split in data.splits().items())
    counts = np.bincount(data.train.labels, minlength=data.num_classes)
    shown = [
        f"{name} {count}" for name, count in zip(data.class_names, counts.tolist(), strict=True)
    ]
    more = ", ..." if len(shown) > _MOST_NAMES else ""
    classes = f"{data.num_classes} classes ({', '.join(shown[:_MOST_NAMES])}{more})"
    skipped = f"; {len(data.skipped)} rows skipped" if data.skipped else ""
    return f"{data.name}: {rows}{skipped}; {classes}; {_inputs(data)}"


def _inputs(data: Data) -> str:
    inputs = data.train.inputs
    if isinstance(inputs, HashedText):
        return "texts"
    if isinstance(inputs, RawTable):
        return f"columns {_some([column.name for column in inputs.columns])}"
    if isinstance(inputs, Table) and inputs.encoding is not None:
        names = [f"{each.name} ({each.kind})" for each in inputs.encoding]
        return f"columns {_some(names)}"
    if isinstance(inputs, Table) and inputs.columns is not None:
        return f"columns {_some(inputs.columns)}"
    size = " x ".join(map(str, inputs.shape))
    return f"{size} features" if len(inputs.shape) == 1 else f"images {size}"


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
