"""Rows that a program has in memory as data: torch data sets, arrays and data frames."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from imae._draws import row_draws
from imae.data.arrays import array_inputs
from imae.data.assemble import Columns, assemble, position_ids
from imae.data.columns import LABEL_NAMES, CellError, first_invalid
from imae.data.features import Table
from imae.data.split import Data, Inputs
from imae.data.table_file import FrameColumns
from imae.errors import ArgumentError, DataError


@final
@dataclass(frozen=True, eq=False)
class DatasetInputs(Inputs):
    """Inputs of a data set of (input, label) pairs.

    Transforms that draw from torch's global generator stay random and become reproducible: for
    each item that generator is seeded by the row and restored afterwards. Those that draw from
    ``random`` or numpy's global state are not changed.

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
        return tuple(self._input(int(self.rows[0]) if len(self) else 0).shape)

    def gather(self, rows: NDArray[np.int64], *, generator: torch.Generator | None) -> Tensor:
        """The inputs at these positions, as the data set returns them, stacked."""
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
        """The rows at these positions."""
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
        validation: The same, to choose a model by.
        test: The same, to report on.
        name: Name of the set.
        class_names: Names of the classes, if the labels are integers from 0.

    Raises:
        ArgumentError: If a data set has no length or cannot be indexed.
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
        if not _is_map_style(dataset):
            raise ArgumentError(f"{part} must be a map-style data set, got {dataset!r}")
        columns[part] = Columns(
            source=f"{name}, {part}",
            inputs=DatasetInputs(dataset, np.arange(len(dataset))),
            labels=_labels(dataset),
            row_ids=position_ids(len(dataset)),
        )
    return assemble(columns, name=Path(name).name, class_names=class_names)


def _is_map_style(rows: object) -> bool:
    """Whether rows are indexed by number; a dictionary is indexed by key."""
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    return has_items and not isinstance(rows, Mapping | str | bytes)


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


def from_arrays(
    x: Any, y: Any, *, name: str = "arrays", class_names: Sequence[str] | None = None
) -> Data:
    """Arrays of inputs and labels as data; a row's id is its position, counted from 0.

    The numbers are not changed: ``imae.train.train`` standardises them.

    Args:
        x: Features (N, F), as an array, a tensor or a data frame; or images, uint8, shape
            (N, H, W), (N, H, W, C) or (N, C, H, W). Arrays of any other shape or dtype
            are used as network inputs unchanged.
        y: Labels, shape (N,): names, or integers from 0.
        name: Name of the data.
        class_names: Names of the classes, if the labels are integers from 0.

    Raises:
        DataError: If a number or label cannot be used, or the lengths differ.

    Examples:
        >>> from_arrays(np.eye(4), ["cat", "dog", "dog", "cat"]).class_names
        ('cat', 'dog')
    """
    inputs = inputs_in_memory(x, where=name)
    labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    if labels.shape != (len(inputs),):
        raise DataError(f"{name}: {len(inputs)} rows of inputs but labels of shape {labels.shape}")
    columns = Columns(
        source=name,
        inputs=inputs,
        labels=labels.tolist(),
        row_ids=position_ids(len(inputs)),
    )
    return assemble({"train": columns}, name=name, class_names=class_names)


def as_data(rows: object) -> Data:
    """Converts a torch data set, arrays ``(X, y)`` or a frame with labels; data is unchanged.

    Raises:
        ArgumentError: If it is none of these.
        DataError: If the rows cannot be used.

    Examples:
        >>> as_data((np.eye(2), [0, 1])).num_classes
        2
    """
    if isinstance(rows, Data):
        return rows
    if isinstance(rows, tuple | list) and len(rows) == 2:
        return from_arrays(*rows)
    if hasattr(rows, "columns"):  # a frame of pandas or polars
        return from_arrays(*_split_frame(rows))
    is_array = isinstance(rows, tuple | list | Tensor | np.ndarray) or hasattr(rows, "to_numpy")
    if is_array or not _is_map_style(rows):
        raise ArgumentError(
            "data must be an imae.data.Data, a map-style torch data set of (input, label) pairs, "
            f"arrays (X, y) or a data frame; got {type(rows).__name__}"
        )
    return from_dataset(rows)


def _split_frame(frame: Any) -> tuple[Any, Any]:
    """The columns of features and the column of labels."""
    names = list(frame.columns)  # not always texts
    labels = [name for name in names if name in LABEL_NAMES]
    if len(labels) != 1:
        raise DataError(
            f"a data frame must have one column called {' or '.join(LABEL_NAMES)}, "
            f"got {', '.join(map(str, names[:10]))}; or give features and labels separately: "
            "(frame, labels)"
        )
    return frame[[name for name in names if name != labels[0]]], frame[labels[0]]


def inputs_in_memory(x: Any, *, where: str) -> Inputs:
    """Inputs from an array, a tensor, a data frame or a torch data set; see ``from_arrays``.

    Args:
        x: One input for each row; for a data set, the first element of its items.
        where: What the rows are called in messages.

    Raises:
        DataError: If the values cannot be used.
    """
    if hasattr(x, "toarray") or (isinstance(x, Tensor) and x.layout is not torch.strided):
        raise ArgumentError("rows must not be sparse; give x.toarray(), or of torch x.to_dense()")
    is_array = isinstance(x, Tensor | np.ndarray | list | tuple) or hasattr(x, "to_numpy")
    if not is_array:
        if not _is_map_style(x):
            raise ArgumentError(
                f"rows must be an array, a data frame or a map-style data set, got {x!r}"
            )
        return DatasetInputs(x, np.arange(len(x)))
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x  # numpy has no such type
    values = np.asarray(x)
    if values.ndim >= 3 and values.dtype.kind == "f":
        return DatasetInputs(TensorDataset(torch.from_numpy(values)), np.arange(len(values)))
    names = getattr(x, "columns", None)
    if names is not None and (values.dtype.kind not in "iufb" or first_invalid(values) is not None):
        values = _numbers_of_frame(x, where)
    inputs = array_inputs(values, pad=4, flip=True, where=where)
    if isinstance(inputs, Table) and names is not None:
        return replace(inputs, columns=tuple(map(str, names)))
    return inputs


def _numbers_of_frame(frame: Any, where: str) -> NDArray[np.float64]:
    """The numbers of a frame whose columns are of several types, shape (N, F)."""
    file = FrameColumns(frame, where)
    try:
        return file.read((), file.names)[1]
    except CellError as error:
        raise DataError(
            f"{error.problem}; words, dates and empty cells are read from files: write the frame "
            "to a .csv or .parquet file and give its path"
        ) from None
