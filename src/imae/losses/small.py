"""The mean loss of a small batch, in numpy.

A batch of 128 x 10 costs almost nothing but calls, and a numpy call takes half as long as a torch
call. It is faster with a 0-d array than with a number, and for an extremum by its index.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.curves.curve import Curve
from imae.curves.reweighted import IMAE
from imae.losses.arguments import is_plain
from imae.losses.auto import AutoT, Step
from imae.losses.kernel import LARGEST_EXPONENT, SMALL_SIZE, ready_loss
from imae.losses.margin import CONSTANT_SCALES, constant_number, largest_norm

_Floats = NDArray[np.float32]

_ONES = np.ones(SMALL_SIZE, dtype=np.float32)
_ONE = np.array(1, np.float32)
# Under these odds the others' exponentials, divided by the label's, come near the smallest number.
_SAFE_ODDS = 2.0**-80
# Under this factor of the others' exponentials the factor itself loses digits.
_SAFE_FACTOR = 2.0**-100
# Up to these odds a weight of 0 is meant by the curve, as outside a window.
_ORDINARY_ODDS = 2.0**50
# Up to this size there is room in float32 for the squares of a row over that of a norm.
_SAFE_SIZE = 1e12
# Up to this difference of logits there is room for the sum of exponentials.
_LARGEST_DIFFERENCE = 75.0
# Rows whose means have a sum of squares up to this are centred to 1e-6 by subtracting them.
_LARGE_MEANS = 256.0


def small_loss(
    logits: Tensor,
    target: Tensor,
    curve: Curve | AutoT,
    *,
    normalize: str | None,
    cap: float | None,
) -> Tensor | None:
    """The mean loss of a batch for which ``is_small`` is true; None if it is not ordinary.

    An ordinary batch has classes in [0, C), finite logits that are not very large, and no row
    whose gradient is very small.

    Args:
        logits: Shape (N, C).
        target: Classes, shape (N,).
        curve: The loss; or the T of IMAE that follows the training, which takes the batch in if
            it is an ordinary one.
        normalize: "chance", "half" or None.
        cap: Largest probability of a class; None for no cap.
    """
    num_classes = logits.shape[1]
    label = target.numpy()
    unsigned = label.view(np.uint64)  # negative labels are large
    if unsigned[unsigned.argmax()] >= num_classes:
        return None
    if cap is not None and not 1 / num_classes < cap < 1:
        return None
    z: _Floats = logits.detach().numpy()
    flat = z.reshape(-1)
    smallest, largest = flat[flat.argmin()], flat[flat.argmax()]
    if not (smallest > -_SAFE_SIZE and largest < _SAFE_SIZE):
        return None  # also with NaN
    is_moderate = bool(smallest > -LARGEST_EXPONENT and largest < LARGEST_EXPONENT)
    found = _pass(z, label, curve, normalize, cap, is_moderate)
    if found is None:
        return None
    gradient, loss, curve, scale = found
    ready = torch.from_numpy(gradient), torch.scalar_tensor(loss, dtype=torch.float32)
    return ready_loss(logits, target, curve, scale=scale, cap=cap, ready=ready)


def is_small(logits: Tensor, target: Tensor) -> bool:
    """Whether ``small_loss`` may take a batch.

    It takes contiguous float32 logits (N, C) on the CPU that require a gradient, and int64 classes.

    Examples:
        >>> is_small(torch.zeros(2, 3, requires_grad=True), torch.zeros(2, dtype=torch.int64))
        True
    """
    if not is_plain(logits, target):  # what is not a tensor is refused elsewhere
        return False
    shape = logits.shape
    return (
        logits.dtype is torch.float32
        and target.dtype is torch.int64
        and len(shape) == 2
        and shape[1] > 1
        and 0 < shape[0] * shape[1] <= SMALL_SIZE
        and target.shape == shape[:1]
        and logits.requires_grad
        and torch.is_grad_enabled()
        and logits.is_cpu
        and target.is_cpu
        and logits.is_contiguous()
    )


def _pass(
    z: _Floats,
    label: NDArray[np.int64],
    curve: Curve | AutoT,
    normalize: str | None,
    cap: float | None,
    is_moderate: bool,
) -> tuple[_Floats, float, Curve, float] | None:
    """The gradient, the loss, its curve and the factor of each row; None if not ordinary.

    Exponentials of moderate logits, as large batches have them, are taken as they are: a numpy call
    on a matrix and a column takes three times as long as one on the matrix.
    """
    num_rows, num_classes = z.shape
    ones = _ONES[:num_classes]
    first = _first_of_rows(num_rows, num_classes)
    own = first + label
    turn = None
    if cap is not None:
        z, turn = _capped(z, largest_norm(cap, num_classes))
    if is_moderate:
        buffer = np.exp(z)
    else:
        buffer = z - z.reshape(-1)[own][:, None]
        flat = buffer.reshape(-1)
        if cap is None and flat[flat.argmax()] > _LARGEST_DIFFERENCE:
            return None
        np.exp(buffer, buffer)
    flat = buffer.reshape(-1)
    of_label = flat[own]
    auto, step = None, None
    if isinstance(curve, AutoT):
        auto, top = curve, z.argmax(1)
        largest = flat[first + top]
        is_low = (buffer > of_label[:, None]).dot(ones) >= (num_classes + 1) // 2
    flat[own] = 0
    sums = buffer.dot(ones)
    odds = sums / of_label
    if not odds[odds.argmin()] > _SAFE_ODDS:
        return None
    if auto is not None:
        step = _seen(auto, largest / (sums + of_label), top == label, is_low, 1 / num_classes)
        curve = IMAE(step.T)
    assert isinstance(curve, Curve)
    scale = 1 / num_rows
    if normalize in CONSTANT_SCALES:
        scale /= constant_number(curve, num_classes, normalize)
    weight, total = curve.numpy_weight_and_sum(odds)
    weight *= np.array(scale / 2, np.float32)
    on_others = weight / sums
    if not (math.isfinite(total) and _has_digits(on_others, weight, odds)):
        return None
    if turn is not None:
        pull = turn.along * (on_others * (buffer * z).dot(ones) - weight * z.reshape(-1)[own])
        on_others *= turn.factor
        weight *= turn.factor
    buffer *= on_others[:, None]
    flat[own] = -weight
    if turn is not None:
        z *= pull[:, None]
        buffer -= z
    if auto is not None and step is not None:
        auto.take(step)
    return buffer, total * scale, curve, scale


@lru_cache(maxsize=8)
def _first_of_rows(num_rows: int, num_classes: int) -> NDArray[np.int64]:
    """Where each row begins."""
    return np.arange(num_rows) * num_classes


def _has_digits(on_others: _Floats, weight: _Floats, odds: _Floats) -> bool:
    """Whether the gradients of all rows are numbers of a common size, or 0 by the curve."""
    if on_others[on_others.argmin()] > _SAFE_FACTOR:
        return True
    is_outside = (weight == 0) & (odds < _ORDINARY_ODDS)
    return bool((is_outside | (on_others > _SAFE_FACTOR)).all())


class _Turn(NamedTuple):
    """How a gradient on capped rows becomes one on rows: ``factor g - along (g . z) z``."""

    factor: _Floats
    along: _Floats


def _capped(z: _Floats, norm: float) -> tuple[_Floats, _Turn | None]:
    """As ``imae.losses.margin.capped``: new rows, and what they do to a gradient.

    None for the second if all rows are below the cap.
    """
    num_classes = z.shape[1]
    if num_classes == 2:
        return _saturated(z, norm)
    ones, part = _ONES[:num_classes], np.array(1 / num_classes, np.float32)
    mean = z.dot(ones)
    mean *= part
    centred = z - mean[:, None]
    if not mean.dot(mean) < _LARGE_MEANS:  # their rounding is left over
        centred -= (centred.dot(ones) * part)[:, None]
    square = (centred * centred).dot(ones)
    limit = np.array(norm**2, np.float32)
    if square[square.argmax()] <= limit:
        return centred, None
    is_long = square > limit
    np.maximum(square, limit, out=square)
    factor = np.array(norm, np.float32) / np.sqrt(square)
    centred *= factor[:, None]
    along = is_long * factor
    along /= limit
    return centred, _Turn(factor, along)


def _saturated(z: _Floats, norm: float) -> tuple[_Floats, _Turn]:
    """The same for two classes."""
    half = (z[:, 0] - z[:, 1]) * np.array(0.5, np.float32)
    square = half * half
    square *= np.array(2 / norm**2, np.float32)
    factor = np.reciprocal(np.sqrt(square + _ONE))
    half *= factor
    return np.stack([half, -half], 1), _Turn(factor * factor * factor, np.zeros_like(factor))


def _seen(
    auto: AutoT,
    p: _Floats,
    agrees: NDArray[np.bool_],
    is_low: NDArray[np.bool_],
    chance: float,
) -> Step:
    """The state of ``auto`` after rows with these largest probabilities.

    ``is_low`` says whose label is in the less likely half of the classes.
    """
    sure = p - np.array(chance, np.float32)
    sure *= np.array(1 / (auto.cap - chance), np.float32)
    agreed = agrees.astype(np.float32)
    agreeing = float(sure.dot(agreed))
    number = float(agreed.dot(_ONES[: len(p)]))
    low = float(np.count_nonzero(is_low))
    np.subtract(_ONE, agreed, agreed)
    num_rows = float(len(p))
    sums = (number, float(sure.dot(agreed)), agreeing, low, num_rows, num_rows)
    return auto.after(sums, chance)
