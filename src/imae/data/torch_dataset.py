"""Any map-style torch data set as data."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae._draws import row_draws
from imae.data.assemble import Columns, assemble, position_ids
from imae.data.split import Data, Inputs
from imae.errors import ArgumentError, DataError


@final
@dataclass(frozen=True, eq=False)
class DatasetInputs(Inputs):
    """Inputs of a data set that gives (input, label) pairs.

    Transforms that draw from torch's global generator stay random and become reproducible: for
    each item that generator is seeded by the row and put back afterwards. Those that draw from
    ``random`` or numpy's global state are out of our hands.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``; the first element of an item is its input, a
            tensor or an array of numbers, of one shape for all rows.
        rows: Items that are the rows here, shape (N,).
    """

    dataset: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return tuple(self.gather(np.zeros(1, np.int64), generator=None).shape[1:])

    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions, as the data set gives them, stacked."""
        seeds = np.zeros(len(rows), np.int64)
        if generator is not None:
            seeds = row_draws(rows, (2**32,), generator=generator)[0]
        inputs = []
        for row, seed in zip(rows, seeds, strict=True):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(int(seed))
                inputs.append(self._input(int(self.rows[row])))
            if inputs[-1].shape != inputs[0].shape:
                raise DataError(
                    f"item {self.rows[row]} of the data set has shape "
                    f"{tuple(inputs[-1].shape)}, others {tuple(inputs[0].shape)}"
                )
        return torch.stack(inputs)

    def finish(self, gathered: Tensor) -> Tensor:
        """The inputs as float32."""
        return gathered.to(torch.float32)

    def take(self, rows: NDArray[np.int64]) -> "DatasetInputs":
        """The rows at these positions alone."""
        return DatasetInputs(self.dataset, self.rows[rows])

    def content_hash(self) -> str:
        """Hash of all inputs, which reads the whole data set once."""
        digest = hashlib.sha256(repr(("dataset", len(self))).encode())
        for row in range(len(self)):
            inputs = self.gather(np.array([row]), generator=None)
            digest.update(repr((inputs.dtype, tuple(inputs.shape))).encode())
            digest.update(np.ascontiguousarray(inputs.numpy()).data)
        return digest.hexdigest()

    def _input(self, item: int) -> Tensor:
        value = self.dataset[item][0]
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"item {item} of the data set is a {type(value).__name__}; "
                f"inputs must be tensors or arrays of numbers"
            ) from error


def from_dataset(
    train: Any,
    *,
    validation: Any = None,
    test: Any = None,
    name: str = "dataset",
    class_names: Sequence[str] | None = None,
) -> Data:
    """A torch data set as data; a row's id is its index, counted from 0.

    Labels are read once: from the data set's ``targets`` if it has them and no
    ``target_transform``, else from its items.

    Args:
        train: Map-style data set of (input, label) pairs; labels are integers or names.
        validation: The same, to choose by.
        test: The same, to report on.
        name: Name of the set.
        class_names: Names of the classes, if the labels are integers from 0.

    Raises:
        ArgumentError: If a data set has no length or no items by index.
        DataError: If a label is missing, out of range or never seen in training.

    Examples:
        >>> from torch.utils.data import TensorDataset
        >>> dataset = TensorDataset(torch.eye(4), torch.tensor([0, 1, 1, 0]))
        >>> from_dataset(dataset).train.labels.tolist()
        [0, 1, 1, 0]
    """
    parts = {"train": train, "validation": validation, "test": test}
    present = {part: dataset for part, dataset in parts.items() if dataset is not None}
    columns = {}
    for part, dataset in present.items():
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ArgumentError(f"{part} must be a map-style data set, got {dataset!r}")
        columns[part] = Columns(
            source=f"{name}, {part}",
            inputs=DatasetInputs(dataset, np.arange(len(dataset))),
            labels=_labels(dataset),
            row_ids=position_ids(len(dataset)),
        )
    return assemble(columns, name=Path(name).name, class_names=class_names)


def _labels(dataset: Any) -> list[object]:
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        targets = [dataset[item][1] for item in range(len(dataset))]
    values: list[object] = [
        value.item() if isinstance(value, np.generic) or _is_number(value) else value
        for value in targets
    ]
    return values


def _is_number(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1
