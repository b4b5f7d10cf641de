"""Dynamics of every row in a training outside of `imae.train`, for the audit."""

import copy
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from imae.curves import Curve
from imae.errors import ArgumentError, DataError, check_integer, import_extra
from imae.losses.margin import margin, precise, weight_at_margin
from imae.methods.method import CurveMethod, Rows
from imae.noise.by_class import ArrayOrTensor, as_array
from imae.records import EpochDynamics, RunFolder, RunLabels
from imae.records.files import check_free
from imae.train.dynamics import Dynamics

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Training:
    """What a `Learner` is trained on.

    Args:
        inputs: Returns the rows at some positions, shape (B, F).
        target: Given labels of all rows, shape (N,).
        weight: How much each row counts, shape (N,).
        held: Positions of rows that only decide when to stop, shape (M,); may be empty.
        batch_size: Rows of a step.
        max_epochs: Maximum number of epochs.
        patience: Ends after this many epochs without a better accuracy on the held-out rows.
    """

    inputs: Callable[[Ints], Tensor]
    target: Tensor
    weight: Tensor
    held: Ints
    batch_size: int
    max_epochs: int
    patience: float


class Learner:
    """A small network for rows of numbers, with its loss and its optimiser, without a run folder.

    Args:
        widths: Columns, then the units of each hidden layer.
        num_classes: Number of classes C.
        method: The loss; its cap becomes the last step of the network.
        lr: Step size.
        weight_decay: Weight decay.
        is_adaptive: Whether steps are those of AdamW; else of gradient descent with momentum, with
            half of the weight decay times the squared weights, without the bias, in the loss.
        dtype: Of the rows and the weights.
        seed: Seed of the first weights; the global generator is left alone.
    """

    def __init__(
        self,
        widths: Sequence[int],
        num_classes: int,
        method: CurveMethod,
        *,
        lr: float,
        weight_decay: float,
        is_adaptive: bool = True,
        dtype: torch.dtype,
        seed: int,
    ) -> None:
        output = method.output()
        if output is not None:
            output(torch.zeros(1, num_classes))  # refuses a cap that cannot be met
        layers: list[nn.Module] = []
        # Not torch.manual_seed, which also seeds the generators of accelerators.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            for inputs, outputs in itertools.pairwise(widths):
                layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
            layers.append(nn.Linear(widths[-1], num_classes))
        self.network = nn.Sequential(*layers, *([] if output is None else [output])).to(dtype)
        self.method = method.to(dtype)
        self.dtype = dtype
        self.optimizer: torch.optim.Optimizer
        if is_adaptive:
            self.optimizer = torch.optim.AdamW(
                self.network.parameters(), lr=lr, weight_decay=weight_decay
            )
        else:
            groups: list[dict[str, Any]] = [{"params": [], "weight_decay": weight_decay}]
            groups.append({"params": [], "weight_decay": 0.0})
            for each in self.network.parameters():
                groups[each.dim() == 1]["params"].append(each)
            self.optimizer = torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True)

    def fit(self, training: Training, generator: np.random.RandomState) -> list[EpochDynamics]:
        """Trains, and returns the dynamics of every row in each epoch.

        The step size falls linearly to 0. With held-out rows, the weights that predict most of
        their given labels are kept. Patience starts when these are predicted better than by always
        predicting the largest class: with a rare class that takes more than a few epochs.
        """
        number, held = len(training.target), training.held
        trained = np.setdiff1d(np.arange(number), held)
        batches = math.ceil(len(trained) / training.batch_size)
        steps = training.max_epochs * batches
        schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, steps)
        epochs: list[EpochDynamics] = []
        best, best_epoch = _largest_class(training.target[held], training.weight[held]), math.inf
        best_state = self.network.state_dict()
        while len(epochs) < training.max_epochs and len(epochs) - best_epoch < training.patience:
            dynamics = Dynamics(number)
            # A single batch is not shuffled, and the generator is not used.
            order = trained if batches == 1 else generator.permutation(trained)
            for rows in np.array_split(order, batches):
                target, weight = training.target[rows], training.weight[rows]
                logits = self._step(training.inputs(rows), target, weight)
                schedule.step()
                observe(dynamics, torch.from_numpy(rows), logits, target, self.method.curve)
            if len(held):
                target, weight = training.target[held], training.weight[held]
                logits = self.logits(training.inputs(held))
                observe(dynamics, torch.from_numpy(held), logits, target)
                right = float((logits.argmax(1) == target).to(weight) @ weight)
                if right >= best:  # of equal ones the last, when more is learned
                    best_state = copy.deepcopy(self.network.state_dict())
                if right > best:
                    best, best_epoch = right, len(epochs) + 1
            else:
                best_epoch = len(epochs) + 1
            epochs.append(Dynamics.record(dynamics.state()))
        if len(held):
            self.network.load_state_dict(best_state)
        return epochs

    def _step(self, inputs: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """One step on a batch; returns the logits before it, shape (B, C)."""
        logits: Tensor = self.network(inputs.to(self.dtype))
        losses = self.method(Rows(logits, target, target, weight=weight))
        total = weight.sum()
        if float(total) > 0:
            self.optimizer.zero_grad()
            ((losses * weight).sum() / total).backward()
            self.optimizer.step()
        return logits.detach()

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """Logits of rows that are not trained on, shape (B, C)."""
        logits: Tensor = self.network(inputs.to(self.dtype))
        return logits


def _largest_class(target: Tensor, weight: Tensor) -> float:
    """Total weight of the rows of the largest class; 0 if there are no rows."""
    return float(torch.bincount(target, weight, minlength=1).max())


def observe(
    dynamics: Dynamics, rows: Tensor, logits: Tensor, target: Tensor, curve: Curve | None = None
) -> None:
    """Adds a batch to the dynamics of an epoch; the weight is NaN if the curve is not known."""
    wide = precise(logits.detach())
    m = margin(wide, target)
    weight = torch.full_like(m, math.nan) if curve is None else weight_at_margin(m, curve)
    dynamics.update(rows, wide, m, weight)


class Recorder:
    """Writes the dynamics of any training loop into a run folder that ``imae audit`` reads.

    With ``torch.distributed`` every process records the rows that it sees, all of them call
    ``end_epoch`` and ``finish``, and the first one writes.

    Args:
        out: Folder to write; it must not exist or be empty.
        num_rows: Number N of training rows; a row is a position in [0, N).
        given: Given labels, shape (N,), class numbers from 0; by default those of the batches.
        row_ids: Names of the rows, by default their positions.
        class_names: Names of the classes, by default numbers.
        name: Name of the data, for reports.
        method: Name of the loss in ``imae list methods``, for reports.

    Examples:
        >>> import tempfile
        >>> from imae.audit import audit
        >>> given = torch.tensor([0, 1] * 20)
        >>> logits = 4 * torch.nn.functional.one_hot(given).float()
        >>> logits[0] = logits[0].flip(0)                    # the network contradicts one label
        >>> recorder = Recorder(tempfile.mkdtemp(), 40)
        >>> recorder.update(torch.arange(40), logits, given)
        >>> recorder.end_epoch()
        >>> recorder.finish()
        >>> audit(recorder.folder).order()[0].item()
        0
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        num_rows: int,
        *,
        given: "ArrayOrTensor | None" = None,
        row_ids: Sequence[object] | None = None,
        class_names: Sequence[str] | None = None,
        name: str = "data",
        method: str = "imae",
    ) -> None:
        check_integer("num_rows", num_rows, low=1)
        self.folder = RunFolder(out)
        self._row_ids = range(num_rows) if row_ids is None else row_ids
        self._given = torch.full((num_rows,), -1) if given is None else _class_numbers(given)
        for what, number in (("given", len(self._given)), ("row_ids", len(self._row_ids))):
            if number != num_rows:
                raise DataError(f"{what}: {number} values for {num_rows} rows")
        self._class_names = None if class_names is None else list(map(str, class_names))
        for what, names in (("row_ids", self._row_ids), ("class_names", self._class_names or ())):
            if len(set(map(str, names))) < len(names):
                raise DataError(f"{what}: a name appears twice")
        self._settings = _settings(name, method)
        self._dynamics: Dynamics | None = None
        self._num_classes, self._steps, self._start = 2, 0, time.monotonic()
        if _rank() == 0:
            if self.folder.exists():
                raise ArgumentError(f"{self.folder.path}: holds a run; choose another folder")
            check_free(self.folder.path)

    def update(
        self, rows: ArrayOrTensor, logits: ArrayOrTensor, target: ArrayOrTensor | None = None
    ) -> None:
        """Records a batch of the training pass.

        Args:
            rows: Positions of the rows, shape (B,).
            logits: Unnormalised scores, shape (B, C), of two classes or more.
            target: Given labels, shape (B,), class numbers in [0, C); not needed if they were
                given at the start.

        Raises:
            DataError: If shapes do not match, a row is out of range, or has another label or none.
        """
        number = len(self._given)
        rows, logits = torch.as_tensor(rows), torch.as_tensor(logits)
        if logits.dim() != 2 or logits.shape[1] < 2 or rows.shape != logits.shape[:1]:
            raise DataError(
                f"logits must be of shape (B, C), with C at least 2, and rows of shape (B,), got "
                f"{tuple(logits.shape)} and {tuple(rows.shape)}"
            )
        if self._class_names and len(self._class_names) != logits.shape[1]:
            raise DataError(
                f"{len(self._class_names)} class names and logits of {logits.shape[1]} classes"
            )
        if len(rows) == 0:
            return
        rows = rows.detach().cpu().long()
        if int(rows.min()) < 0 or int(rows.max()) >= number:
            raise DataError(f"rows must be in [0, {number}), got {rows.min()}..{rows.max()}")
        if target is not None:
            labels, known = _class_numbers(target, logits.shape[1]), self._given[rows]
            if labels.shape != rows.shape:
                raise DataError(
                    f"target must be of shape {tuple(rows.shape)}, got {tuple(labels.shape)}"
                )
            if bool(((known >= 0) & (known != labels)).any()):
                raise DataError("a row has another label than before; are these row numbers?")
            self._given[rows] = labels
        elif int(self._given[rows].min()) < 0 or int(self._given[rows].max()) >= logits.shape[1]:
            raise DataError(
                f"the labels of these rows are not in [0, {logits.shape[1]}), or not given: give "
                "target, or given at the start"
            )
        if self._dynamics is None:
            self._dynamics = Dynamics(number)
        self._num_classes = max(self._num_classes, logits.shape[1])
        self._steps += 1
        observe(self._dynamics, rows, logits.detach().cpu(), self._given[rows])

    def end_epoch(self) -> None:
        """Writes the dynamics of the epoch, if any row was recorded."""
        dynamics = self._dynamics or Dynamics(len(self._given))
        state = torch.cat([dynamics.state(), self._given.unsqueeze(0).float()])
        whole, *others = _of_all_processes(state)
        for other in others:  # a row that two processes have seen is taken from one of them
            whole = torch.where(other[3] > 0, other, whole)
            self._given = torch.maximum(self._given, other[4].long())
        self._dynamics = None
        if _rank() == 0 and bool((whole[3] > 0).any()):
            self._write(Dynamics.record(whole[:4]))

    def _write(self, epoch_dynamics: EpochDynamics) -> None:
        folder, given = self.folder, self._given.numpy()
        names = self._class_names or list(map(str, range(self._num_classes)))
        ids = np.array(list(map(str, self._row_ids)))
        known = np.maximum(given, 0)  # a row that was not seen yet has no label yet
        folder.write_labels(RunLabels(ids, known, np.array(names)))
        epoch = len(folder.epochs()) + 1
        folder.write_dynamics(epoch, epoch_dynamics)
        predicted = epoch_dynamics.predicted
        accuracy = float((predicted == given)[predicted >= 0].mean())
        seconds = time.monotonic() - self._start
        row = {"step": self._steps, "epoch": epoch, "seconds": seconds, "train_accuracy": accuracy}
        folder.append_history(row)
        folder.write_config(self._settings)

    def finish(self) -> None:
        """Marks the training in the folder as finished."""
        history = self.folder.history() if _rank() == 0 else []
        if history:
            final = history[-1]
            numbers = {"steps": final["step"], "seconds": final["seconds"], "status": "finished"}
            self.folder.write_result({"best": final, "best_test": None, "final": final, **numbers})


def _class_numbers(labels: ArrayOrTensor, num_classes: int | None = None) -> Tensor:
    """A copy of labels as int64.

    Raises:
        DataError: If one is not a class number.
    """
    given = as_array("labels", labels)
    is_whole = given.dtype.kind in "iub" or (given.dtype.kind == "f" and (given % 1 == 0).all())
    highest = math.inf if num_classes is None else num_classes - 1
    if is_whole and given.size and given.min() >= 0 and given.max() <= highest:
        return torch.from_numpy(given.astype(np.int64))
    classes = "from 0" if num_classes is None else f"in [0, {num_classes})"
    found = ", ".join(map(str, np.unique(given)[:5])) if given.dtype != object else "objects"
    raise DataError(f"labels must be class numbers {classes}, got {found}; leave out other rows")


def _settings(name: str, method: str) -> dict[str, Any]:
    """The configuration of a run that `imae.train` has not trained."""
    import_extra("pydantic", extra="train")  # nothing else in this file needs it
    from imae.train.config import FROM_PYTHON, build_config

    data = {"name": name, "from_python": True}
    network = {"name": f"{FROM_PYTHON}network"}
    config = build_config({"data": data, "model": network, "method": {"name": method}})
    return config.model_dump(mode="json")


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _rank() -> int:
    return torch.distributed.get_rank() if _is_distributed() else 0


def _of_all_processes(state: Tensor) -> list[Tensor]:
    if not _is_distributed():
        return [state]
    mine = state.cuda() if torch.distributed.get_backend() == "nccl" else state
    states = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(states, mine)
    return [each.cpu() for each in states]
