"""From logits to margins: limits on the logits, the margin of a label, curves applied to it."""

import math
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from imae.curves.classic import CCE
from imae.curves.curve import Curve
from imae.errors import check_interval


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """Log-odds of the given label.

    Formula:

        m = z_y - logsumexp_{j != y} z_j, so that p_y = sigmoid(m)

    Computed from the other logits only, so it stays exact where the probability rounds to 1, and
    from differences of logits, so that a constant added to all of them changes nothing.

    Args:
        logits: Unnormalised scores, shape (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Labels, shape (N,) or (N, d1, ..., dK), int64 in [0, C).

    Returns:
        Margins, shape of ``target``, dtype of ``logits``: +inf where no other class has a
        finite logit (as with one class), NaN where a logit is NaN or +inf or all are -inf.

    Examples:
        >>> margin(torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor([19.3069])
    """
    index = target.unsqueeze(1)
    own = logits.gather(1, index)
    others = logits.scatter(1, index, -math.inf)
    # Without a finite logit among the others the largest is -inf, and -inf - -inf would be NaN.
    shift = others.detach().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    total = (others - shift).exp().sum(1, keepdim=True)
    has_no_rival = total == 0
    # A gap beyond the float range is the largest number: +inf is kept for a label without rival.
    # The excess is subtracted as a constant, so that the gradient passes; +inf becomes NaN.
    half = (own / 2 - shift / 2 - torch.finfo(logits.dtype).max / 2).detach()
    m = own - 2 * half.clamp(min=0) - shift - total.masked_fill(has_no_rival, 1).log()
    certain = own.detach() * 0 + math.inf  # NaN unless the label's logit is finite
    return torch.where(has_no_rival, certain, m).squeeze(1)


def margins(logits: Tensor) -> Tensor:
    """Margin of every class, as if each in turn were the label.

    Args:
        logits: Unnormalised scores, shape (N, C) or (N, C, d1, ..., dK), any float dtype.

    Returns:
        Margins, shape and dtype of ``logits``.

    Examples:
        >>> margins(torch.tensor([[0.0, 0.0]]))
        tensor([[0., 0.]])
    """
    top = logits.detach().argmax(1, keepdim=True)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    log_p = logits.log_softmax(1)
    # Only the top class can have p > 1/2, where log(1 - p) is inexact: it gets its own margin.
    p = log_p.exp().masked_fill(is_top, 0)
    top_margin = margin(logits, top.squeeze(1)).unsqueeze(1)
    return torch.where(is_top, top_margin, log_p - torch.log1p(-p))


class _ValueAtMargin(torch.autograd.Function):
    """A curve's value, whose derivative is the curve's slope and not that of its formula.

    The margin is saved as an input, so that the slope can itself be differentiated.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(m: Tensor, curve: Curve) -> Tensor:
        return curve.value(m)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Curve], output: Tensor) -> None:  # noqa: ARG004
        m, ctx.curve = inputs
        ctx.save_for_backward(m)
        ctx.save_for_forward(m)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (m,) = ctx.saved_tensors
        return gradient * ctx.curve.slope(m), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (m,) = ctx.saved_tensors
        # Torch turns forward differentiation off in here, for outer levels too.
        with forward_ad._set_fwd_grad_enabled(True):
            slope: Tensor = ctx.curve.slope(forward_ad.unpack_dual(m).primal)
            return tangent * slope


def value_at_margin(m: Tensor, curve: Curve) -> Tensor:
    """A curve's loss at each margin; 0 with gradient 0 at +inf, where no other class is possible.

    Args:
        m: Margins, any shape, float32 or float64.
        curve: The loss.

    Returns:
        Losses, same shape and dtype.

    Examples:
        >>> from imae.curves import IMAE
        >>> value_at_margin(torch.tensor([0.0, float("inf")]), IMAE(T=8.0))
        tensor([-0., 0.])
    """
    certain = m == math.inf
    m = m.masked_fill(certain, 0)
    if torch.compiler.is_compiling():
        # The compiler takes no autograd function with a jvp, and makes one derivative only: the
        # tangent at the margin has the right value and the right slope.
        at = m.detach()
        return (curve.value(at) + curve.slope(at) * (m - at)).masked_fill(certain, 0)
    apply: Callable[..., Tensor] = _ValueAtMargin.apply
    losses = apply(m, curve)
    if is_trainable(curve):  # a term of 0 that has the derivative by the curve's parameters
        at_margin = curve.value(m.detach())
        losses = losses + (at_margin - at_margin.detach())
    return losses.masked_fill(certain, 0)


def log_probabilities(logits: Tensor) -> Tensor:
    """The logarithm of the softmax, exact also where a probability rounds to 1.

    Formula, with t the most likely class and m its margin:

        log p_t = log sigmoid(m), d log p_t / dm = sigmoid(-m)

    ``log_softmax`` rounds this to 0, value and derivative, from a logit gap of 17 on in float32.
    The other classes are those of ``log_softmax``.

    Args:
        logits: Unnormalised scores, shape (N, C) or (N, C, d1, ..., dK), float32 or float64.

    Returns:
        Logarithms, shape and dtype of ``logits``.

    Examples:
        >>> log_probabilities(torch.tensor([[20.0, 0.0]]))
        tensor([[-2.0612e-09, -2.0000e+01]])
    """
    top = logits.detach().argmax(1, keepdim=True)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    of_top = -value_at_margin(margin(logits, top.squeeze(1)), CCE()).unsqueeze(1)
    return torch.where(is_top, of_top, logits.log_softmax(1))


def is_trainable(curve: Curve) -> bool:
    """Whether a parameter of the curve is a tensor that requires a gradient.

    Examples:
        >>> from imae.curves import IMAE
        >>> is_trainable(IMAE(T=torch.nn.Parameter(torch.tensor(8.0)))), is_trainable(IMAE(T=8.0))
        (True, False)
    """
    return any(each.requires_grad for each in curve.tensors()) and torch.is_grad_enabled()


def weight_at_margin(m: Tensor, curve: Curve) -> Tensor:
    """A curve's weight at each margin, without a gradient; 0 at +inf.

    Args:
        m: Margins, any shape, float32 or float64.
        curve: The loss.

    Returns:
        ``2 |phi'(m)|``, same shape and dtype.
    """
    m = m.detach()
    return (-2 * curve.slope(m).detach()).masked_fill(m == math.inf, 0)


def batch_weight(
    weights: Tensor,
    counts: Tensor | float = 1.0,
    total: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> Tensor:
    """The mean weight of a batch, which normalisation divides by; 1 if it is too small for that.

    That is where its square rounds to 0, below about 1e-22 in float32: a loss divided by a number
    that small could overflow, and its gradient would be NaN.

    Args:
        weights: Weight of each row, any shape.
        counts: How much each row counts, same shape, or one number for all.
        total: Sum of a tensor over all processes that share the batch.

    Returns:
        A scalar without a gradient.

    Examples:
        >>> batch_weight(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.0]))
        tensor(1.)
    """
    counts = torch.as_tensor(counts, dtype=weights.dtype, device=weights.device)
    weights = weights.detach().masked_fill(counts == 0, 0)
    sums = torch.stack([(weights * counts).sum(), counts.expand_as(weights).sum()])
    weight, number = total(sums).unbind()
    mean = weight / number
    # Also where no row counts and the quotient is NaN.
    return torch.where(mean.square() > 0, mean, torch.ones_like(mean))


CONSTANT_SCALES = ("chance", "half")


def constant_weight(curve: Curve, logits: Tensor, scale: str) -> Tensor:
    """A curve's weight at p = 1 / C, where training starts, or at 1 / 2; 1 if that is 0.

    Args:
        curve: The loss.
        logits: Shape (N, C, ...), for the number of classes, the dtype and the device.
        scale: "chance" for 1 / C, "half" for 1 / 2.

    Returns:
        A scalar, float32 or float64; constant for the logits, but not for trained parameters of
        the curve.

    Examples:
        >>> from imae.curves import CCE
        >>> constant_weight(CCE(), torch.zeros(1, 4), "chance")     # 2 (1 - 1/4)
        tensor(1.5000)
    """
    rivals = logits.shape[1] - 1
    at_chance = -math.log(rivals) if rivals else math.inf
    place = 0.0 if scale == "half" else at_chance
    m = precise(logits).new_tensor(place)
    found = batch_weight(weight_at_margin(m, curve))
    if place == math.inf or not is_trainable(curve):
        return found
    weight = -2 * curve.slope(m)  # with its derivative by the curve's parameters
    return torch.where(weight.detach().square() > 0, weight, found)


def constant_number(curve: Curve, num_classes: int, scale: str) -> float:
    """``constant_weight`` as a number.

    Examples:
        >>> constant_number(CCE(), 4, "chance")
        1.5
    """
    p = 0.5 if scale == "half" else 1 / num_classes
    if not _has_only_numbers(curve):  # a tensor or a function may give something else next time
        return _weight_or_one(curve, p)
    try:
        return _remembered_weight(curve, p)
    except TypeError:  # its class cannot be hashed
        return _weight_or_one(curve, p)


def _has_only_numbers(curve: Curve) -> bool:
    for field in fields(curve):  # type: ignore[arg-type]  # leaves are dataclasses
        value = getattr(curve, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Curve):
                if not _has_only_numbers(part):
                    return False
            elif not isinstance(part, int | float | str | None):
                return False
    return True


def _weight_or_one(curve: Curve, p: float) -> float:
    found = 0.0 if p == 1 else curve.weight_at(p)
    return found if found > 0 else 1.0


_remembered_weight = lru_cache(maxsize=64)(_weight_or_one)


def precise(logits: Tensor) -> Tensor:
    """Logits of half precision as float32; others as they are."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


# Up to this length the squares of a vector can be summed in float32.
_SAFE_LENGTH = 1e18
# A row with a mean up to this is centred to 1e-6 by subtracting it.
_LARGE_MEAN = 16.0


def cap_logits(logits: Tensor, cap: float) -> Tensor:
    """Logits centred and rescaled so that no class has a probability above ``cap``.

    Formula, for C classes, with z' the logits less their mean:

        z' min(1, b / ||z'||_2)
        b = (log(cap / (1 - cap)) + log(C - 1)) sqrt((C - 1) / C)

    Among the vectors of norm b, the one that is concentrated on a class gives it the largest
    margin, ``b sqrt(C / (C - 1)) - log(C - 1)``, and b is chosen so that this is the margin of
    ``cap``. Directions are kept: single logits are never cut. Below the cap the softmax does not
    change. A row at the cap can still turn, but no loss can make it longer: logits stay bounded
    whatever the weight at p = 1 is, and every probability stays above a positive number.

    A class with logit -inf stays impossible, and C is the number of the other classes.

    Two classes are treated differently: their centred logits have one direction, so a row at the
    cap could not turn, and one on the wrong side would stay there forever. Their lengths
    saturate instead of being cut: a row of length r gets the length ``r b / sqrt(r^2 + b^2)``, so
    the cap is approached but never reached.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        cap: Largest probability, in (1 / C, 1).

    Returns:
        Same shape and dtype; NaN where a row has NaN or +inf.

    Raises:
        ArgumentError: If ``cap`` is not in (1 / C, 1).

    Examples:
        >>> cap_logits(torch.tensor([[60.0, 0.0, 0.0]]), cap=0.75).softmax(1)
        tensor([[0.7500, 0.1250, 0.1250]])
        >>> cap_logits(torch.tensor([[60.0, 0.0], [1.0, 0.0]]), cap=0.75).softmax(1)
        tensor([[0.7500, 0.2500], [0.6769, 0.3231]])
    """
    dim = min(1, logits.dim() - 1)
    check_cap(cap, logits.shape[dim])
    wide = precise(logits)
    is_impossible = wide == -math.inf
    number = (~is_impossible).sum(dim, keepdim=True)
    # At a count of one, where the formula is not finite, the centred vector is 0.
    rivals = (number - 1).clamp(min=1).to(wide.dtype)
    margin = math.log(cap) - math.log1p(-cap) + rivals.log()
    norm = (margin * (rivals / (rivals + 1)).sqrt()).clamp(min=0)
    near = wide - _offset(wide, is_impossible, dim)
    unit, largest = _scaled(near.masked_fill(is_impossible, 0), dim)
    unit = (unit - unit.sum(dim, keepdim=True) / number).masked_fill(is_impossible, 0)
    centred = unit * largest
    capped = _shortened(unit, largest, norm, dim, otherwise=centred)
    capped = torch.where(number == 2, _saturated(centred, norm), capped)
    capped = capped.masked_fill(is_impossible, -math.inf)
    return capped.to(logits.dtype)


def check_cap(cap: float, num_classes: int) -> None:
    """Checks that a cap is above chance; one class has probability 1, and any cap leaves it so.

    Raises:
        ArgumentError: If it is not.

    Examples:
        >>> check_cap(0.05, 10)
        Traceback (most recent call last):
            ...
        imae.errors.ArgumentError: cap must be in (0.1, 1), got 0.05
    """
    lowest = 1 / num_classes if num_classes > 1 else 0
    check_interval("cap", cap, low=lowest, high=1, open_low=True, open_high=True)


# Logits this many times as large as their differences are moved to 0 before they are centred.
_FAR = 64.0


def _offset(logits: Tensor, is_impossible: Tensor, dim: int) -> Tensor:
    """The largest logit of rows far from 0, whose differences a division would round; else 0."""
    logits = logits.detach()
    top = logits.masked_fill(is_impossible, -math.inf).amax(dim, keepdim=True)
    bottom = logits.masked_fill(is_impossible, math.inf).amin(dim, keepdim=True)
    is_far = top.abs() / _FAR > top - bottom
    return torch.where(is_far & top.isfinite(), top, torch.zeros_like(top))


@lru_cache(maxsize=64)
def largest_norm(cap: float, num_classes: int) -> float:
    """The norm b of ``cap_logits``, for two classes or more that are all possible.

    Examples:
        >>> round(largest_norm(0.75, 10), 3), round(largest_norm(0.75, 100), 3)
        (3.127, 5.665)
    """
    rivals = num_classes - 1
    margin = math.log(cap) - math.log1p(-cap) + math.log(rivals)
    return margin * math.sqrt(rivals / num_classes)


def is_easily_capped(logits: Tensor) -> bool:
    """Whether ``capped`` can take these logits: on the CPU, with finite squares.

    Examples:
        >>> is_easily_capped(torch.zeros(1, 3)), is_easily_capped(torch.full((1, 3), 1e30))
        (True, False)
    """
    if logits.device.type != "cpu" or logits.shape[1] < 2 or logits.numel() == 0:
        return False
    smallest, largest = logits.detach().aminmax()  # vector_norm takes several times as long
    return smallest.item() > -_SAFE_LENGTH and largest.item() < _SAFE_LENGTH  # not so with NaN


def capped(logits: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """``cap_logits`` for ordinary logits, and the factor of each row, 1 below the cap.

    With two classes, whose lengths saturate, the factor is under 1 everywhere.
    """
    norm = largest_norm(cap, logits.shape[1])
    logits = precise(logits)
    if logits.shape[1] == 2:
        half = logits.narrow(1, 0, 1).sub(logits.narrow(1, 1, 1)).div_(2)
        factor = half.square().mul_(2 / norm**2).add_(1).rsqrt_()
        half.mul_(factor)
        return torch.cat([half, -half], 1), factor
    mean = logits.mean(1, keepdim=True)
    centred = logits - mean
    if torch.linalg.vector_norm(mean, math.inf).item() > _LARGE_MEAN:  # its rounding is left over
        centred.sub_(centred.mean(1, keepdim=True))
    square = centred.square().sum(1, keepdim=True)  # vector_norm takes several times as long
    factor = square.rsqrt_().mul_(norm).clamp_(max=1)
    return centred.mul_(factor), factor


def turn_capped(gradient: Tensor, logits: Tensor, factor: Tensor, cap: float) -> None:
    """Turns the gradient on capped logits into that on the logits before the cap, in place.

    A row at the cap can turn but not grow: the part along it is subtracted. That the logits
    were centred changes nothing, since a gradient sums to 0. With two classes, lengths saturate.
    """
    if logits.shape[1] == 2:
        gradient.mul_(factor.pow(3))
        return
    along = (gradient * logits).sum(1, keepdim=True).masked_fill_(factor == 1, 0)
    gradient.addcmul_(logits, along, value=-1 / largest_norm(cap, logits.shape[1]) ** 2)
    gradient.mul_(factor)


class _Capped(torch.autograd.Function):
    """``cap_logits`` for ordinary logits, shape (N, C), in a quarter of the calls."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, cap: float) -> Tensor:
        found, ctx.factor = capped(logits, cap)
        ctx.cap = cap
        ctx.save_for_backward(logits, found)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, found = ctx.saved_tensors
        is_kept = torch.is_grad_enabled()
        if is_kept or is_batched(gradient):
            # The caller will differentiate again, or asks for several gradients at once.
            with torch.enable_grad():
                again = cap_logits(logits, ctx.cap)
                (result,) = torch.autograd.grad(again, logits, gradient, create_graph=is_kept)
            return result, None
        result = gradient - gradient.mean(1, keepdim=True)
        turn_capped(result, found, ctx.factor, ctx.cap)
        return result, None


def is_batched(gradient: Tensor) -> bool:
    """Whether a gradient is a batch of several, as ``is_grads_batched=True`` passes them."""
    kinds = torch._C._functorch
    return kinds.is_legacy_batchedtensor(gradient) or kinds.is_batchedtensor(gradient)


def bound_logits(logits: Tensor, norm: float) -> Tensor:
    """Logits rescaled so that no vector of them is longer than ``norm``.

    Formula:

        z min(1, norm / ||z||_2)

    Directions are kept: single logits are never cut. A vector within the bound passes unchanged,
    gradient included. What probability the norm allows depends on the number of classes:
    ``cap_logits`` takes the probability instead. A logit of -inf stays, and is not counted.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        norm: Largest length allowed, positive.

    Returns:
        Same shape and dtype; NaN where a row has NaN or +inf.

    Raises:
        ArgumentError: If ``norm`` is not positive.

    Examples:
        >>> bound_logits(torch.tensor([[6.0, 8.0], [0.3, 0.4]]), norm=5.0)
        tensor([[3.0000, 4.0000], [0.3000, 0.4000]])
    """
    check_interval("norm", norm, low=0, open_low=True)
    dim = min(1, logits.dim() - 1)
    wide = precise(logits)
    is_impossible = wide == -math.inf
    unit, largest = _scaled(wide.masked_fill(is_impossible, 0), dim)
    bounded = _shortened(unit, largest, wide.new_tensor(norm), dim, otherwise=wide)
    return bounded.masked_fill(is_impossible, -math.inf).to(logits.dtype)


def _scaled(vector: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """A vector divided by its largest entry, so that its square is finite; and that entry."""
    largest = vector.detach().abs().amax(dim, keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)  # else a vector of zeros would have no gradient
    return vector / largest, largest


def _shortened(unit: Tensor, scale: Tensor, norm: Tensor, dim: int, *, otherwise: Tensor) -> Tensor:
    """The vector ``unit * scale`` shortened to this norm where it is longer, else ``otherwise``."""
    is_long = scale * torch.linalg.vector_norm(unit.detach(), dim=dim, keepdim=True) > norm
    # The length of a vector of zeros has no second derivative.
    length = torch.linalg.vector_norm(unit.masked_fill(~is_long, 1), dim=dim, keepdim=True)
    return torch.where(is_long | scale.isinf(), unit * (norm / length), otherwise)


def _saturated(centred: Tensor, norm: Tensor) -> Tensor:
    """Two opposite numbers, a vector of length r, at the length r norm / sqrt(r^2 + norm^2).

    Each of them is ``norm / sqrt(2)`` times ``t / sqrt(1 + t^2)`` with t its ratio to that limit,
    whose derivative ``(1 + t^2)^(-3/2)`` is exact by either form in its half.
    """
    limit = norm / math.sqrt(2)
    t = centred / limit.masked_fill(limit == 0, 1)
    is_large = t.abs() > 1
    small = t.masked_fill(is_large, 0)
    inverse = t.masked_fill(~is_large, 1).reciprocal()
    of_small = small * (1 + small.square()).rsqrt()
    of_large = t.detach().sign() * (1 + inverse.square()).rsqrt()
    return limit * torch.where(is_large, of_large, of_small)


class LogitLimit(nn.Module):
    """Common base of the last steps: a name and a limit, for files that describe a model."""

    name: ClassVar[str]

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def extra_repr(self) -> str:
        """The limit, for ``repr``."""
        return f"{self.name}={self.limit}"


class CappedLogits(LogitLimit):
    """The last step of a model whose confidence is capped; see ``imae.cap_logits``.

    A cap belongs to the model and not only to its loss: put this step after the last layer, and
    predictions have the probabilities that the loss has seen. Train through it, or give the cap to
    the loss: of two classes, a second cap of the same size shortens logits again.

    Args:
        cap: Largest probability of a class, in (0, 1), above 1 / C.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 10), CappedLogits(0.75))
        >>> bool(model(100 * torch.randn(8, 4)).softmax(1).max() < 0.7501)
        True
    """

    name = "cap"

    def __init__(self, cap: float) -> None:
        check_interval("cap", cap, low=0, high=1, open_low=True, open_high=True)
        super().__init__(cap)

    def forward(self, logits: Tensor) -> Tensor:
        """Capped logits, shape of ``logits``."""
        from imae.losses.arguments import is_plain  # which needs this module

        is_ordinary = (
            is_plain(logits)
            and logits.requires_grad
            and torch.is_grad_enabled()
            and not torch._C._is_tracing()
            and logits.dim() == 2
            and logits.dtype in (torch.float32, torch.float64)
            and self.limit * logits.shape[1] > 1
            and is_easily_capped(logits)
        )
        if not is_ordinary:
            return cap_logits(logits, self.limit)
        apply: Callable[..., Tensor] = _Capped.apply
        return apply(logits, self.limit)


class BoundedLogits(LogitLimit):
    """The last step of a model whose logits have a bounded norm; see ``imae.bound_logits``.

    Args:
        norm: Largest length of a logit vector, positive.

    Examples:
        >>> BoundedLogits(5.0)(torch.tensor([[6.0, 8.0]]))
        tensor([[3., 4.]])
    """

    name = "bound"

    def __init__(self, norm: float) -> None:
        check_interval("bound", norm, low=0, open_low=True, open_high=True)
        super().__init__(norm)

    def forward(self, logits: Tensor) -> Tensor:
        """Bounded logits, shape of ``logits``."""
        return bound_logits(logits, self.limit)
