import math

import mpmath
import pytest
import torch

from imae.curves import CCE, IMAE
from imae.errors import ArgumentError
from imae.losses import (
    BoundedLogits,
    CappedLogits,
    IMAELoss,
    bound_logits,
    cap_logits,
    curve_loss,
    margin,
)


def test_long_vectors_are_shortened_and_short_ones_kept(generator):
    logits = 3 * torch.randn(50, 6, generator=generator, dtype=torch.float64)
    bounded = bound_logits(logits, norm=6.0)
    length = logits.norm(dim=1, keepdim=True)
    assert bool((length > 6).any())
    assert bool((length < 6).any())
    torch.testing.assert_close(bounded, logits * (6 / length).clamp(max=1))
    short = length.squeeze(1) <= 6
    assert torch.equal(bounded[short], logits[short])


@pytest.mark.parametrize("shape", [(6,), (4, 6), (4, 6, 3), (2, 6, 3, 2), (0, 6)])
def test_the_class_dimension_is_bounded(generator, shape):
    logits = 9 * torch.randn(shape, generator=generator)
    bounded = bound_logits(logits, norm=2.0)
    assert bounded.shape == shape
    lengths = bounded.norm(dim=min(1, len(shape) - 1))
    torch.testing.assert_close(lengths, torch.full_like(lengths, 2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_large_logits_do_not_overflow(dtype):
    largest = torch.finfo(dtype).max
    bounded = bound_logits(torch.tensor([[largest, -largest, 0.0]], dtype=dtype), norm=5.0)
    assert bounded.dtype == dtype
    expected = torch.tensor([[5 / math.sqrt(2), -5 / math.sqrt(2), 0.0]], dtype=dtype)
    torch.testing.assert_close(bounded, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_logits_and_zeros_pass(dtype):
    smallest = torch.finfo(dtype).tiny
    logits = torch.tensor([[0.0, 0.0], [smallest, 0.0]], dtype=dtype, requires_grad=True)
    bounded = bound_logits(logits, norm=1.0)
    assert torch.equal(bounded, logits)
    bounded.sum().backward()
    assert torch.equal(logits.grad, torch.ones_like(logits))


def test_gradients_and_their_gradients(generator):
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    for norm in (0.5, 1.8, 100.0):
        assert torch.autograd.gradcheck(lambda z, norm=norm: bound_logits(z, norm), logits)
        assert torch.autograd.gradgradcheck(lambda z, norm=norm: bound_logits(z, norm), logits)


def test_the_push_on_the_length_is_taken_away(generator):
    logits = 10 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    curve_loss(bound_logits(logits, 3.0), torch.tensor([0, 1, 2, 3, 0]), IMAE(T=8.0)).backward()
    along = (logits.grad * logits).sum(1)
    torch.testing.assert_close(along, torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert bool((logits.grad.abs().sum(1) > 0).all())


def test_margins_are_bounded():
    logits = torch.tensor([[1e6, -1e6, 0.0], [-1e6, 1e6, 0.0]])
    m = margin(bound_logits(logits, norm=3.0), torch.tensor([0, 0]))
    assert bool((m.abs() <= 6).all())


@pytest.mark.parametrize("norm", [0.0, -1.0, math.inf, math.nan])
def test_a_norm_outside_is_refused(norm):
    with pytest.raises(ArgumentError, match="norm must be in"):
        bound_logits(torch.zeros(1, 2), norm=norm)


@pytest.mark.parametrize("norm", [1e-30, 1e30])
def test_a_norm_inside_is_taken(norm):
    assert bool(bound_logits(torch.tensor([[3.0, 4.0]]), norm=norm).isfinite().all())


def test_works_row_by_row_under_vmap(generator):
    logits = 5 * torch.randn(5, 4, generator=generator)
    rows = torch.func.vmap(lambda z: bound_logits(z, 2.0))(logits)
    torch.testing.assert_close(rows, bound_logits(logits, 2.0))


def test_impossible_classes_stay_so_and_leave_no_nan():
    logits = torch.tensor([[6.0, -math.inf, 8.0], [0.3, 0.4, -math.inf]], requires_grad=True)
    bounded = bound_logits(logits, norm=5.0)
    assert bounded.tolist() == [
        [3.0, -math.inf, 4.0],
        [pytest.approx(0.3), pytest.approx(0.4), -math.inf],
    ]
    curve_loss(bounded, torch.tensor([0, 1]), IMAE(T=8.0)).backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 1].item() == logits.grad[1, 2].item() == 0
    assert logits.grad[0, 0].item() != 0


@pytest.mark.parametrize("limit", [lambda z: bound_logits(z, 5.0), lambda z: cap_logits(z, 0.9)])
@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_a_row_that_is_no_number_is_nan_and_others_are_not(limit, wrong):
    limited = limit(torch.tensor([[wrong, 0.0, 1.0], [3.0, 0.0, 1.0]]))
    assert limited[0].isnan().any()
    assert limited[1].isfinite().all()


CAPS = [(0.75, 10), (0.5, 10), (0.11, 10), (0.99, 10), (0.75, 2), (0.75, 100), (0.999, 1000)]


@pytest.mark.parametrize(("cap", "num_classes"), CAPS)
def test_no_class_is_more_likely_than_the_cap(cap, num_classes, generator):
    logits = torch.randn(200, num_classes, generator=generator, dtype=torch.float64)
    logits *= torch.logspace(-1, 6, 200).unsqueeze(1)
    capped = cap_logits(logits, cap)
    assert capped.softmax(1).max().item() <= cap * (1 + 1e-12)
    # A vector that is concentrated on a class reaches the cap, for all lengths beyond it.
    sharp = 1e5 * torch.eye(num_classes, dtype=torch.float64) + 7
    reached = cap_logits(sharp, cap).softmax(1).diagonal()
    torch.testing.assert_close(reached, torch.full_like(reached, cap))


def test_two_classes_approach_the_cap_and_every_row_can_come_back():
    logits = torch.tensor([[8.0, -8.0], [-8.0, 8.0], [0.0, 0.0]], dtype=torch.float64)
    logits.requires_grad_()
    capped = cap_logits(logits, 0.75)
    length = capped.norm(dim=1)
    norm = math.log(3) / math.sqrt(2)
    r = 8 * math.sqrt(2)
    saturated = r * norm / math.sqrt(r**2 + norm**2)
    torch.testing.assert_close(length.tolist(), [saturated, saturated, 0.0])
    assert capped.softmax(1).max().item() < 0.75
    curve_loss(logits, torch.tensor([1, 1, 1]), IMAE(T=8.0), cap=0.75).backward()
    assert (logits.grad[:, 1] < 0).all()  # the first row is far on the wrong side
    assert torch.autograd.gradcheck(lambda z: cap_logits(z, 0.75), logits)
    long = logits.detach()[:2].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: cap_logits(z, 0.75), long)


def test_below_the_cap_the_softmax_is_unchanged(generator):
    logits = 0.3 * torch.randn(20, 10, generator=generator, dtype=torch.float64) + 4
    torch.testing.assert_close(cap_logits(logits, 0.75).softmax(1), logits.softmax(1))
    order = cap_logits(1e3 * logits, 0.75).argsort(1)
    assert torch.equal(order, logits.argsort(1))  # rescaled, never cut


def test_a_cap_twice_is_a_cap(generator):
    logits = 5 * torch.randn(20, 10, generator=generator, dtype=torch.float64)
    once = cap_logits(logits, 0.75)
    torch.testing.assert_close(cap_logits(once, 0.75), once)


@pytest.mark.parametrize("shape", [(6,), (4, 6), (4, 6, 3), (2, 6, 3, 2), (0, 6)])
def test_the_class_dimension_is_capped(generator, shape):
    logits = 1e4 * torch.randn(shape, generator=generator)
    capped = cap_logits(logits, cap=0.6)
    assert capped.shape == shape
    probabilities = capped.softmax(min(1, len(shape) - 1))
    assert probabilities.max(min(1, len(shape) - 1)).values.le(0.6001).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extreme_logits_are_capped_in_every_dtype(dtype):
    largest, smallest = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    rows = [[largest, -largest, 0.0], [largest, largest, largest], [smallest, 0.0, 0.0]]
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    capped = cap_logits(logits, cap=0.75)
    assert capped.dtype == dtype
    # All of the norm on the difference of two logits.
    norm = math.log(6) * math.sqrt(2 / 3) / math.sqrt(2)
    expected = torch.tensor([[norm, -norm, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(capped, expected, atol=1e-4, rtol=torch.finfo(dtype).eps)
    curve_loss(capped, torch.tensor([1, 0, 2]), IMAE(T=8.0)).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("cap", [0.3, 0.5, 0.75, 0.9999])
def test_gradients_of_capped_logits_and_their_gradients(cap, generator):
    logits = 3 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    logits[1] = torch.tensor([9.0, 0.0, 0.0, 0.0])  # at the cap in its corner
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: cap_logits(z, cap), logits)
    assert torch.autograd.gradgradcheck(lambda z: cap_logits(z, cap), logits)


def test_at_the_cap_the_length_is_not_pushed_and_the_direction_is(generator):
    logits = 10 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    curve_loss(logits, torch.tensor([0, 1, 2, 3, 0]), IMAE(T=8.0), cap=0.7).backward()
    centred = logits.detach() - logits.detach().mean(1, keepdim=True)
    along = (logits.grad * centred).sum(1)
    torch.testing.assert_close(along, torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert bool((logits.grad.abs().sum(1) > 1e-3).all())


def test_impossible_classes_do_not_count_in_the_cap():
    masked = torch.tensor([[50.0, 0.0, 1.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    plain = masked.detach()[:, :3].clone().requires_grad_()
    capped = cap_logits(masked, 0.75)
    assert capped[0, 3].item() == -math.inf
    torch.testing.assert_close(capped[:, :3], cap_logits(plain, 0.75))
    target = torch.tensor([1])
    curve_loss(masked, target, IMAE(T=8.0), cap=0.75).backward()
    curve_loss(plain, target, IMAE(T=8.0), cap=0.75).backward()
    torch.testing.assert_close(masked.grad[:, :3], plain.grad)
    assert masked.grad[0, 3].item() == 0
    alone = torch.tensor([[-math.inf, 2.0, -math.inf]], requires_grad=True)
    cap_logits(alone, 0.75).sum().backward()
    assert alone.grad.isfinite().all()


@pytest.mark.parametrize("cap", [0.0, 0.25, 1.0, 1.5, math.nan])
def test_a_cap_that_cannot_be_met_is_refused(cap):
    with pytest.raises(ArgumentError, match="cap must be in"):
        cap_logits(torch.zeros(1, 4), cap)


@pytest.mark.parametrize("cap", [0.0, 1.0])
def test_the_steps_of_a_model_refuse_what_they_cannot_do(cap):
    with pytest.raises(ArgumentError, match="cap must be in"):
        CappedLogits(cap)
    with pytest.raises(ArgumentError, match="bound must be in"):
        BoundedLogits(-cap)


def test_a_model_that_ends_in_a_cap_shows_what_its_loss_has_seen(generator):
    logits, target = 9 * torch.randn(6, 4, generator=generator), torch.tensor([0, 1, 2, 3, 0, 1])
    seen = curve_loss(logits, target, CCE(), cap=0.6)
    shown = torch.nn.functional.cross_entropy(CappedLogits(0.6)(logits), target)
    torch.testing.assert_close(seen, shown)
    assert "cap=0.6" in repr(CappedLogits(0.6))


def test_a_cap_works_row_by_row_under_vmap(generator):
    logits = 5 * torch.randn(5, 4, generator=generator)
    rows = torch.func.vmap(lambda z: cap_logits(z, 0.7))(logits)
    torch.testing.assert_close(rows, cap_logits(logits, 0.7))


@pytest.mark.parametrize("limit", [lambda z: cap_logits(z, 0.75), lambda z: bound_logits(z, 5.0)])
def test_a_row_of_zeros_has_the_gradient_of_the_plain_logits(limit):
    logits = torch.zeros(2, 3, requires_grad=True)
    torch.nn.functional.cross_entropy(limit(logits), torch.tensor([0, 1])).backward()
    plain = torch.zeros(2, 3, requires_grad=True)
    torch.nn.functional.cross_entropy(plain, torch.tensor([0, 1])).backward()
    torch.testing.assert_close(logits.grad, plain.grad)


@pytest.mark.parametrize("offset", [0.3, 1000.25, 1e6])
@pytest.mark.parametrize("gap", [0.5, 3.0, 30.0, 100.0, 1000.0, 3000.0, 1e12])
def test_the_gradient_of_two_capped_classes_is_exact(gap, offset):
    for sign in (-1, 1):
        logits = torch.tensor([[offset + sign * gap, offset]])
        with mpmath.workdps(60):
            half = (mpmath.mpf(logits[0, 0].item()) - mpmath.mpf(logits[0, 1].item())) / 2
            norm = mpmath.log(3) / mpmath.sqrt(2)
            length = mpmath.sqrt(2 * half**2 + norm**2)
            p = 1 / (1 + mpmath.exp(-2 * half * norm / length))
            exact = float(-mpmath.exp(8 * p * (1 - p)) / 2 * (norm / length) ** 3)
        capped = logits.clone().requires_grad_()
        IMAELoss(8.0, cap=0.75)(capped, torch.tensor([0])).backward()
        assert capped.grad[0].tolist() == pytest.approx([exact, -exact], rel=1e-5, abs=0)


@pytest.mark.parametrize("offset", [100.0, 1e4, 1e6, -1e6])
@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("path", ["mean", "sum", "composite"])
def test_a_constant_added_to_all_logits_changes_no_capped_loss(
    offset, num_classes, path, generator
):
    far = torch.randn(16, num_classes, generator=generator) + offset
    target = torch.randint(num_classes, (16,), generator=generator)
    near = (far.double() - offset).float()  # exact: a difference of neighbours
    criterion = IMAELoss(8.0, cap=0.75, reduction="sum" if path == "sum" else "mean")

    def gradient(logits):
        if path == "composite":
            return torch.func.grad(lambda z: criterion(z, target))(logits)
        logits = logits.clone().requires_grad_()
        criterion(logits, target).backward()
        return logits.grad

    wrong = (gradient(far) - gradient(near)).abs().sum(1)
    assert bool((wrong <= 1e-5 * gradient(near).abs().sum(1)).all())


@pytest.mark.parametrize(
    "row",
    [[2.0] * 3, [0.0] * 3, [3e38] * 3, [2.0] * 2, [3e38] * 2, [2.0, 2.0, 2.0, -math.inf]],
    ids=str,
)
def test_equal_logits_have_finite_derivatives_of_a_capped_loss(row):
    logits, target = torch.tensor([row], requires_grad=True), torch.tensor([0])
    finite = torch.tensor([row]).isfinite()
    zeros = torch.zeros_like(logits).masked_fill(~finite, -math.inf).requires_grad_()

    def derivatives(z):
        loss = IMAELoss(8.0, cap=0.75)(z, target)
        (gradient,) = torch.autograd.grad(loss, z, create_graph=True)
        rows = [torch.autograd.grad(each, z, retain_graph=True)[0] for each in gradient[0]]
        return loss.detach(), gradient.detach(), torch.cat(rows)

    for found, expected in zip(derivatives(logits), derivatives(zeros), strict=True):
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("limit", [lambda z: cap_logits(z, 0.75), lambda z: bound_logits(z, 5.0)])
def test_a_row_of_zeros_has_second_derivatives(limit):
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    torch.autograd.gradgradcheck(lambda z: (limit(z) * weight).square().sum(), logits)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_capped_logits_have_the_gradient_of_the_formula(num_classes, generator):
    logits = 3 * torch.randn(8, num_classes, generator=generator, dtype=torch.float64)
    logits[0] = 0
    weight = torch.randn(8, num_classes, generator=generator, dtype=torch.float64)
    step = CappedLogits(0.75)

    def gradient(limit):
        z = logits.clone().requires_grad_()
        found = limit(z)
        found.backward(weight)  # does not sum to 0 over the classes
        return found.detach(), z.grad

    for found, expected in zip(
        gradient(step), gradient(lambda z: cap_logits(z, 0.75)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    z = logits[1:].clone().requires_grad_()
    assert torch.autograd.gradcheck(step, z, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(step, z)
    with pytest.raises(ArgumentError, match="cap must be"):
        CappedLogits(0.4)(torch.zeros(1, 2, requires_grad=True))
