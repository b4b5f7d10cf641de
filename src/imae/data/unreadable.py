"""Images that cannot be read: found before training, left out or refused."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from imae._checks import check_integer
from imae.data.image_files import ImageFiles, decode
from imae.data.split import Data, Skipped, Split
from imae.errors import DataError


def drop_unreadable(data: Data, *, workers: int = 0) -> Data:
    """The data without the images that cannot be read, which it lists under ``skipped``.

    Every image is decoded once, so this takes about as long as an epoch of reading.

    Args:
        data: Data whose inputs are image files; other inputs come back as they are.
        workers: Processes that decode; 0 does it in this one.

    Raises:
        ArgumentError: If ``workers`` is negative.
        DataError: If a split loses all its images, or the training rows a whole class.
    """
    check_integer("workers", workers, low=0)
    skipped: list[Skipped] = []

    def readable(split: Split) -> Split:
        problems = _problems(split, workers)
        kept = [row for row, problem in enumerate(problems) if problem is None]
        skipped.extend(
            Skipped(str(split.row_ids[row]), problem)
            for row, problem in enumerate(problems)
            if problem is not None
        )
        if not kept:
            raise DataError(f"{data.name}: no image can be read; the first: {problems[0]}")
        return split.take(np.array(kept)) if len(kept) < len(split) else split

    cleaned = data.map_splits(readable)
    left = np.bincount(cleaned.train.labels, minlength=data.num_classes)
    lost = np.flatnonzero((left == 0) & (np.bincount(data.train.labels, minlength=len(left)) > 0))
    if len(lost):
        raise DataError(
            f"{data.name}: no image of class {data.class_names[lost[0]]!r} can be read; "
            f"the first problem: {skipped[0].reason}"
        )
    return Data(
        data.name, cleaned.train, cleaned.validation, cleaned.test, (*data.skipped, *skipped)
    )


def check_present(data: Data) -> None:
    """Raises if an image file is not there; whether it can be read shows when it is.

    Raises:
        DataError: If one is missing, is empty or is no ordinary file; the message counts them all.
    """
    for split in data.splits().values():
        if not isinstance(split.inputs, ImageFiles):
            continue
        wrong = [
            (row, problem)
            for row, name in enumerate(split.inputs.names)
            if (problem := _absence(split.inputs.root / name)) is not None
        ]
        if wrong:
            row, problem = wrong[0]
            more = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
            raise DataError(f"{data.name}: row {str(split.row_ids[row])!r}: {problem}{more}")


def _problems(split: Split, workers: int) -> Sequence[str | None]:
    """What is wrong with the image of every row, or None."""
    if not isinstance(split.inputs, ImageFiles):
        return [None] * len(split)
    loader = DataLoader(
        _Checks(split.inputs), batch_size=None, num_workers=workers, generator=torch.Generator()
    )
    return [problem or None for problem in loader]


class _Checks(Dataset[str]):
    """What is wrong with each image, as text that may be empty."""

    def __init__(self, images: ImageFiles) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> str:
        path = self._images.root / self._images.names[row]
        absence = _absence(path)
        if absence is not None:
            return absence
        try:
            decode(path, size=1)
        except DataError as error:
            return str(error)
        return ""


def _absence(path: Path) -> str | None:
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: cannot be opened ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return f"{path}: is no ordinary file"
    return f"{path}: is empty (0 bytes)" if status.st_size == 0 else None
