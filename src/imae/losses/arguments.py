"""Arguments shared by all losses: shapes, dtypes, class weights, ignored rows, means, modules."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, SupportsIndex, TypeAlias

import torch
from torch import Tensor, nn
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.nn import functional

from imae.errors import ArgumentError, check_choice
from imae.losses.margin import log_probabilities

REDUCTIONS = ("none", "mean", "sum")


@dataclass(frozen=True)
class Labels:
    """Checked arguments of a loss, with a batch dimension.

    Args:
        logits: Shape (N, C, ...), any float dtype.
        index: Class of each row, shape (N, ...), int64 in [0, C), 0 where the row is ignored;
            None with probability targets.
        probabilities: Probability targets, shape of ``logits``; None with class targets.
        is_valid: Rows that count, shape (N, ...); None if all do.
        class_weight: Factor of each class, shape (C,), float32 or float64; None if all are 1.
        dtype: Dtype that the loss is returned in.
        batched: Whether the caller gave a batch dimension.
    """

    logits: Tensor
    index: Tensor | None
    probabilities: Tensor | None
    is_valid: Tensor | None
    class_weight: Tensor | None
    dtype: torch.dtype
    batched: bool

    def row_scale(self) -> Tensor | None:
        """Class weight of each row, 0 where it is ignored, shape (N, ...); None if all are 1."""
        if self.index is None or (self.is_valid is None and self.class_weight is None):
            return None
        if self.class_weight is None:
            scale = torch.ones_like(self.index, dtype=precise_dtype(self.logits))
        else:
            scale = self.class_weight[self.index]
        return scale if self.is_valid is None else scale.masked_fill(~self.is_valid, 0)

    def total_scale(self) -> Tensor | int:
        """What a mean divides by: the summed class weights of the rows, or their number."""
        if self.probabilities is not None:
            return self.logits[:, 0].numel()
        assert self.index is not None
        scale = self.row_scale()
        return self.index.numel() if scale is None else scale.sum()

    def reduce(self, losses: Tensor, reduction: str) -> Tensor:
        """Losses that already carry their class weights, reduced as torch's cross entropy does."""
        if self.is_valid is not None:
            losses = losses.masked_fill(~self.is_valid, 0)
        if reduction == "sum":
            losses = losses.sum()
        elif reduction == "mean":
            losses = losses.sum() / self.total_scale()
        elif not self.batched:
            losses = losses.squeeze(0)
        return losses.to(self.dtype)


def check_labels(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | Sequence[float] | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float = 0.0,
) -> Labels:
    """The arguments of a loss, checked as torch's cross entropy checks them.

    Raises:
        ValueError: If the reduction is unknown or the batch sizes differ.
        IndexError: If there are labels and no classes.
        RuntimeError: If a shape or dtype is not one that cross entropy accepts, or the weights
            require a gradient or have a dtype that would be rounded.
        TypeError: If the logits or the target are not tensors.
    """
    for each in (logits, target):
        if not isinstance(each, Tensor):
            raise TypeError(f"logits and target must be tensors, got {type(each).__name__}")
    check_choice("reduction", reduction, REDUCTIONS)
    if type(ignore_index) is not int and isinstance(ignore_index, SupportsIndex):
        ignore_index = ignore_index.__index__()  # of numpy
    weight = as_class_weight(weight, logits)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("weight cannot be trained: give weight.detach(), as to cross entropy")
    is_index = target.dtype in (torch.int64, torch.uint8)
    is_probability = target.shape == logits.shape and target.is_floating_point()
    batched = logits.dim() > 1
    row_shape = (logits.shape[:1] + logits.shape[2:]) if batched else ()
    if not (
        logits.is_floating_point()
        and logits.dim() >= 1
        and (is_probability or (is_index and target.shape == row_shape))
        and (weight is None or weight.shape == logits.shape[batched : batched + 1])
        and 0 <= label_smoothing <= 1
        and isinstance(ignore_index, int)
        and not (is_probability and ignore_index >= 0)
    ):
        _refuse(logits, target, weight, ignore_index, label_smoothing)
    precise = precise_dtype(logits)
    if weight is not None and not is_probability and not is_exact(weight, logits):
        raise RuntimeError(
            f"weight must have the dtype of the logits, {logits.dtype}, got {weight.dtype}: give "
            "weight.to(logits.dtype)"
        )
    dtype = precise if is_autocast(logits.device.type) else logits.dtype
    logits, target = (logits, target) if batched else (logits.unsqueeze(0), target.unsqueeze(0))
    if weight is not None:
        weight = weight.detach().to(precise)
    if is_probability:
        return Labels(logits, None, target.to(precise), None, weight, dtype, batched)
    if logits.shape[1] == 0:
        check_classes_in_range(target, 0, ignore_index)
    target = target.long()  # first: -100 would wrap around among bytes
    is_valid = target != ignore_index
    if _all_on_cpu(is_valid):
        return Labels(logits, target, None, None, weight, dtype, batched)
    index = target.masked_fill(~is_valid, 0)
    return Labels(logits, index, None, is_valid, weight, dtype, batched)


def as_class_weight(
    weight: Tensor | Sequence[float] | None, logits: Tensor | None = None
) -> Tensor | None:
    """Factors of the classes as a tensor, shape (C,); None stays None.

    Numbers become a tensor on the device of the logits, if there are any.

    Raises:
        ArgumentError: If it is not a list of numbers.

    Examples:
        >>> as_class_weight([1, 2])
        tensor([1., 2.])
    """
    if weight is None or isinstance(weight, Tensor):
        return weight
    try:
        device = logits.device if isinstance(logits, Tensor) else None
        return torch.as_tensor(weight, dtype=torch.get_default_dtype(), device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"weight must be a tensor or a list of one number for each class, got {weight!r}"
        ) from None


def precise_dtype(logits: Tensor) -> torch.dtype:
    """The dtype that a loss is computed in: float64 for float64, else float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def check_classes_in_range(target: Tensor, num_classes: int, ignore_index: int) -> None:
    """Raises if a class target is not a class and not the one to ignore.

    Raises:
        IndexError: As torch's cross entropy does.
    """
    target = target.long()
    outside = ((target < 0) | (target >= num_classes)) & (target != ignore_index)
    if bool(outside.any()):
        raise IndexError(
            f"Target {int(target[outside].flatten()[0])} is out of bounds: target must be in "
            f"[0, {num_classes}) or ignore_index={ignore_index}"
        )


# Loss of each row, shape (N, ...), from log-probabilities, shape (N, C, ...), and the arguments.
RowLoss: TypeAlias = Callable[[Tensor, Labels], Tensor]


def reduce_rows(
    logits: Tensor,
    target: Tensor,
    rows: RowLoss,
    *,
    weight: Tensor | Sequence[float] | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """The loss of class targets that ``rows`` computes, with the arguments of cross entropy.

    Raises:
        RuntimeError: If the targets are probabilities, or a shape or dtype is not supported.
        IndexError: If a class is out of range.
    """
    labels = check_labels(
        logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    if target.is_floating_point():
        raise RuntimeError(f"target must hold classes (int64 or uint8), got {target.dtype}")
    labels = replace(labels, logits=labels.logits.to(precise_dtype(logits)))
    if is_plain(target):
        check_classes_in_range(target, labels.logits.shape[1], ignore_index)
    losses = rows(log_probabilities(labels.logits), labels)
    if labels.class_weight is not None:
        losses = losses * labels.class_weight[labels.index]
    return labels.reduce(losses, reduction)


def of_label(log_p: Tensor, labels: Labels) -> Tensor:
    """Entry of the label, shape (N, ...), of log-probabilities, shape (N, C, ...)."""
    assert labels.index is not None
    return log_p.gather(1, labels.index.unsqueeze(1)).squeeze(1)


def is_plain(*tensors: Tensor) -> bool:
    """Whether these are ordinary eager tensors, outside compilation and function transforms."""
    for tensor in tensors:
        if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return False
        if tensor.is_meta:  # has a shape, and no numbers to look at
            return False
    return not (
        torch.compiler.is_compiling()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or _len_torch_dispatch_stack() > 0
    )


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active, outside compilation."""
    return not torch.compiler.is_compiling() and _are_functorch_transforms_active()


def is_autocast(device_type: str) -> bool:
    """Whether autocast is on for this kind of device."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def is_exact(weight: Tensor, logits: Tensor) -> bool:
    """Whether class weights are float numbers that the loss need not round."""
    precise = precise_dtype(logits)
    return weight.is_floating_point() and torch.promote_types(weight.dtype, precise) == precise


def _all_on_cpu(mask: Tensor) -> bool:
    # Reading a result on an accelerator would wait for it; on the CPU it saves six small steps.
    return mask.device.type == "cpu" and is_plain(mask) and bool(mask.all())


def _refuse(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> None:
    # Cross entropy raises the exception that users expect; ours only says what was given.
    given = (
        f"logits {tuple(logits.shape)} {logits.dtype}, target {tuple(target.shape)} {target.dtype}"
    )
    try:
        functional.cross_entropy(
            logits,
            target,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
    except Exception as error:
        raise type(error)(f"{str(error).strip()} (got {given})") from None
    raise RuntimeError(f"logits and target do not fit together: got {given}")


class DistributionLoss(nn.Module):
    """A loss function as a module; a leaf class names the function.

    The module takes the function's arguments, with its defaults, in its order. Tensors among them
    are buffers: they move with the module and are saved with it.
    """

    function: ClassVar[Callable[..., Tensor]]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        parameters = list(inspect.signature(cls.function).parameters.values())[2:]
        # The first argument may be given by position: ``BootstrapLoss(0.8)``.
        parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        bound = type(self).__signature__.bind(*arguments, **options)
        bound.apply_defaults()
        self._names = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            value = as_class_weight(value) if name == "weight" else value
            if isinstance(value, Tensor) or name == "weight":
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        options = {name: getattr(self, name) for name in self._names}
        return type(self).function(logits, target, **options)
