import functools
import math

import mpmath
import numpy as np
import pytest
import torch

from imae.curves import CCE, GCE, IMAE, MAE, FromWeight, Scale, Window
from imae.losses import cap_logits, curve_loss, kernel
from imae.losses.kernel import exp_of_others, finish_gradient, kernel_loss
from imae.losses.small import is_small

GAPS = np.arange(-100, 100.125, 0.25)
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
LABEL = 1


@functools.cache
def sweep_logits(num_classes, dtype):
    """Rows whose label runs from far below to far above the largest of the other logits."""
    others = 3 * np.sin(1 + 2.3 * np.arange(num_classes - 1))
    rows = np.insert(np.tile(others, (len(GAPS), 1)), LABEL, GAPS + others.max(), axis=1)
    return torch.from_numpy(rows).to(dtype)


@functools.cache
def exact_margins(num_classes, dtype):
    """Margins of the rounded logits, with more digits than float64 has, and the others' shares."""
    rows = sweep_logits(num_classes, dtype).double().numpy().astype(np.longdouble)
    others = np.delete(rows, LABEL, axis=1)
    shifted = np.exp(others - others.max(1, keepdims=True))
    rest = others.max(1) + np.log(shifted.sum(1))
    shares = np.insert(-shifted / shifted.sum(1, keepdims=True), LABEL, 1, axis=1)
    return (rows[:, LABEL] - rest).astype(np.float64), torch.from_numpy(shares.astype(np.float64))


def gradient_of(logits, curve, path):
    target = torch.full((len(logits),), LABEL)

    def total(z):
        return curve_loss(z, target, curve, reduction="sum")

    if path == "composite":
        return torch.func.grad(total)(logits)
    if path == "small":  # one row at a time: an extreme row takes its whole batch to the other path
        rows = [row.clone().requires_grad_() for row in logits.split(1)]
        for row, label in zip(rows, target.split(1), strict=True):
            curve_loss(row, label, curve).backward()
        return torch.cat([row.grad for row in rows])
    logits = logits.clone().requires_grad_()
    total(logits).backward()
    return logits.grad


def assert_exact(gradient, exact, is_edge):
    bound, info = BOUNDS[gradient.dtype], torch.finfo(gradient.dtype)
    gradient, exact = gradient.double()[~is_edge], exact[~is_edge]
    # Under the smallest normal number a dtype has fixed steps, and no relative accuracy. All is
    # computed in float32, where a sigmoid under that number is 0: times the factors of the
    # curves, up to 8, this is the least that a gradient can be.
    least = 8 * torch.finfo(torch.float32).tiny
    steps = info.tiny * info.eps * exact.shape[1]
    assert bool(gradient.isfinite().all())
    false_zero = (gradient == 0) & (exact.abs() >= max(info.tiny, least))
    assert not bool(false_zero.any())
    vanishing = exact.abs() < least
    floor = steps + exact.abs().masked_fill(~vanishing, 0).sum(1)
    excess = (gradient - exact).abs().sum(1) - floor
    norm = exact.abs().sum(1)
    worst = (excess / norm.clamp(min=torch.finfo(torch.float64).tiny)).max().item()
    assert worst <= bound


@pytest.mark.parametrize("path", ["fast", "composite"])
@pytest.mark.parametrize(
    ("num_classes", "dtype"),
    [
        (10, torch.float32),
        (10, torch.bfloat16),
        (10, torch.float16),
        (2, torch.float32),
        (1000, torch.float32),
    ],
    ids=str,
)
def test_the_gradient_is_exact_over_the_margin_sweep(curve, edges, num_classes, dtype, path):
    check_sweep(curve, edges, num_classes, dtype, path)


def test_the_mean_of_a_small_batch_is_exact_over_the_margin_sweep(curve, edges):
    check_sweep(curve, edges, 10, torch.float32, "small", every=20)


@pytest.mark.slow
def test_the_mean_of_a_small_batch_is_exact_at_every_step_of_the_sweep(curve, edges):
    check_sweep(curve, edges, 10, torch.float32, "small")


def check_sweep(curve, edges, num_classes, dtype, path, every=1):
    logits = sweep_logits(num_classes, dtype)[::every]
    m, shares = (each[::every] for each in exact_margins(num_classes, dtype))
    # The slope in float64 is itself held against mpmath below.
    exact = curve.slope(torch.from_numpy(m)).unsqueeze(1) * shares
    is_edge = torch.zeros(len(m), dtype=torch.bool)
    for edge in edges(curve):
        is_edge |= torch.from_numpy(np.abs(m - edge) < 1e-4)
    assert_exact(gradient_of(logits, curve, path), exact, is_edge)


@pytest.mark.parametrize("row", [[0.0, 90.0, 1.0], [-3e38, 3e38, 0.0], [-math.inf, 0.0, 1.0]])
def test_a_small_batch_far_beyond_the_sweep_has_the_gradient_of_others(curve, row):
    logits, target = torch.tensor([row]), torch.tensor([0])
    small, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    curve_loss(small, target, curve).backward()
    curve_loss(plain, target, curve, reduction="sum").backward()
    assert bool(small.grad.isfinite().all())
    torch.testing.assert_close(small.grad, plain.grad, rtol=1e-5, atol=0)


def test_an_infinite_rival_gives_nan_in_a_small_batch(curve):
    logits = torch.tensor([[0.0, math.inf, 1.0]], requires_grad=True)
    loss = curve_loss(logits, torch.tensor([0]), curve)
    loss.backward()
    assert loss.isnan()
    assert bool(logits.grad.isnan().all())


def test_a_weight_that_vanishes_fast_leaves_no_false_zero_in_a_small_batch():
    curve = FromWeight(lambda p: p.square().square())
    logits = torch.tensor([[-21.0, 0.0, 0.0]], requires_grad=True)
    curve_loss(logits, torch.tensor([0]), curve).backward()
    assert bool((logits.grad != 0).all())


def test_the_sweep_would_notice():
    logits = sweep_logits(10, torch.float32)
    m, shares = exact_margins(10, torch.float32)
    exact = CCE().slope(torch.from_numpy(m)).unsqueeze(1) * shares
    nowhere = torch.zeros(len(m), dtype=torch.bool)
    clamped = logits.clone().requires_grad_()
    (-clamped.softmax(1).clamp(min=1e-7)[:, LABEL].log().sum()).backward()
    with pytest.raises(AssertionError):
        assert_exact(clamped.grad, exact, nowhere)
    with pytest.raises(AssertionError):
        assert_exact((exact * (1 + 2e-5)).float(), exact, nowhere)


def test_the_reference_slopes_are_those_of_mpmath(curve, exact_slope, edges):
    margins = [
        m for m in np.linspace(-103.7, 99.3, 41) if all(abs(m - e) > 1e-4 for e in edges(curve))
    ]
    slopes = curve.slope(torch.tensor(margins, dtype=torch.float64)).tolist()
    expected = [float(exact_slope(curve, m)) for m in margins]
    assert slopes == pytest.approx(expected, rel=1e-11, abs=1e-300)


def test_the_reference_margins_are_those_of_mpmath():
    logits = sweep_logits(10, torch.float32)
    margins, shares = exact_margins(10, torch.float32)
    for row in range(0, len(GAPS), 20):
        with mpmath.workdps(60):
            z = [mpmath.mpf(x) for x in logits[row].tolist()]
            own = z.pop(LABEL)
            total = mpmath.fsum(mpmath.exp(x) for x in z)
            assert margins[row] == pytest.approx(
                float(own - mpmath.log(total)), rel=1e-15, abs=1e-15
            )
            share = float(mpmath.exp(z[-1]) / total)
        assert shares[row, -1].item() == pytest.approx(-share, rel=1e-14)


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (torch.float32, 3e38),
        (torch.bfloat16, 3e38),
        (torch.float16, 65504.0),
        (torch.float64, 1e308),
    ],
)
def test_the_largest_logits_have_a_finite_gradient(curve, dtype, largest):
    rows = [[largest, -largest, 0.0], [-largest, largest, 0.0], [0.0, largest, largest]]
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    loss = curve_loss(logits, torch.zeros(3, dtype=torch.int64), curve, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert bool(gradient.isfinite().all())
    assert not bool(loss.isnan().any())


@pytest.mark.parametrize("path", ["fast", "composite"])
@pytest.mark.parametrize("large", [1e4, 1e38, 3e38])
def test_a_margin_past_the_largest_number_still_has_its_gradient(path, large):
    logits = torch.tensor([[-large, large], [large, -large]])
    gradient = gradient_of(logits, IMAE(T=8.0), path)
    assert gradient.tolist() == [[0.5, -0.5], [0.5, -0.5]]


@pytest.mark.parametrize("path", ["fast", "composite"])
def test_masked_classes_take_no_part(curve, path):
    few = torch.tensor([[0.3, -0.7, 1.2], [2.0, 0.1, 0.4]])
    many = torch.cat([few, torch.full((2, 4), -math.inf)], 1)
    gradient = gradient_of(many, curve, path)
    torch.testing.assert_close(gradient[:, :3], gradient_of(few, curve, path))
    assert not bool(gradient[:, 3:].any())


@pytest.mark.parametrize("path", ["fast", "composite"])
def test_a_row_with_no_other_class_has_no_loss_and_no_gradient(curve, path):
    logits = torch.tensor([[-math.inf, 1.0, -math.inf], [0.0, 1.0, 2.0]])
    gradient = gradient_of(logits, curve, path)
    assert gradient[0].tolist() == [0, 0, 0]
    assert bool(gradient.isfinite().all())
    target = torch.full((2,), LABEL)
    for z in (logits, logits.clone().requires_grad_()):
        assert curve_loss(z, target, curve, reduction="none")[0].item() == 0


@pytest.mark.parametrize("path", ["fast", "composite"])
def test_an_impossible_label_is_pulled_as_its_limit(curve, path):
    logits = torch.tensor([[0.5, -math.inf, -1.0]])
    near = torch.tensor([[0.5, -1000.0, -1.0]])
    torch.testing.assert_close(gradient_of(logits, curve, path), gradient_of(near, curve, path))


@pytest.mark.parametrize("num_classes", [1, 2, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_plus_infinity_give_nan(curve, bad, num_classes):
    if curve == IMAE(T=0.0) or isinstance(curve, Window):
        curve = Scale(CCE(), 2.0)  # a flat slope has nothing to turn into NaN
    target = torch.zeros(2, dtype=torch.int64)
    for column in range(num_classes):
        logits = torch.zeros(2, num_classes)
        logits[1, column] = bad
        for z in (logits, logits.clone().requires_grad_()):
            loss = curve_loss(z, target, curve, reduction="none")
            assert loss.isnan().tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_one_class_is_certain(curve, dtype):
    logits = torch.tensor([[3.0], [-70.0]], dtype=dtype, requires_grad=True)
    loss = curve_loss(logits, torch.zeros(2, dtype=torch.int64), curve)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.tolist() == [[0], [0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_hundred_thousand_classes(dtype, generator):
    logits = torch.randn(2, 100_000, generator=generator).to(dtype).requires_grad_()
    for curve in (CCE(), IMAE(T=8.0)):
        (gradient,) = torch.autograd.grad(
            curve_loss(logits, torch.tensor([0, 99_999]), curve), logits
        )
        assert bool(gradient.isfinite().all())
        assert gradient[1, -1].item() < 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_scaled_loss_keeps_gradients_that_are_small_before_scaling(dtype, generator):
    # The reason why losses are scaled in half precision: a mean over many rows and classes is
    # under the smallest numbers of float16 until the scale has been multiplied in.
    logits = torch.randn(4096, 200, generator=generator).to(dtype)
    target = torch.randint(200, (4096,), generator=generator)
    half, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    for z in (half, exact):
        (curve_loss(z, target, CCE()) * 4096).backward()
    error = (half.grad.double() - exact.grad).abs().sum(1) / exact.grad.abs().sum(1)
    assert error.max().item() <= BOUNDS[dtype]


@pytest.mark.parametrize("shape", [(37, 5), (7, 5, 6)])
@pytest.mark.parametrize("total", [True, False])
def test_pieces_make_no_difference(monkeypatch, generator, shape, total):
    logits = torch.randn(shape, generator=generator)
    index = torch.randint(5, shape[:1] + shape[2:], generator=generator)
    results = []
    for piece, rows in ((1 << 20, 1 << 14), (64, 8), (1, 1)):
        monkeypatch.setattr(kernel, "_PIECE", piece)
        monkeypatch.setattr(kernel, "_VALUE_ROWS", rows)
        z = logits.clone().requires_grad_()
        loss = kernel_loss(z, index, IMAE(T=8.0), scale=0.5, normalize=True, total=total)
        loss.sum().backward()
        results.append((loss.detach(), z.grad))
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_scale_for_each_row(dtype, generator):
    logits = torch.randn(6, 4, generator=generator).to(dtype).requires_grad_()
    index = torch.randint(4, (6,), generator=generator)
    scale = torch.rand(6, generator=generator)
    losses = kernel_loss(logits, index, MAE(), scale=scale, normalize=False, total=False)
    plain = kernel_loss(logits, index, MAE(), scale=1.0, normalize=False, total=False)
    assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(losses, plain * scale)


def test_the_logits_are_not_written_to(generator):
    logits = torch.randn(6, 4, generator=generator).requires_grad_()
    before = logits.detach().clone()
    curve_loss(logits, torch.tensor([0, 1, 2, 3, 0, 1]), IMAE(T=8.0)).backward()
    assert torch.equal(logits, before)


def test_pieces_of_the_gradient(generator):
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    index = torch.tensor([[0], [1], [2], [3], [0]])
    buffer, m, sums, is_finite = exp_of_others(logits, index)
    assert is_finite
    assert not bool(buffer.gather(1, index).any())
    torch.testing.assert_close(buffer.sum(1, keepdim=True), sums)
    torch.testing.assert_close(torch.sigmoid(m), logits.softmax(1).gather(1, index))
    finish_gradient(buffer, index, torch.full((5, 1), -1.0, dtype=torch.float64), sums)
    torch.testing.assert_close(buffer.sum(1), torch.zeros(5, dtype=torch.float64))
    assert buffer.gather(1, index).flatten().tolist() == [-1] * 5


def test_margins_that_are_not_finite_are_said_to_be_so():
    logits = torch.tensor([[0.0, -math.inf], [1.0, 2.0]])
    _, m, _, is_finite = exp_of_others(logits, torch.tensor([[0], [0]]))
    assert m[0].item() == math.inf
    assert not is_finite


def batch(generator, spread=3.0, shape=(32, 10)):
    logits = spread * torch.randn(shape, generator=generator)
    return logits.requires_grad_(), torch.randint(shape[1], shape[:1], generator=generator)


CURVES_OF_SMALL = [IMAE(T=0.0), IMAE(T=8.0), IMAE(T=20.0), IMAE(T=100.0), MAE(), GCE(q=0.7)]


@pytest.mark.parametrize("cap", [None, 0.75])
@pytest.mark.parametrize("normalize", [None, "chance", "half"])
@pytest.mark.parametrize("curve", CURVES_OF_SMALL, ids=repr)
def test_a_small_batch_has_the_loss_and_the_gradient_of_float64(generator, curve, normalize, cap):
    logits, target = batch(generator)
    assert is_small(logits, target)
    exact = logits.detach().double().requires_grad_()
    options = {"normalize": normalize, "cap": cap}
    for z in (logits, exact):
        curve_loss(z, target, curve, **options).backward()
    loss, reference = (curve_loss(z, target, curve, **options).item() for z in (logits, exact))
    assert loss == pytest.approx(reference, rel=1e-6, abs=1e-6)
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e30, -1e30, 90.0, -90.0])
@pytest.mark.parametrize("cap", [None, 0.75])
def test_a_small_batch_with_an_odd_logit_is_as_any_other(generator, odd, cap):
    logits, target = batch(generator)
    with torch.no_grad():
        logits[3, target[3]] = odd
        logits[4, (target[4] + 1) % 10] = odd
    other = logits.detach().clone().requires_grad_()
    loss = curve_loss(logits, target, IMAE(T=8.0), cap=cap)
    expected = curve_loss(other, target, IMAE(T=8.0), cap=cap, reduction="none").mean()
    torch.testing.assert_close(loss, expected, equal_nan=True)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(logits.grad, other.grad, equal_nan=True)


@pytest.mark.parametrize("cap", [None, 0.75])
def test_a_small_batch_can_be_differentiated_again_and_twice(generator, cap):
    logits, target = batch(generator, shape=(4, 3))
    loss = curve_loss(logits, target, IMAE(T=8.0), cap=cap)
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits, retain_graph=True)
    torch.testing.assert_close(first, second)
    (third,) = torch.autograd.grad(3 * loss, logits, create_graph=True)
    torch.testing.assert_close(third, 3 * first)
    (hessian,) = torch.autograd.grad(third.square().sum(), logits)
    exact = logits.detach().double().requires_grad_()
    (gradient,) = torch.autograd.grad(
        3 * curve_loss(exact, target, IMAE(T=8.0), cap=cap), exact, create_graph=True
    )
    (expected,) = torch.autograd.grad(gradient.square().sum(), exact)
    torch.testing.assert_close(hessian.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("label", "error"), [(10, IndexError), (-1, IndexError)])
def test_a_small_batch_refuses_a_wrong_label(generator, label, error):
    logits, target = batch(generator)
    target[5] = label
    with pytest.raises(error, match=f"Target {label} is out of bounds"):
        curve_loss(logits, target, IMAE(T=8.0))


def test_a_small_batch_leaves_out_ignored_rows(generator):
    logits, target = batch(generator)
    kept = curve_loss(logits[1:], target[1:], IMAE(T=8.0))
    target[0] = -100
    torch.testing.assert_close(curve_loss(logits, target, IMAE(T=8.0)), kept)


@pytest.mark.parametrize("shape", [(6, 4), (5, 4, 3)])
def test_a_cap_in_the_kernel_is_that_of_the_logits(generator, shape):
    logits = (5 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    index = torch.randint(4, shape[:1] + shape[2:], generator=generator)
    inside = kernel_loss(
        logits, index, IMAE(T=8.0), scale=1.0, normalize=False, total=True, cap=0.6
    )
    outside = curve_loss(cap_logits(logits, 0.6), index, IMAE(T=8.0), reduction="sum")
    torch.testing.assert_close(inside, outside)
    (first,), (second,) = (torch.autograd.grad(each, logits) for each in (inside, outside))
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("outlier", [0.0, 15.0, 25.0, 60.0, 200.0, -60.0, math.inf, math.nan])
@pytest.mark.parametrize("at_label", [False, True])
def test_many_moderate_logits_and_one_that_is_not(outlier, at_label, generator):
    logits = torch.randn(300, 100, generator=generator)
    target = torch.randint(100, (300,), generator=generator)
    other = (target[99] + 1) % 100
    logits[99, target[99] if at_label else other] += outlier  # in a row that is not tried

    def loss_and_gradient(dtype, reduction):
        z = logits.to(dtype, copy=True).requires_grad_()
        loss = curve_loss(z, target, IMAE(T=8.0), reduction=reduction)
        loss.sum().backward()
        return loss.detach().double(), z.grad.double()

    for reduction in ("sum", "none"):
        found = loss_and_gradient(torch.float32, reduction)
        expected = loss_and_gradient(torch.float64, reduction)
        torch.testing.assert_close(found[0], expected[0], rtol=3e-6, atol=1e-5, equal_nan=True)
        torch.testing.assert_close(found[1], expected[1], rtol=5e-6, atol=1e-30, equal_nan=True)
