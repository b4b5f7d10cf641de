"""Robust losses and the audit in the Trainer of Hugging Face transformers."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.hooks import RemovableHandle

from imae.curves import CURVES, IMAE, Curve, parse_curve
from imae.errors import ArgumentError, DataError, import_extra
from imae.integrations.dynamics import Recorder
from imae.losses import curve_loss

import_extra("transformers", extra="transformers")

from transformers import TrainerCallback  # noqa: E402

LossFunction = Callable[..., Tensor]


def loss_function(
    curve: str | Curve = "imae",
    *,
    shift: bool | None = None,
    ignore_index: int = -100,
    cap: float | None = None,
    normalize: str | None = None,
    **parameters: Any,
) -> LossFunction:
    """A loss for ``Trainer(compute_loss_func=...)``.

    The Trainer passes the number of items in all batches of a step, and then neither divides by
    the accumulation steps nor averages: the loss is the sum over the batch divided by that number.
    If it passes none, the loss is the mean over the batch.

    Args:
        curve: A curve by its name, such as ``"imae"`` or ``"gce"``, or from ``imae.curves``.
        shift: Whether the label of each position is the next token, as in causal language models;
            by default this is decided by the name of the class of the model's outputs, such as
            ``CausalLMOutputWithPast``.
        ignore_index: Label that does not count.
        cap: Largest probability of a class that the loss sees, see ``imae.cap_logits``.
        normalize: "half" divides by the weight at p = 1 / 2; see ``imae.curve_loss``.
        parameters: Those of the curve, such as ``T=8.0``.

    Raises:
        ArgumentError: If the curve or a parameter is unknown.

    Examples:
        >>> loss = loss_function("imae", T=8.0)
        >>> outputs = {"logits": torch.zeros(2, 2)}
        >>> float(loss(outputs, torch.tensor([0, 1]), num_items_in_batch=4))
        0.0
    """
    if isinstance(curve, Curve):
        if parameters:
            raise ArgumentError(f"the curve has its parameters already, got {sorted(parameters)}")
        chosen = curve
    else:
        chosen = CURVES.build(curve, **parameters) if parameters else parse_curve(curve)

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs.logits
        is_shifted = _is_causal(outputs) if shift is None else shift
        if is_shifted:
            # The last position has no next token: a label that does not count.
            labels = pad(labels, (0, 1), value=ignore_index)[..., 1:]
        target = labels.to(logits.device).flatten()
        losses = curve_loss(
            logits.flatten(0, -2),
            target,
            chosen,
            ignore_index=ignore_index,
            reduction="none",
            normalize=normalize,
            cap=cap,
        )
        # The sum over the tokens of a batch is too large for float16, and bfloat16 rounds it.
        total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
        if num_items_in_batch is None:
            number = (target != ignore_index).sum()
        else:
            number = torch.as_tensor(num_items_in_batch, device=logits.device)
        return total / number

    return loss


def _is_causal(outputs: Any) -> bool:
    """Whether outputs are those of a causal language model."""
    return "CausalLM" in type(outputs).__name__


def _without_row(
    row_key: str,
    module: nn.Module,  # noqa: ARG001
    args: Any,
    kwargs: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """A hook, in the module so that a whole model can be saved with it."""
    kwargs.pop(row_key, None)
    return args, kwargs


class AuditCallback(TrainerCallback):  # type: ignore[misc]
    """Records margin and prediction of every training row, so that ``imae audit`` reads the run.

    For sequence classification. Every example of the training set must have its position as a
    whole number under ``row_key``, and ``TrainingArguments(remove_unused_columns=False)`` must
    let it through; the callback removes it from the batch before the model sees it. It has hooks
    on the model while the Trainer trains. One stays afterwards, which removes the position from the
    batches of ``evaluate`` and ``predict``.

    Args:
        out: Folder to write; it must not exist or be empty.
        given: Given labels of all training rows, shape (N,), in the order of their positions.
        row_key: Name of the position in the examples.
        row_ids: Names of the rows, by default their positions.
        class_names: Names of the classes, by default numbers.
        method: Name of the loss in ``imae list methods``, for reports.

    Raises:
        ArgumentError: If the folder is not empty.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        given: NDArray[np.integer] | Tensor,
        *,
        row_key: str = "row",
        row_ids: Sequence[object] | None = None,
        class_names: Sequence[str] | None = None,
        method: str = IMAE.name,
    ) -> None:
        options: dict[str, Any] = {"row_ids": row_ids, "class_names": class_names}
        self._recorder = partial(Recorder, out, len(given), given=given, method=method, **options)
        self.recorder = self._recorder()  # wrong arguments raise here, before training
        self._row_key = row_key
        self._rows: Tensor | None = None
        self._has_seen_rows = False
        self._handles: list[RemovableHandle] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Records inputs and outputs of the model until the training ends.

        Raises:
            ArgumentError: If the Trainer removes the positions of the rows, or the folder holds a
                run, such as that of an earlier training with this callback.
        """
        self._remove_hooks()
        if args.n_gpu > 1:
            raise ArgumentError(
                "the rows of a batch are divided over several GPUs in one process, where they "
                "cannot be told apart; start one process for each with torchrun"
            )
        if args.remove_unused_columns:
            raise ArgumentError(
                f"TrainingArguments(remove_unused_columns=False) is needed: the Trainer removes "
                f"{self._row_key!r} otherwise"
            )
        self.recorder = self._recorder()
        model = kwargs["model"]
        # First, should a training that an exception ended have left the hooks of its callback.
        before = model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True)
        self._handles = [before, model.register_forward_hook(self._after)]

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Checks that the rows of a batch were recognised.

        Raises:
            DataError: If the batch had no positions.
        """
        if not self._has_seen_rows:
            self._remove_hooks()
            raise DataError(f"the batch has no {self._row_key!r}: the position of every row")
        self._has_seen_rows = False

    on_step_end = on_substep_end

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Writes the dynamics of the epoch."""
        self.recorder.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Marks the training in the folder as finished."""
        self._remove_hooks()
        without = partial(_without_row, self._row_key)
        handle = kwargs["model"].register_forward_pre_hook(without, with_kwargs=True)
        self._handles = [handle]
        self.recorder.end_epoch()
        self.recorder.finish()

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        rows = kwargs.pop(self._row_key, None)
        self._rows = rows if module.training else None
        return args, kwargs

    def _after(self, module: nn.Module, args: Any, outputs: Any) -> None:  # noqa: ARG002
        if self._rows is not None:
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs.logits
            self.recorder.update(self._rows, logits)
            self._rows, self._has_seen_rows = None, True
