"""Rows that a program has in memory as data: torch data sets, arrays, texts and data frames."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from imae.data.encoding import is_missing
from imae.data.features import hash_text
from imae.data.split import Data, Inputs
from imae.data.table import label_frame
from imae.data.table_file import FrameColumns
from imae.errors import ArgumentError, DataError, check_not_masked


@final
@dataclass(frozen=True, eq=False)
class DatasetInputs(Inputs):
    """Inputs of a data set of (input, label) pairs.

    Transforms that draw from torch's global generator stay random and become reproducible: for
    each item that generator is seeded by the row and restored afterwards. Those that draw from
    ``random`` or numpy's global state are not changed.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``; the first element of an item, or an item that
            has no label, is the input, a tensor or an array of numbers, of one shape for all rows.
        rows: Items that are the rows here, shape (N,).
    """

    dataset: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        item = int(self.rows[0]) if len(self) else 0
        shape = tuple(self._input(item).shape)
        if not shape:
            raise DataError(
                f"item {item} of the data set is one number; inputs have at least one dimension"
            )
        return shape

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
        value = _part(self.dataset, item, 0)
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
        if not is_map_style(dataset):
            raise ArgumentError(f"{part} must be a map-style data set, got {dataset!r}")
        columns[part] = Columns(
            source=f"{name}, {part}",
            inputs=DatasetInputs(dataset, np.arange(len(dataset))),
            labels=_labels(dataset),
            row_ids=position_ids(len(dataset)),
        )
    return assemble(columns, name=Path(name).name, class_names=class_names)


def is_map_style(rows: object) -> bool:
    """Whether rows are indexed by number; a dictionary is indexed by key."""
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    return has_items and not isinstance(rows, Mapping | str | bytes)


def _part(dataset: Any, item: int, place: int) -> Any:
    """The input, or the label, of an item; without a label, the item itself is the input."""
    pair = dataset[item]
    if isinstance(pair, Tensor | np.ndarray) and place == 0:
        return pair
    try:
        if isinstance(pair, Tensor | np.ndarray | str):
            raise TypeError("it has parts, but is not a pair")
        return pair[place]
    except (TypeError, LookupError) as error:
        raise DataError(
            f"item {item} of the data set is a {type(pair).__name__}, not a pair (input, label); "
            "wrap it in a data set that returns such pairs"
        ) from error


def _labels(dataset: Any) -> list[object]:
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        targets = [_part(dataset, item, 1) for item in range(len(dataset))]
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
            (N, H, W), (N, H, W, C) or (N, C, H, W); or a list of N texts. Arrays of any other
            shape or dtype are used as network inputs unchanged. A frame is read as a CSV file of
            its columns would be: words, dates and empty cells are allowed.
        y: Labels, shape (N,): names, integers or booleans, which are classes in sorted order.
            -1 is a class like any other; -100 is refused.
        name: Name of the data.
        class_names: Names of the classes, if the labels are integers from 0.

    Raises:
        DataError: If a number or label cannot be used, is masked or missing, or the lengths differ.

    Examples:
        >>> from_arrays(np.eye(4), ["cat", "dog", "dog", "cat"]).class_names
        ('cat', 'dog')
    """
    if is_frame(x):
        frame = FrameColumns(x, name)
        return label_frame(frame, _label_list(y, len(frame), name), class_names=class_names)
    inputs = inputs_in_memory(x, where=name)
    columns = Columns(
        source=name,
        inputs=inputs,
        labels=_label_list(y, len(inputs), name),
        row_ids=position_ids(len(inputs)),
    )
    return assemble({"train": columns}, name=name, class_names=class_names)


def _label_list(y: Any, number: int, where: str) -> list[object]:
    """Labels as values of Python, None where one is masked."""
    if isinstance(y, Tensor):
        y = y.detach().cpu()
    # Its list has None for a masked value; ``np.asarray`` would give what is behind the mask.
    labels = y if isinstance(y, np.ma.MaskedArray) else np.asarray(y)
    if labels.shape != (number,):
        raise DataError(
            f"{where}: {number} rows of inputs but labels of shape {labels.shape}; give one label "
            f"for each row, shape ({number},)"
        )
    values: list[object] = labels.tolist()
    return values


def is_frame(rows: object) -> bool:
    """Whether these are a frame of pandas or polars, or of a library that is used like them."""
    kind = type(rows)  # a lazy frame of polars warns if it is asked itself
    return hasattr(kind, "columns") and (hasattr(kind, "iloc") or hasattr(kind, "get_column"))


def text_list(rows: Any) -> list[str] | None:
    """The texts, if these are a list, an array or a column of texts; a missing one is empty.

    Examples:
        >>> text_list(["good film", None]), text_list([1.0, 2.0])
        (['good film', ''], None)
    """
    if isinstance(rows, Tensor) or not (
        isinstance(rows, list | tuple | np.ndarray) or hasattr(rows, "to_list")
    ):
        return None
    if isinstance(rows, np.ndarray) and (rows.ndim != 1 or rows.dtype.kind not in "OUT"):
        return None
    values = list(rows)
    is_text = [isinstance(value, str) for value in values]
    if not any(is_text) or not all(
        each or is_missing(value) for each, value in zip(is_text, values, strict=True)
    ):
        return None
    return [value if each else "" for each, value in zip(is_text, values, strict=True)]


def inputs_in_memory(x: Any, *, where: str) -> Inputs:
    """Inputs from an array, a tensor, texts or a torch data set; see ``from_arrays``.

    Args:
        x: One input for each row; for a data set, the first element of its items.
        where: What the rows are called in messages.

    Raises:
        DataError: If the values cannot be used.
    """
    if hasattr(x, "toarray") or (isinstance(x, Tensor) and x.layout is not torch.strided):
        raise ArgumentError("rows must not be sparse; give x.toarray(), or of torch x.to_dense()")
    texts = text_list(x)
    if texts is not None:
        return hash_text(texts)
    if not is_array(x):
        if not is_map_style(x) or hasattr(type(x), "columns"):
            raise ArgumentError(
                "rows must be an array, a data frame or a map-style data set, or a list of texts; "
                f"got {type(x).__name__}"
            )
        return DatasetInputs(x, np.arange(len(x)))
    values = array_of_numbers(x, where)
    if values.ndim >= 3 and values.dtype.kind == "f":
        return DatasetInputs(TensorDataset(torch.from_numpy(values)), np.arange(len(values)))
    return array_inputs(values, pad=4, flip=True, where=where)


def is_array(rows: object) -> bool:
    """Whether these are an array, a tensor, nested lists or a frame, and not a data set."""
    return isinstance(rows, Tensor | np.ndarray | list | tuple) or hasattr(type(rows), "to_numpy")


def array_of_numbers(x: Any, where: str) -> NDArray[Any]:
    """The values as an array; one of objects becomes one of numbers.

    Raises:
        DataError: If a value is masked or not a number, or the rows differ in length.
    """
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x  # numpy has no such type
    check_not_masked(where, x)
    try:
        values = np.asarray(x)
    except ValueError:
        raise DataError(f"{where}: the rows are not all of one length") from None
    if values.dtype != object:
        return values
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: an array of objects that are not all numbers ({error}); for words and empty "
            "cells give a data frame"
        ) from None
