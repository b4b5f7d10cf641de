"""The curves in JAX, equal to those in torch."""

import importlib.util
import math

import numpy as np
import pytest
import torch

from imae import curves
from imae.errors import ArgumentError
from imae.losses import cap_logits as torch_cap
from imae.losses import curve_loss as torch_loss

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax"),
]
CURVES = [
    curves.CCE(),
    curves.MAE(),
    curves.IMAE(T=8.0),
    curves.IMAE(T=16.0),
    curves.GCE(q=0.5),
    curves.SL(),
    curves.Focal(gamma=2.0),
    curves.Window(curves.IMAE(T=8.0), low=-3.0, high=4.0),
    curves.Sum((curves.CCE(), curves.MAE())),
    curves.Scale(curves.MAE(), 0.5),
]


def in_float64():
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # its place before

    return enable_x64()


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_value_and_slope_equal_those_of_torch(curve):
    from imae.integrations import jax as ours

    m = np.linspace(-30, 30, 241)
    wide = torch.from_numpy(m)
    for in_jax, in_torch in ((ours.value, curve.value), (ours.slope, curve.slope)):
        found = np.asarray(in_jax(curve, m.astype(np.float32)))
        np.testing.assert_allclose(found, in_torch(wide).numpy(), rtol=1e-6, atol=1e-6)
    with in_float64():
        for in_jax, in_torch in ((ours.value, curve.value), (ours.slope, curve.slope)):
            found = np.asarray(in_jax(curve, m))
            np.testing.assert_allclose(found, in_torch(wide).numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_gradients_on_logits_equal_those_of_torch(curve):
    import jax
    import jax.numpy as jnp

    from imae.integrations.jax import curve_loss

    logits = np.random.Generator(np.random.PCG64(1)).normal(size=(6, 5)).astype(np.float32) * 3
    logits[0], labels = [60, 0, 0, 0, 0], np.array([0, 1, 2, 3, 4, 0])
    loss, gradient = jax.value_and_grad(lambda z: curve_loss(z, jnp.asarray(labels), curve).sum())(
        jnp.asarray(logits)
    )
    tensor = torch.from_numpy(logits.astype(np.float64)).requires_grad_()
    expected = torch_loss(tensor, torch.from_numpy(labels), curve, reduction="sum")
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(np.asarray(gradient), tensor.grad.numpy(), atol=1e-6)


def test_it_trains_under_jit_with_optax():
    import jax
    import jax.numpy as jnp
    import optax

    from imae.integrations.jax import curve_loss

    labels = jnp.arange(60) % 3
    rows = jax.nn.one_hot(labels, 3) + 0.1
    optimizer = optax.adam(0.1)
    weights = jnp.zeros((3, 3))
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        gradient = jax.grad(lambda w: curve_loss(rows @ w, labels, "imae:T=4").mean())(weights)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state

    for _ in range(30):
        weights, state = step(weights, state)
    assert bool(((rows @ weights).argmax(1) == labels).all())


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32(curve, dtype):
    import jax
    import jax.numpy as jnp

    from imae.integrations.jax import curve_loss

    generator = np.random.Generator(np.random.PCG64(1))
    logits = jnp.asarray(5 * generator.normal(size=(50, 5)), dtype)
    labels = jnp.arange(50) % 5
    loss, wide = curve_loss(logits, labels, curve), logits.astype(jnp.float32)
    assert loss.dtype == logits.dtype
    np.testing.assert_array_equal(loss, curve_loss(wide, labels, curve).astype(dtype))

    def total(z):
        return curve_loss(z, labels, curve).sum().astype(jnp.float32)

    gradient = jax.jit(jax.grad(total))(logits)
    assert gradient.dtype == logits.dtype
    np.testing.assert_array_equal(gradient, jax.grad(total)(wide).astype(dtype))


def test_a_label_that_is_no_class_has_no_loss():
    import jax
    import jax.numpy as jnp

    from imae.integrations.jax import curve_loss

    labels = jnp.array([2, -1, 3, -100])
    loss = jax.jit(lambda z: curve_loss(z, labels, "imae"))(jnp.zeros((4, 3)))
    assert np.isnan(loss).tolist() == [False, True, True, True]


def test_a_curve_without_a_form_is_refused():
    from imae.integrations.jax import value

    with pytest.raises(ArgumentError, match="has no form in JAX; these curves have: cce, mae"):
        value(curves.ICCE(), np.zeros(1))


def test_a_constant_added_to_all_logits_changes_no_margin():
    import jax.numpy as jnp

    from imae.integrations.jax import margin

    logits, labels = jnp.array([[1.0, 0.0, 2.0, -1.0]]), jnp.array([0])
    for offset in (1e3, 1e6, -1e6):
        assert margin(logits + offset, labels) == margin(logits, labels)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize(
    "rows", [[[2.0]], [[2.0, -math.inf, -math.inf], [0.5, -math.inf, 1.0]]], ids=["one", "masked"]
)
def test_a_label_without_rival_has_no_loss_and_no_gradient(curve, rows):
    import jax
    import jax.numpy as jnp

    from imae.integrations.jax import curve_loss, margin

    labels = jnp.zeros(len(rows), int)
    assert float(margin(jnp.asarray(rows), labels)[0]) == math.inf
    losses = curve_loss(jnp.asarray(rows), labels, curve)
    gradient = jax.grad(lambda z: curve_loss(z, labels, curve).sum())(jnp.asarray(rows))
    tensor = torch.tensor(rows, requires_grad=True)
    expected = torch_loss(tensor, torch.zeros(len(rows), dtype=int), curve, reduction="none")
    expected.sum().backward()
    assert (float(losses[0]), expected[0].item()) == (0, 0)
    np.testing.assert_allclose(np.asarray(gradient), tensor.grad.numpy(), rtol=1e-6, atol=1e-6)
    assert not np.asarray(gradient)[0].any()


CAPPED = {
    "ordinary": [[2.0, 0.0, -1.0], [0.1, 0.2, 0.0], [9.0, 1.0, 0.0]],
    "far": [[1e30, 0.0, -1e30], [1e6, 1e6 + 1, 1e6], [3e4, 0.0, 0.0]],
    "equal": [[0.0, 0.0, 0.0], [5.0, 5.0, 5.0]],
    "impossible": [[2.0, -math.inf, 0.0], [4.0, -math.inf, -math.inf], [-math.inf, 60.0, 0.0]],
    "two": [[30.0, -30.0], [0.2, 0.1], [0.0, 0.0]],
}


@pytest.mark.parametrize("kind", CAPPED)
def test_capped_logits_and_their_gradient_equal_those_of_torch(kind):
    import jax
    import jax.numpy as jnp

    from imae.integrations.jax import cap_logits, curve_loss

    logits = np.array(CAPPED[kind], np.float32)
    tensor = torch.from_numpy(logits).requires_grad_()
    expected = torch_cap(tensor, 0.75)
    np.testing.assert_allclose(
        np.asarray(cap_logits(jnp.asarray(logits), 0.75)), expected.detach(), rtol=1e-5, atol=1e-6
    )
    labels = np.array([0, 1, 0])[: len(logits)] if kind != "impossible" else np.array([2, 0, 1])
    torch_loss(expected, torch.from_numpy(labels), curves.IMAE(T=8.0), reduction="sum").backward()

    def total(z):
        return curve_loss(z, jnp.asarray(labels), "imae:T=8", cap=0.75).sum()

    gradient = np.asarray(jax.jit(jax.grad(total))(jnp.asarray(logits)))
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cap", [0.3, 1.0])
def test_a_cap_that_is_none_is_refused(cap):
    import jax.numpy as jnp

    from imae.integrations.jax import cap_logits

    with pytest.raises(ArgumentError, match="cap must be in"):
        cap_logits(jnp.zeros((1, 3)), cap)
