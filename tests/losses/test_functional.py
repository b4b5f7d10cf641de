import math
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from imae.curves import (
    CCE,
    GCE,
    IMAE,
    MAE,
    Focal,
    ForwardSymmetric,
    Scale,
    Window,
)
from imae.losses import cap_logits, curve_loss, forward_correction, margin, weight_curve
from imae.noise import symmetric

REDUCTIONS = ("none", "mean", "sum")
# How many examples are tried is said by the profiles of the root conftest.
PROPERTY = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=6)


def case(name, generator):
    """Logits, target and keywords of one way to call a loss."""
    soft = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    weight = torch.rand(4, generator=generator, dtype=torch.float64) + 0.1
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    deep = torch.randn(2, 4, 2, 2, generator=generator, dtype=torch.float64)
    target = torch.tensor([2, 0, 3])
    return {
        "plain": (logits, target, {}),
        "one row": (logits[0], target[0], {}),
        "class weights": (logits, target, {"weight": weight}),
        "ignored": (logits, torch.tensor([2, -100, 3]), {}),
        "both": (logits, torch.tensor([2, 1, 3]), {"weight": weight, "ignore_index": 1}),
        "smoothed": (logits, target, {"label_smoothing": 0.2}),
        "smoothed with both": (
            logits,
            torch.tensor([2, -100, 3]),
            {"weight": weight, "label_smoothing": 0.3},
        ),
        "probabilities": (logits, soft / soft.sum(1, keepdim=True), {}),
        "probabilities with weights": (logits, soft, {"weight": weight, "label_smoothing": 0.1}),
        "volume": (deep, torch.tensor([[[0, 1], [2, 3]], [[3, 3], [-100, 0]]]), {"weight": weight}),
    }[name]


CASES = (
    "plain",
    "one row",
    "class weights",
    "ignored",
    "both",
    "smoothed",
    "smoothed with both",
    "probabilities",
    "probabilities with weights",
    "volume",
)


def loss_and_gradient(logits, target, curve, **options):
    logits = logits.detach().clone().requires_grad_()
    loss = curve_loss(logits, target, curve, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return loss.detach(), gradient


@pytest.mark.parametrize(
    ("name", "reduction"),
    [
        ("plain", "mean"),
        ("class weights", "none"),
        ("ignored", "sum"),
        ("smoothed", "mean"),
        ("probabilities", "none"),
        ("volume", "mean"),
    ],
)
def test_gradients_and_their_gradients(curve, name, reduction, generator):
    check_gradients(curve, name, reduction, generator)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_and_their_gradients_with_every_reduction(curve, name, reduction, generator):
    check_gradients(curve, name, reduction, generator)


def check_gradients(curve, name, reduction, generator):
    logits, target, options = case(name, generator)
    logits.requires_grad_()

    def loss(z):
        return curve_loss(z, target, curve, reduction=reduction, **options)

    assert gradcheck(loss, logits, fast_mode=name != "plain")
    if name == "plain" or reduction == "mean":  # the others differ by a factor for each row
        assert gradgradcheck(loss, logits, fast_mode=True)


def assert_paths_agree(logits, target, curve, **options):
    loss, gradient = loss_and_gradient(logits, target, curve, **options)
    with torch.no_grad():
        torch.testing.assert_close(curve_loss(logits, target, curve, **options), loss)
    transformed = torch.func.grad(lambda z: curve_loss(z, target, curve, **options).sum())(logits)
    torch.testing.assert_close(transformed, gradient)


@pytest.mark.parametrize("name", CASES)
def test_all_paths_agree_for_every_curve(curve, name, generator):
    logits, target, options = case(name, generator)
    assert_paths_agree(logits, target, curve, normalize="batch", **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("normalize", [None, "batch"])
def test_all_paths_agree_for_every_option(name, reduction, normalize, generator):
    logits, target, options = case(name, generator)
    options = {**options, "reduction": reduction, "normalize": normalize}
    assert_paths_agree(logits, target, IMAE(T=8.0), **options)


@pytest.mark.parametrize("name", [name for name in CASES if name != "one row"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_is_that_of_torch(name, reduction, dtype, generator):
    logits, target, options = case(name, generator)
    logits = logits.to(dtype)
    target = target.to(dtype) if target.is_floating_point() else target
    options = {k: v.to(dtype) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    ours, gradient = loss_and_gradient(logits, target, CCE(), reduction=reduction, **options)
    logits.requires_grad_()
    theirs = torch.nn.functional.cross_entropy(logits, target, reduction=reduction, **options)
    torch.testing.assert_close(ours, theirs.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs.sum(), logits)[0])


def test_a_loop_over_rows_gives_the_same(curve, generator):
    logits, target, options = case("both", generator)
    p = logits.softmax(1).tolist()
    losses, weights = [], []
    for row, y in zip(p, target.tolist(), strict=True):
        m = torch.tensor(math.log(row[y] / sum(row[:y] + row[y + 1 :])), dtype=torch.float64)
        counts = y != options["ignore_index"]
        weights.append(options["weight"][y].item() if counts else 0.0)
        losses.append(weights[-1] * curve.value(m).item())
    expected = {"none": losses, "sum": sum(losses), "mean": sum(losses) / sum(weights)}
    for reduction, value in expected.items():
        loss = curve_loss(logits, target, curve, reduction=reduction, **options)
        assert loss.tolist() == pytest.approx(value, rel=1e-12)


def test_probabilities_give_the_expected_loss(curve, generator):
    logits, target, options = case("probabilities with weights", generator)
    options = {"weight": options["weight"]}
    each = [
        curve_loss(logits, torch.full((3,), k), curve, reduction="none", **options)
        for k in range(4)
    ]
    expected = (torch.stack(each, 1) * target).sum(1)
    torch.testing.assert_close(
        curve_loss(logits, target, curve, reduction="none", **options), expected
    )
    torch.testing.assert_close(curve_loss(logits, target, curve, **options), expected.sum() / 3)


def test_smoothing_stands_for_smoothed_probabilities(curve, generator):
    logits, target, _ = case("plain", generator)
    smoothed = torch.nn.functional.one_hot(target, 4).double() * 0.8 + 0.05
    torch.testing.assert_close(
        curve_loss(logits, target, curve, label_smoothing=0.2), curve_loss(logits, smoothed, curve)
    )


@pytest.mark.parametrize("normalize", [None, "batch"])
def test_one_hot_probabilities_are_class_targets(curve, normalize, generator):
    logits, target, _ = case("plain", generator)
    one_hot = torch.nn.functional.one_hot(target, 4).double()
    hard = loss_and_gradient(logits, target, curve, normalize=normalize)
    soft = loss_and_gradient(logits, one_hot, curve, normalize=normalize)
    torch.testing.assert_close(hard, soft)


@PROPERTY
@given(row=LOGITS, data=st.data())
def test_gradient_has_the_norm_of_the_weight_and_sums_to_zero(curves, row, data):
    curve = data.draw(st.sampled_from(curves))
    label = torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    logits = torch.tensor([row], dtype=torch.float64)
    _, gradient = loss_and_gradient(logits, label, curve)
    weight = 2 * curve.slope(margin(logits, label)).abs().item()
    assert gradient.abs().sum().item() == pytest.approx(weight, rel=1e-10)
    assert abs(gradient.sum().item()) <= 1e-14 * weight
    # The label's logit is pushed up, all others down.
    assert gradient[0, label].item() <= 0
    assert bool((gradient >= 0).sum() >= len(row) - 1)


@PROPERTY
@given(row=LOGITS, shift=st.floats(-1e3, 1e3), data=st.data())
def test_a_constant_added_to_all_logits_changes_nothing(curves, edges, row, shift, data):
    curve = data.draw(st.sampled_from([curve for curve in curves if not edges(curve)]))
    label = torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    logits = torch.tensor([row], dtype=torch.float64)
    here = loss_and_gradient(logits, label, curve)
    there = loss_and_gradient(logits + shift, label, curve)
    torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-10)


@PROPERTY
@given(row=LOGITS, data=st.data())
def test_classes_can_change_places(curves, edges, row, data):
    curve = data.draw(st.sampled_from([curve for curve in curves if not edges(curve)]))
    order = data.draw(st.permutations(range(len(row))))
    label = data.draw(st.integers(0, len(row) - 1))
    logits = torch.tensor([row], dtype=torch.float64)
    loss, gradient = loss_and_gradient(logits, torch.tensor([label]), curve)
    moved = torch.tensor([order.index(label)])
    moved_loss, moved_gradient = loss_and_gradient(logits[:, order], moved, curve)
    torch.testing.assert_close(moved_loss, loss, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(moved_gradient, gradient[:, order], rtol=1e-11, atol=1e-12)


@PROPERTY
@given(row=LOGITS, data=st.data())
def test_identities_hold_through_logits(row, data):
    label = torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    logits = torch.tensor([row], dtype=torch.float64)
    pairs = (
        (Focal(gamma=0.0), CCE(), 1e-12),
        (Scale(GCE(q=1.0), 2.0), MAE(), 1e-12),
        (GCE(q=1e-6), CCE(), 1e-4),
        (ForwardSymmetric(rate=0.0, num_classes=len(row)), CCE(), 1e-12),
    )
    for left, right, rtol in pairs:
        torch.testing.assert_close(
            loss_and_gradient(logits, label, left),
            loss_and_gradient(logits, label, right),
            rtol=rtol,
            atol=1e-14,
        )
    flat = loss_and_gradient(logits, label, IMAE(T=0.0))[1]
    assert flat.abs().sum().item() == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("rate", [0.1, 0.45])
def test_even_noise_is_forward_corrected_as_its_matrix_says(rate, generator):
    logits, target, _ = case("plain", generator)
    curve = ForwardSymmetric(rate=rate, num_classes=4)
    matrix = symmetric([0, 1, 2, 3], rate=rate, num_classes=4, seed=0).transition
    expected = forward_correction(logits, target, torch.tensor(matrix, dtype=torch.float64))
    torch.testing.assert_close(curve_loss(logits, target, curve), expected)


def test_normalized_rows_have_mean_weight_one(curve, generator):
    logits = 2 * torch.randn(64, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(5, (64,), generator=generator)
    _, gradient = loss_and_gradient(logits, target, curve, reduction="sum", normalize="batch")
    assert gradient.abs().sum(1).mean().item() == pytest.approx(1, rel=1e-12)
    _, mean = loss_and_gradient(logits, target, curve, normalize="batch")
    torch.testing.assert_close(mean * 64, gradient)


def test_normalized_rows_count_by_class_weight_and_not_if_ignored(curve, generator):
    logits = 2 * torch.randn(64, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(5, (64,), generator=generator)
    weight = torch.rand(5, generator=generator, dtype=torch.float64) + 0.1
    options = {"weight": weight, "ignore_index": 3, "normalize": "batch"}
    _, gradient = loss_and_gradient(logits, target, curve, reduction="sum", **options)
    total = weight[target][target != 3].sum().item()
    assert not bool(gradient[target == 3].any())
    assert gradient.abs().sum().item() / total == pytest.approx(1, rel=1e-12)


def test_normalizing_is_a_constant_for_the_gradient(generator):
    logits, target, _ = case("plain", generator)
    plain, plain_gradient = loss_and_gradient(logits, target, IMAE(T=8.0))
    normal, normal_gradient = loss_and_gradient(logits, target, IMAE(T=8.0), normalize="batch")
    factor = (plain / normal).item()
    torch.testing.assert_close(plain_gradient, normal_gradient * factor)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_batch_outside_its_window_sends_nothing(reduction, generator):
    logits, target, _ = case("plain", generator)
    outside = Window(IMAE(T=8.0), low=50.0, high=60.0)
    options = {"reduction": reduction, "normalize": "batch"}
    loss, gradient = loss_and_gradient(logits, target, outside, **options)
    assert bool(loss.isfinite().all())
    assert not bool(gradient.any())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("gap", [100.0, 130.0, 140.0, 200.0])
def test_a_mean_weight_that_is_hardly_a_number_is_not_divided_by(gap, reduction):
    logits = torch.tensor([[-gap, 0.0, 0.0]]).expand(3, -1)  # at 130 and 140 not a normal number
    options = {"reduction": reduction, "normalize": "batch"}
    loss, gradient = loss_and_gradient(logits, torch.zeros(3).long(), GCE(q=0.7), **options)
    assert bool(loss.isfinite().all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("normalize", [None, "batch"])
@pytest.mark.parametrize("grad", [True, False])
def test_no_row_counts(curve, normalize, grad):
    for logits, target in (
        (torch.randn(3, 4), torch.full((3,), -100)),
        (torch.randn(0, 4), torch.zeros(0, dtype=torch.int64)),
    ):
        logits.requires_grad_(grad)
        options = {"normalize": normalize}
        mean = curve_loss(logits, target, curve, **options)
        total = curve_loss(logits, target, curve, reduction="sum", **options)
        rows = curve_loss(logits, target, curve, reduction="none", **options)
        assert math.isnan(mean.item())
        assert total.item() == 0
        assert rows.tolist() == [0] * len(target)
        if grad:
            for loss in (total, rows.sum()):
                (gradient,) = torch.autograd.grad(loss, logits)
                assert gradient.shape == logits.shape
                assert not bool(gradient.any())


def test_no_row_counts_as_torch_has_it():
    for weight in (None, torch.tensor([0.5, 1.0, 2.0])):
        z = torch.zeros(2, 3, requires_grad=True)
        target = torch.full((2,), -100)
        theirs = torch.nn.functional.cross_entropy(z, target, weight=weight)
        (expected,) = torch.autograd.grad(theirs, z)
        (gradient,) = torch.autograd.grad(curve_loss(z, target, CCE(), weight=weight), z)
        torch.testing.assert_close(gradient, expected, equal_nan=True)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("normalize", [None, "batch"])
def test_what_stands_in_ignored_rows_does_not_matter(curve, grad, normalize):
    target = torch.tensor([2, -100, 1])
    for bad in (-math.inf, math.inf, math.nan):
        logits = torch.tensor([[0.5, 1.0, 2.0], [bad, 0.0, 1.0], [1.0, 0.0, 0.0]])
        kept = curve_loss(logits[[0, 2]], target[[0, 2]], curve, normalize=normalize)
        loss = curve_loss(logits.requires_grad_(grad), target, curve, normalize=normalize)
        torch.testing.assert_close(loss.detach(), kept)


BAD_ROWS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("num_classes", [3, 20_000], ids=["few", "many"])
def test_rows_of_weight_zero_count_as_in_torch(bad, grad, num_classes):
    logits = torch.zeros(3, num_classes)
    logits[1, 0] = BAD_ROWS[bad]
    weight, target = torch.ones(num_classes), torch.tensor([2, 0, -100])
    weight[0] = 0
    results = []
    for loss in (torch.nn.functional.cross_entropy, partial(curve_loss, curve=CCE())):
        z = logits.clone().requires_grad_(grad)
        value = loss(z, target, weight=weight)
        results.append((value.detach(), *(torch.autograd.grad(value, z) if grad else ())))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


def test_small_integers_are_labels_too(curve, generator):
    logits, target, _ = case("plain", generator)
    expected = loss_and_gradient(logits, target, curve)
    torch.testing.assert_close(loss_and_gradient(logits, target.byte(), curve), expected)


def test_small_integers_are_not_taken_for_the_ignored_class(generator):
    # -100 as a byte is 156, which is a class here.
    logits = torch.randn(2, 200, generator=generator)
    target = torch.tensor([156, 3])
    expected = curve_loss(logits, target, CCE(), reduction="none")
    result = curve_loss(logits, target.byte(), CCE(), reduction="none")
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_factor_on_the_loss_is_one_on_the_gradient(curve, reduction, generator):
    logits, target, _ = case("plain", generator)
    _, gradient = loss_and_gradient(logits, target, curve, reduction=reduction)
    for factor in (1.0, 3.0, -0.5, 0.0):
        leaf = logits.clone().requires_grad_()
        (factor * curve_loss(leaf, target, curve, reduction=reduction)).sum().backward()
        torch.testing.assert_close(leaf.grad, factor * gradient)


def test_rows_can_be_weighed_one_by_one(curve, generator):
    logits, target, _ = case("plain", generator)
    logits.requires_grad_()
    factors = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    losses = curve_loss(logits, target, curve, reduction="none")
    (gradient,) = torch.autograd.grad((losses * factors).sum(), logits)
    _, plain = loss_and_gradient(logits, target, curve, reduction="sum")
    torch.testing.assert_close(gradient, plain * factors.unsqueeze(1))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_second_backward_gives_the_same(reduction, generator):
    logits, target, _ = case("plain", generator)
    logits.requires_grad_()
    loss = curve_loss(logits, target, IMAE(T=8.0), reduction=reduction).sum()
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    logits.grad.mul_(5).add_(1)  # as an optimiser or a clipper might
    logits.grad = None
    loss.backward(retain_graph=True)
    assert torch.equal(logits.grad, first)
    loss.backward()
    torch.testing.assert_close(logits.grad, 2 * first)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_gradient_that_is_written_to_does_not_spoil_the_next(reduction, generator):
    logits, target, _ = case("plain", generator)
    logits.requires_grad_()
    loss = curve_loss(logits, target, IMAE(T=8.0), reduction=reduction).sum()
    (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    first = gradient.clone()
    gradient.mul_(5)
    assert torch.equal(torch.autograd.grad(loss, logits)[0], first)


def test_a_hook_that_writes_to_the_gradient_acts_once(generator):
    logits, target, _ = case("plain", generator)
    _, plain = loss_and_gradient(logits, target, IMAE(T=8.0))
    logits.requires_grad_()
    scores = logits * 1
    scores.register_hook(lambda gradient: gradient * 2)
    loss = curve_loss(scores, target, IMAE(T=8.0))
    for _ in range(2):
        (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
        torch.testing.assert_close(gradient, 2 * plain)


def test_second_derivatives_are_those_of_cross_entropy(generator):
    logits, target, _ = case("plain", generator)
    ours = torch.autograd.functional.hessian(lambda z: curve_loss(z, target, CCE()), logits)
    theirs = torch.autograd.functional.hessian(
        lambda z: torch.nn.functional.cross_entropy(z, target), logits
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("normalize", [None, "batch"])
def test_the_layout_of_the_logits_does_not_matter(curve, normalize, generator):
    deep = torch.randn(3, 2, 2, 4, generator=generator).movedim(-1, 1)
    target = torch.randint(4, (3, 2, 2), generator=generator)
    expanded = torch.randn(1, 4, generator=generator).expand(3, 4)
    strided = torch.randn(6, 8, generator=generator)[::2, ::2]
    transposed = torch.randn(4, 3, generator=generator).t()
    for logits in (deep, expanded, strided, transposed):
        labels = target if logits.dim() == 4 else torch.tensor([0, 3, 1])
        results = []
        for z in (logits.detach(), logits.contiguous().detach()):
            z.requires_grad_()
            loss = curve_loss(z, labels, curve, normalize=normalize)
            results.append((loss.detach(), torch.autograd.grad(loss, z)[0]))
        torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("trailing", [(3,), (2, 3), (2, 1, 3)])
def test_trailing_dimensions_are_rows(curve, trailing, generator):
    logits = torch.randn(2, 4, *trailing, generator=generator)
    target = torch.randint(4, (2, *trailing), generator=generator)
    rows, labels = logits.movedim(1, -1).reshape(-1, 4), target.flatten()
    for reduction in REDUCTIONS:
        loss, gradient = loss_and_gradient(logits, target, curve, reduction=reduction)
        flat, flat_gradient = loss_and_gradient(rows, labels, curve, reduction=reduction)
        torch.testing.assert_close(loss.flatten(), flat.flatten())
        torch.testing.assert_close(gradient.movedim(1, -1).reshape(-1, 4), flat_gradient)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["plain", "class weights", "smoothed", "probabilities"])
def test_the_dtype_is_kept(dtype, name, generator):
    logits, target, options = case(name, generator)
    if "weight" in options:
        options["weight"] = options["weight"].to(dtype)
    loss, gradient = loss_and_gradient(logits.to(dtype), target, IMAE(T=8.0), **options)
    assert loss.dtype == gradient.dtype == dtype
    exact, _ = loss_and_gradient(logits.to(dtype).double(), target, IMAE(T=8.0), **options)
    assert loss.item() == pytest.approx(exact.item(), rel=torch.finfo(dtype).eps, abs=1e-6)


def test_the_measured_weight_is_the_closed_form(curve):
    p = torch.tensor([0.02, 0.3, 0.49, 0.6, 0.97], dtype=torch.float64)
    _, weights = weight_curve(lambda z, y: curve_loss(z, y, curve), p)
    torch.testing.assert_close(weights, curve.weight(p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalize", ["", "mean", "Batch", 1, True])
def test_an_unknown_normalization_is_named(normalize):
    with pytest.raises(
        ValueError, match=f"normalize must be one of None, batch, chance, half, got {normalize!r}"
    ):
        curve_loss(torch.zeros(1, 2), torch.tensor([0]), CCE(), normalize=normalize)


# A shape for each way of counting rows: the divisor depends on neither.
@pytest.mark.parametrize(
    ("shape", "reduction"),
    [((5, 4), "none"), ((5, 4), "mean"), ((5, 4, 2), "sum"), ((5, 4, 2, 3), "mean"), ((4,), "sum")],
)
@pytest.mark.parametrize(("scale", "p"), [("chance", 0.25), ("half", 0.5)])
def test_a_constant_scale_divides_by_the_weight_there(curve, reduction, shape, scale, p, generator):
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    target_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(4, target_shape, generator=generator)
    weight = curve.weight(torch.tensor(p, dtype=torch.float64))
    divisor = weight if weight > 0 else 1.0
    results = []
    for normalize, factor in ((scale, 1.0), (None, 1 / divisor)):
        leaf = logits.clone().requires_grad_()
        loss = curve_loss(leaf, target, curve, reduction=reduction, normalize=normalize) * factor
        results.append((loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_cap_is_put_before_the_loss(curve, dtype, generator):
    logits = (8 * torch.randn(6, 4, generator=generator)).to(dtype)
    target = torch.tensor([0, 1, 2, 3, -100, 1])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0])
    leaf, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
    loss = curve_loss(leaf, target, curve, weight=weight, cap=0.7)
    expected = curve_loss(cap_logits(wide, 0.7), target, curve, weight=weight)
    assert loss.dtype == dtype
    rtol = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(loss.double(), expected, rtol=rtol, atol=rtol)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad.double(), wide.grad, rtol=8 * rtol, atol=rtol)


@pytest.mark.parametrize("normalize", [None, "batch", "chance", "half"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_capped_losses_have_the_gradients_of_their_values(normalize, smoothing, generator):
    logits = 4 * torch.randn(4, 3, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    target = torch.tensor([0, 1, 2, 0])
    options = {"cap": 0.8, "label_smoothing": smoothing}
    constant = curve_loss(logits, target, IMAE(8.0), **options)
    scaled = curve_loss(logits, target, IMAE(8.0), normalize=normalize, **options)
    factor = (scaled / constant).item()
    assert torch.autograd.gradcheck(
        lambda z: factor * curve_loss(z, target, IMAE(8.0), **options), logits
    )
    (ours,) = torch.autograd.grad(scaled, logits)
    (plain,) = torch.autograd.grad(constant, logits)
    torch.testing.assert_close(ours, factor * plain)
