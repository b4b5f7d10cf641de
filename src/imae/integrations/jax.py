"""The curves in JAX: a loss is two scalar functions, which are the same in any library."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from imae.curves import CCE, GCE, IMAE, MAE, SL, Curve, Focal, Scale, Sum, Window, parse_curve
from imae.errors import ArgumentError, import_extra
from imae.losses.margin import check_cap

import_extra("jax", extra="jax")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.nn import log_sigmoid, sigmoid  # noqa: E402

Array = Any
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def value(curve: str | Curve, m: Array) -> Array:
    """Loss of a curve at margins, element by element; ``imae.curves.Curve.value`` in JAX.

    Args:
        curve: A curve by its name, such as ``"gce:q=0.5"``, or from ``imae.curves``.
        m: Margins, any shape.

    Raises:
        ArgumentError: If the curve has no form in JAX.

    Examples:
        >>> round(float(value("cce", jnp.zeros(()))), 4)     # log 2
        0.6931
    """
    curve = parse_curve(curve) if isinstance(curve, str) else curve
    if isinstance(curve, Sum):
        return sum(value(part, m) for part in curve.parts)
    if isinstance(curve, Scale):
        return curve.factor * value(curve.curve, m)
    if isinstance(curve, Window):
        return value(curve.curve, jnp.clip(m, curve.low, curve.high))
    return _formulas(curve)[0](curve, m)


def slope(curve: str | Curve, m: Array) -> Array:
    """Derivative of a curve at margins, element by element; see `value`.

    Examples:
        >>> float(slope("imae:T=0", jnp.zeros(())))
        -0.5
    """
    curve = parse_curve(curve) if isinstance(curve, str) else curve
    if isinstance(curve, Sum):
        return sum(slope(part, m) for part in curve.parts)
    if isinstance(curve, Scale):
        return curve.factor * slope(curve.curve, m)
    if isinstance(curve, Window):
        is_inside = (m >= curve.low) & (m <= curve.high)
        return jnp.where(is_inside | jnp.isnan(m), slope(curve.curve, m), 0.0)
    return _formulas(curve)[1](curve, m)


def margin(logits: Array, labels: Array) -> Array:
    """Log-odds of the labels, shape of ``labels``; ``imae.margin`` in JAX, classes last."""
    labels = jnp.where(labels < 0, logits.shape[-1], labels)  # -1 would be the last class
    is_label = jnp.arange(logits.shape[-1]) == labels[..., None]
    own = jnp.take_along_axis(logits, labels[..., None], axis=-1, mode="fill")
    others = jnp.where(is_label, -jnp.inf, logits)
    # From differences, so that a constant added to all logits changes nothing; an infinite one
    # would make them NaN.
    largest = jax.lax.stop_gradient(others.max(axis=-1, keepdims=True))
    shift = jnp.where(jnp.isfinite(largest), largest, 0.0)
    # The gradient of logsumexp is NaN where no other class is possible; there the margin is +inf.
    is_certain = (others == -jnp.inf).all(axis=-1)
    rest = jax.nn.logsumexp(jnp.where(is_certain[..., None], 0.0, others - shift), axis=-1)
    own = (own - shift)[..., 0]
    certain = jax.lax.stop_gradient(own * 0 + jnp.inf)  # NaN unless the label's logit is finite
    return jnp.where(is_certain, certain, own - rest)


def cap_logits(logits: Array, cap: float) -> Array:
    """Logits centred and shortened so that no probability is above ``cap``, classes last.

    ``imae.cap_logits`` in JAX. Where a loss has a cap, predictions need it too: give both these
    logits, or the network this as its last step and the loss no cap.

    Args:
        logits: Unnormalised scores, shape (..., C).
        cap: Largest probability, in (1 / C, 1).

    Raises:
        ArgumentError: If ``cap`` is not in (1 / C, 1).

    Examples:
        >>> jax.nn.softmax(cap_logits(jnp.array([[60.0, 0.0, 0.0]]), 0.75)).round(3).tolist()
        [[0.75, 0.125, 0.125]]
    """
    check_cap(cap, logits.shape[-1])
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    is_possible = wide != -jnp.inf
    number = is_possible.sum(-1, keepdims=True)
    rivals = jnp.maximum(number - 1, 1).astype(wide.dtype)
    longest = (math.log(cap) - math.log1p(-cap) + jnp.log(rivals)) * jnp.sqrt(rivals / (rivals + 1))
    norm = jnp.maximum(longest, 0.0)
    shift = jax.lax.stop_gradient(wide.max(axis=-1, keepdims=True))
    near = jnp.where(is_possible, wide - shift, 0.0)
    mean = near.sum(axis=-1, keepdims=True) / jnp.maximum(number, 1)
    centred = jnp.where(is_possible, near - mean, 0.0)
    # Divided by its largest entry, so that squares are finite.
    largest = jax.lax.stop_gradient(jnp.abs(centred).max(axis=-1, keepdims=True))
    scale = jnp.where(largest == 0, 1.0, largest)
    unit = centred / scale
    square = (unit**2).sum(axis=-1, keepdims=True)
    is_long = scale * jnp.sqrt(jax.lax.stop_gradient(square)) > norm
    shortened = unit * norm / jnp.sqrt(jnp.where(is_long, square, 1.0))
    # Two classes have one direction, so their lengths saturate: a row at the cap can come back.
    is_pair = number == 2
    saturated = unit * norm / jnp.sqrt(jnp.where(is_pair, square + (norm / scale) ** 2, 1.0))
    capped = jnp.where(is_pair, saturated, jnp.where(is_long, shortened, centred))
    return jnp.where(is_possible, capped, -jnp.inf).astype(logits.dtype)


def curve_loss(
    logits: Array, labels: Array, curve: str | Curve = "imae", *, cap: float | None = None
) -> Array:
    """The loss of each example, with the arguments of optax: classes last, no reduction.

    Its gradient is the curve's slope, exact at any logit, and not that of the value's formula.
    Both are 0 where no other class is possible.

    Args:
        logits: Unnormalised scores, shape (..., C).
        labels: Integers in [0, C), shape (...); the loss of any other is NaN, since compiled code
            cannot raise.
        curve: A curve by its name, or from ``imae.curves``.
        cap: Largest probability; see `cap_logits`.

    Returns:
        Losses, shape of ``labels``, in the precision of the logits; half precision is computed in
        float32.

    Examples:
        >>> logits = jnp.array([[60.0, 0.0, 0.0]])
        >>> loss = lambda z: curve_loss(z, jnp.array([0]), "imae:T=8").sum()
        >>> jax.grad(loss)(logits).round(2).tolist()
        [[-0.5, 0.25, 0.25]]
    """
    curve = parse_curve(curve) if isinstance(curve, str) else curve

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def at_margin(m: Array) -> Array:
        return value(curve, m)

    def tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        return at_margin(primals[0]), slope(curve, primals[0]) * tangents[0]

    at_margin.defjvp(tangent)
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    m = margin(wide if cap is None else cap_logits(wide, cap), labels)
    is_certain = m == jnp.inf  # no other class is possible: nothing to learn
    losses = jnp.where(is_certain, 0.0, at_margin(jnp.where(is_certain, 0.0, m)))
    return losses.astype(logits.dtype)


def _imae_value(curve: Any, m: Array) -> Array:
    x = jnp.tanh(m / 2)[..., None]
    rest = 1 - (x * jnp.asarray((1 + _NODES) / 2)) ** 2  # 1 - u^2 at nodes u inside (0, x)
    integral = jnp.expm1(curve.T * rest / 4) / rest @ jnp.asarray(_WEIGHTS / 2)
    return -m / 2 - x[..., 0] * integral


def _focal_slope(curve: Any, m: Array) -> Array:
    p_log_p = jnp.where(m > -1e4, sigmoid(m) * log_sigmoid(jnp.maximum(m, -1e4)), 0.0)
    return jnp.exp(curve.gamma * log_sigmoid(-m)) * (curve.gamma * p_log_p - sigmoid(-m))


_Formula = Callable[[Any, Array], Array]
# For each curve its value and its slope, as in the class of the curve.
_FORMULAS: dict[type[Curve], tuple[_Formula, _Formula]] = {
    CCE: (lambda _, m: -log_sigmoid(m), lambda _, m: -sigmoid(-m)),
    MAE: (lambda _, m: 2 * sigmoid(-m), lambda _, m: -2 * sigmoid(m) * sigmoid(-m)),
    IMAE: (_imae_value, lambda c, m: -0.5 * jnp.exp(c.T * sigmoid(m) * sigmoid(-m))),
    GCE: (
        lambda c, m: -jnp.expm1(c.q * log_sigmoid(m)) / c.q,
        lambda c, m: -jnp.exp(c.q * log_sigmoid(m)) * sigmoid(-m),
    ),
    SL: (
        lambda c, m: -c.alpha * log_sigmoid(m) - c.beta * c.A * sigmoid(-m),
        lambda c, m: -sigmoid(-m) * (c.alpha - c.beta * c.A * sigmoid(m)),
    ),
    Focal: (
        lambda c, m: -jnp.exp(c.gamma * log_sigmoid(-m)) * log_sigmoid(m),
        _focal_slope,
    ),
}


def _formulas(curve: Curve) -> tuple[_Formula, _Formula]:
    if type(curve) not in _FORMULAS:
        known = ", ".join(each.name for each in _FORMULAS)
        raise ArgumentError(f"{curve!r} has no form in JAX; these curves have: {known}")
    return _FORMULAS[type(curve)]
