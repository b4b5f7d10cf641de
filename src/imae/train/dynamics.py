"""What is recorded in each step: margin and weight of every row, and numbers out of range."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.batches import balanced_sizes
from imae.errors import DataError, ImaeError
from imae.records import EpochDynamics
from imae.records.measures import HELD_OUT


class Dynamics:
    """Margin, predicted class and weight of every row in the current epoch.

    Args:
        num_rows: Number of training rows N.
        device: Where the values are collected, so that no step copies them to the host.
    """

    def __init__(self, num_rows: int, device: torch.device | str = "cpu") -> None:
        # Zero and "seen 0 times" for a row not seen, so that the shares of several ranks add up.
        self._shown = torch.zeros(4, num_rows, device=device)

    @torch.no_grad()
    def update(self, row: Tensor, logits: Tensor, margin: Tensor, weight: Tensor) -> None:
        """Records a batch of the training pass.

        Args:
            row: Positions of the rows, shape (B,).
            logits: Unnormalised scores, shape (B, C).
            margin: Margins of the given labels, shape (B,).
            weight: L1 norm of the gradient of each row's own loss at its logits, shape (B,).
        """
        columns = (margin, logits.argmax(1), weight, torch.ones_like(weight))
        self._shown[:, row] = torch.stack([column.float() for column in columns])

    def clear(self) -> None:
        """Forgets the epoch."""
        self._shown.zero_()

    def state(self) -> Tensor:
        """The epoch so far, shape (4, N): summed over ranks it is the whole."""
        return self._shown

    def restore(self, state: Tensor) -> None:
        """Continues from the state of a checkpoint."""
        self._shown.copy_(state)

    @staticmethod
    def record(state: Tensor) -> EpochDynamics:
        """The record of the epoch, from a state that holds the rows of all ranks."""
        shown, predicted, weight, seen = state.cpu().numpy()
        is_seen = seen > 0
        return EpochDynamics(
            margin=np.where(is_seen, shown, np.float32(math.nan)).astype(np.float32),
            predicted=np.where(is_seen, predicted, -1).astype(np.int32),
            weight=np.where(is_seen, weight, np.float32(math.nan)).astype(np.float32),
        )

    @staticmethod
    def from_record(record: EpochDynamics) -> Tensor:
        """The state of an epoch that was recorded, to continue it."""
        is_seen = record.predicted >= 0
        columns = (record.margin, record.predicted, record.weight, is_seen)
        return torch.stack([torch.from_numpy(np.where(is_seen, each, 0.0)) for each in columns])


_SMOOTHED = 3  # epochs
_PATIENCE = 3  # epochs


def changed_share(before: NDArray[np.int32], now: NDArray[np.int32]) -> float:
    """Share of the rows whose predicted class changed, of those seen (not negative) both times.

    Examples:
        >>> changed_share(np.array([0, 1, 2, -1]), np.array([0, 1, 1, 1]))
        0.3333333333333333
    """
    is_seen = (before >= 0) & (now >= 0)
    return float((before != now)[is_seen].mean()) if is_seen.any() else 1.0


def label_wave(changes: Sequence[float]) -> tuple[int | None, bool]:
    """The epoch before wrong labels start to be memorised, from predictions only.

    While right labels are learned, the predictions of fewer and fewer training rows change from
    one epoch to the next; as wrong ones are memorised, more change again. The epoch is the first
    local minimum of the share of changed predictions, averaged over 3 epochs; it counts as one
    when no lower value follows within 3 epochs.

    Args:
        changes: ``changed_share`` of each epoch against the one before, from the second epoch on.

    Returns:
        The epoch of the lowest value up to that minimum, counted from 1, or None if there are
        fewer than four epochs; and whether the minimum has been passed.

    Examples:
        >>> label_wave([0.5, 0.3, 0.2, 0.1, 0.2, 0.3, 0.4])
        (6, False)
        >>> label_wave([0.5, 0.3, 0.2, 0.1, 0.2, 0.3, 0.4, 0.4])
        (6, True)

    Reference:
        Yuan, Feng and Liu, "Early Stopping Against Label Noise Without Validation Data", ICLR 2024.
    """
    lowest, epoch = math.inf, None
    for end in range(_SMOOTHED, len(changes) + 1):
        smoothed = sum(changes[end - _SMOOTHED : end]) / _SMOOTHED
        if smoothed < lowest:
            lowest, epoch = smoothed, end + 1
        elif epoch is not None and end + 1 - epoch >= _PATIENCE:
            return epoch, True
    return epoch, False


_LONG_ENOUGH = 20  # epochs
_STILL_RISING = 0.03
_RARE = 1 / 2  # of the rows that a class has on average; wrong labels make rare classes larger


def closing_hints(
    history: Sequence[Mapping[str, Any]],
    predicted: NDArray[np.int32] | None,
    class_names: Sequence[str],
    *,
    epochs: float,
    is_robust: bool = True,
    counts: NDArray[np.int64] | None = None,
    batch_size: int | None = None,
) -> list[str]:
    """Advice about a run that has ended, one line each.

    Args:
        history: One row for each evaluation.
        predicted: Predicted class of every row in the last epoch, negative for a row not seen.
        class_names: Names of the classes.
        epochs: Epochs that were trained.
        is_robust: Whether the method is not cross entropy.
        counts: Training rows of each class, shape (C,).
        batch_size: Rows in a batch, unless batches are balanced already.
    """
    hints = []
    seen = np.unique(predicted[predicted >= 0]) if predicted is not None else np.zeros(0, int)
    rare = rare_class_hint(seen, counts, batch_size, class_names)
    if rare is not None:
        hints.append(rare)
    elif len(seen) == 1 and len(class_names) > 1:
        hints.append(
            f"every row is predicted as {class_names[int(seen[0])]!r}: nothing was learned; try "
            "a smaller --lr, more --epochs or another method, such as --loss cce"
        )
    key = next(
        (key for key in (HELD_OUT.key, "train_accuracy") if history[-1].get(key) is not None), None
    )
    if key is not None and epochs < _LONG_ENOUGH and len(history) > 1:
        half, last = history[(len(history) - 1) // 2][key], history[-1][key]
        if half is not None and last - half > _STILL_RISING:
            hints.append(
                f"accuracy rose from {half:.1%} to {last:.1%} in the second half of the run; train "
                "longer" + (": robust losses learn more slowly than cross entropy" * is_robust)
            )
    return hints


def rare_class_hint(
    seen: NDArray[np.integer],
    counts: NDArray[np.int64] | None,
    batch_size: int | None,
    class_names: Sequence[str],
) -> str | None:
    """Advice about rare classes that are never predicted: options that draw them more often.

    A robust loss treats the few rows that contradict all others as wrong labels.
    """
    if counts is None or batch_size is None or len(seen) == 0:
        return None
    is_rare = (counts > 0) & (counts <= _RARE * counts.sum() / (counts > 0).sum())
    is_rare[seen] = False
    lost = np.flatnonzero(is_rare)
    if len(lost) == 0:
        return None
    first = int(lost[0])
    others = f" and {len(lost) - 1} other rare classes" if len(lost) > 1 else ""
    said = (
        f"class {class_names[first]!r} ({counts[first]} of {counts.sum()} rows){others} is never "
        "predicted: "
    )
    sizes = balanced_sizes(counts, batch_size)
    if sizes is None:
        few = class_names[int(np.argmin(np.where(counts > 0, counts, counts.max())))]
        return f"{said}class {few!r} has too few rows; add some, or leave it out"
    return (
        f"{said}draw rare classes more often with --set data.balanced={sizes[0]} "
        f"--set train.batch_size={sizes[1]}"
    )


LARGE_LOGIT = 1e4
_STABILISING = {"cap": "cap=0.75", "bound": "bound=5", "window_high": "window_high=8"}


def remedies(lr: float, arguments: Mapping[str, Any]) -> str:
    """What helps against numbers that grow too large.

    Args:
        lr: Learning rate.
        arguments: All parameters of the method, including defaults.

    Examples:
        >>> remedies(0.1, {"bound": None})
        "try a smaller optimizer.lr (now 0.1), or the method's option bound=5"
        >>> remedies(0.1, {"cap": 0.75, "bound": None})
        'try a smaller optimizer.lr (now 0.1)'
    """
    advice = f"try a smaller optimizer.lr (now {lr:g})"
    if any(arguments.get(name) is not None for name in _STABILISING):
        return advice
    options = [text for name, text in _STABILISING.items() if name in arguments]
    return advice + (f", or the method's option {' or '.join(options)}" if options else "")


class Watch:
    """Checks every step on the device, and reads the result when asked.

    Args:
        device: Where the run computes. On a CPU every step is read; elsewhere reading would make
            the host wait for the device, so it is done at intervals.
        advice: What helps against numbers that grow too large.
    """

    def __init__(self, device: torch.device, advice: str = "") -> None:
        self.advice = advice
        self.is_reading_cheap = device.type == "cpu"
        self._largest = torch.zeros((), device=device)
        self._is_finite = torch.ones((), dtype=torch.bool, device=device)
        self.has_warned = False

    @torch.no_grad()
    def update(self, losses: Tensor, logits: Tensor) -> None:
        """Records the losses, shape (B,), and logits, shape (B, C), of a step."""
        self._largest = torch.maximum(self._largest, logits.detach().abs().amax().float())
        self._is_finite = self._is_finite & losses.detach().isfinite().all()

    def check_finite(
        self,
        step: int,
        inputs: Tensor | None = None,
        row_ids: NDArray[np.str_] | None = None,
    ) -> None:
        """Raises if a loss was not finite, before it reaches a checkpoint.

        Args:
            step: Number of steps done, for the message.
            inputs: Inputs of the last batch, shape (B, ...), in which to look for the reason.
            row_ids: Their ids, shape (B,).

        Raises:
            DataError: If an input of the batch is not finite; it names the row.
            ImaeError: If the loss was not finite for another reason; it names remedies.
        """
        if bool(self._is_finite):
            return
        if inputs is not None and row_ids is not None:
            is_bad = ~inputs.isfinite().flatten(1).all(1)
            if bool(is_bad.any()):
                row = str(row_ids[int(is_bad.int().argmax())])
                raise DataError(f"row {row!r} holds a number that is not finite; fix or remove it")
        raise ImaeError(f"the loss is not finite after {step} steps; {self.advice}")

    def growth(self) -> str | None:
        """One line if the logits have grown very large, the first time; else None."""
        if self.has_warned or float(self._largest) <= LARGE_LOGIT:
            return None
        self.has_warned = True
        return (
            f"logits have grown beyond {LARGE_LOGIT:g}, and the run may not end well; {self.advice}"
        )
