import math

import pytest
import torch
from torch.nn import functional

from imae.curves import CCE, MAE, Scale
from imae.errors import ArgumentError
from imae.losses import (
    backward_correction,
    bootstrap_loss,
    curve_loss,
    forward_correction,
    label_smoothing_loss,
    normalized_cross_entropy,
    reverse_cross_entropy,
)

REDUCTIONS = ("none", "mean", "sum")
NOISE = torch.tensor(
    [[0.7, 0.1, 0.1, 0.1], [0.0, 0.8, 0.2, 0.0], [0.2, 0.0, 0.6, 0.2], [0.1, 0.2, 0.1, 0.6]],
    dtype=torch.float64,
)
INVERSE = torch.linalg.inv(NOISE).tolist()
ROWS = NOISE.tolist()


def entropy(p):
    return -sum(x * math.log(x) for x in p)


# Each loss with its value for one row, in plain numbers: p the softmax, y the label.
LOSSES = {
    "smoothed": (
        lambda z, y, **o: label_smoothing_loss(z, y, smoothing=0.2, **o),
        lambda p, y: -0.8 * math.log(p[y]) - 0.05 * sum(map(math.log, p)),
    ),
    "soft bootstrap": (
        lambda z, y, **o: bootstrap_loss(z, y, beta=0.7, **o),
        lambda p, y: -0.7 * math.log(p[y]) + 0.3 * entropy(p),
    ),
    "hard bootstrap": (
        lambda z, y, **o: bootstrap_loss(z, y, beta=0.7, hard=True, **o),
        lambda p, y: -0.7 * math.log(p[y]) - 0.3 * math.log(max(p)),
    ),
    "forward": (
        lambda z, y, **o: forward_correction(z, y, NOISE, **o),
        lambda p, y: -math.log(sum(p[i] * ROWS[i][y] for i in range(4))),
    ),
    "backward": (
        lambda z, y, **o: backward_correction(z, y, NOISE, **o),
        lambda p, y: -sum(INVERSE[y][j] * math.log(p[j]) for j in range(4)),
    ),
    "normalized": (
        lambda z, y, **o: normalized_cross_entropy(z, y, scale=2.0, **o),
        lambda p, y: 2 * math.log(p[y]) / sum(map(math.log, p)),
    ),
    "normalized and MAE": (
        lambda z, y, **o: normalized_cross_entropy(z, y, passive=Scale(MAE(), 3.0), **o),
        lambda p, y: math.log(p[y]) / sum(map(math.log, p)) + 6 * (1 - p[y]),
    ),
    "normalized and reverse": (
        lambda z, y, **o: normalized_cross_entropy(
            z, y, passive=reverse_cross_entropy(A=-4.0, factor=0.5), **o
        ),
        lambda p, y: math.log(p[y]) / sum(map(math.log, p)) + 2 * (1 - p[y]),
    ),
}
EACH = pytest.mark.parametrize("name", LOSSES)
OURS = pytest.mark.parametrize("name", [name for name in LOSSES if name != "smoothed"])


@pytest.fixture
def logits(generator):
    return torch.randn(5, 4, generator=generator, dtype=torch.float64)


TARGET = torch.tensor([0, 3, 2, 1, 0])


@EACH
def test_every_row_is_the_formula(name, logits):
    loss, formula = LOSSES[name]
    p = logits.softmax(1).tolist()
    expected = [formula(row, y) for row, y in zip(p, TARGET.tolist(), strict=True)]
    assert loss(logits, TARGET, reduction="none").tolist() == pytest.approx(expected, rel=1e-12)
    assert loss(logits, TARGET, reduction="sum").item() == pytest.approx(sum(expected), rel=1e-12)
    assert loss(logits, TARGET).item() == pytest.approx(sum(expected) / 5, rel=1e-12)


@OURS
def test_class_weights_and_ignored_rows_count_as_in_cross_entropy(name, logits):
    loss, formula = LOSSES[name]
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    p, y = logits.softmax(1).tolist(), TARGET.tolist()
    scale = [0.0 if label == 2 else weight[label].item() for label in y]
    losses = [s * formula(row, label) for s, row, label in zip(scale, p, y, strict=True)]
    expected = {"none": losses, "sum": sum(losses), "mean": sum(losses) / sum(scale)}
    for reduction, value in expected.items():
        result = loss(logits, TARGET, weight=weight, ignore_index=2, reduction=reduction)
        assert result.tolist() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_label_smoothing_is_that_of_torch(logits, reduction, smoothing):
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    options = {"weight": weight, "ignore_index": 2, "reduction": reduction}
    result = label_smoothing_loss(logits, TARGET, smoothing=smoothing, **options)
    theirs = functional.cross_entropy(logits, TARGET, label_smoothing=smoothing, **options)
    curve = curve_loss(logits, TARGET, CCE(), label_smoothing=smoothing, **options)
    torch.testing.assert_close(result, theirs)
    torch.testing.assert_close(result, curve)


@EACH
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_and_their_gradients(name, logits, reduction):
    loss, _ = LOSSES[name]
    logits = logits[:3].requires_grad_()
    target = torch.tensor([0, -100, 2])

    def function(z):
        return loss(z, target, reduction=reduction)

    assert torch.autograd.gradcheck(function, logits)
    assert torch.autograd.gradgradcheck(function, logits, fast_mode=True)


@EACH
def test_shapes_are_those_of_cross_entropy(name, generator):
    loss, _ = LOSSES[name]
    volume = torch.randn(2, 4, 3, 2, generator=generator, dtype=torch.float64)
    target = torch.randint(4, (2, 3, 2), generator=generator)
    rows = volume.movedim(1, -1).reshape(-1, 4)
    flat = loss(rows, target.flatten(), reduction="none")
    result = loss(volume, target, reduction="none")
    assert result.shape == target.shape
    torch.testing.assert_close(result.flatten(), flat)
    torch.testing.assert_close(loss(rows[0], target.flatten()[0]), flat[0])
    torch.testing.assert_close(loss(rows, target.flatten().byte()), flat.mean())


@EACH
def test_no_row_counts(name):
    loss, _ = LOSSES[name]
    for logits, target in (
        (torch.zeros(2, 4), torch.full((2,), -100)),
        (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)),
    ):
        assert math.isnan(loss(logits, target).item())
        assert loss(logits, target, reduction="sum").item() == 0


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("large", [50.0, 1e4, 65504.0])
def test_large_logits_have_finite_gradients(name, dtype, large):
    loss, _ = LOSSES[name]
    rows = [[large, -large, 0.0, 0.0], [-large, large, 0.0, 1.0], [large, large, 0.0, -large]]
    logits = torch.tensor(rows, dtype=torch.float32).to(dtype).clamp(-65504, 65504)
    logits.requires_grad_()
    result = loss(logits, torch.zeros(3, dtype=torch.int64), reduction="none")
    (gradient,) = torch.autograd.grad(result.sum(), logits)
    assert result.dtype == gradient.dtype == dtype
    assert not bool(result.isnan().any())
    assert bool(gradient.isfinite().all())


@OURS
def test_what_stands_in_ignored_rows_does_not_matter(name, logits):
    loss, _ = LOSSES[name]
    kept = loss(logits[:1], TARGET[:1])
    for bad in (math.inf, -math.inf, math.nan):
        rows = logits[:2].clone()
        rows[1, 0] = bad
        torch.testing.assert_close(loss(rows, torch.tensor([0, -100])), kept)


@pytest.mark.parametrize("correct", [forward_correction, backward_correction])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_noise_is_cross_entropy(correct, logits, dtype):
    logits = logits.to(dtype).requires_grad_()
    result = correct(logits, TARGET, torch.eye(4))
    expected = functional.cross_entropy(logits, TARGET)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(
        torch.autograd.grad(result, logits), torch.autograd.grad(expected, logits)
    )


@pytest.mark.parametrize("correct", [forward_correction, backward_correction])
def test_no_noise_is_cross_entropy_with_a_masked_class_too(correct):
    logits = torch.tensor([[1.0, 2.0, -math.inf]], requires_grad=True)
    result = correct(logits, torch.tensor([0]), torch.eye(3))
    expected = functional.cross_entropy(logits, torch.tensor([0]))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(
        torch.autograd.grad(result, logits), torch.autograd.grad(expected, logits)
    )


def test_backward_correction_is_unbiased(logits):
    rows = logits[:1].expand(4, 4)
    corrected = backward_correction(rows, torch.arange(4), NOISE, reduction="none")
    clean = functional.cross_entropy(rows, torch.arange(4), reduction="none")
    torch.testing.assert_close(NOISE @ corrected, clean)


def test_backward_correction_may_be_negative():
    logits = torch.tensor([[-9.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert backward_correction(logits, torch.tensor([3]), NOISE).item() < 0


def test_forward_correction_is_least_at_the_true_distribution():
    # Cross entropy with noisy labels would be least where the softmax is the noisy distribution.
    clean = torch.tensor([0.6, 0.2, 0.1, 0.1], dtype=torch.float64)
    noisy = clean @ NOISE
    logits = clean.log().repeat(4, 1).requires_grad_()
    losses = forward_correction(logits, torch.arange(4), NOISE, reduction="none")
    (gradient,) = torch.autograd.grad((losses * noisy).sum(), logits)
    torch.testing.assert_close(gradient.sum(0), torch.zeros(4, dtype=torch.float64))


def test_full_trust_in_the_label_is_cross_entropy(logits):
    expected = functional.cross_entropy(logits, TARGET)
    for hard in (False, True):
        torch.testing.assert_close(bootstrap_loss(logits, TARGET, beta=1.0, hard=hard), expected)


def test_no_trust_in_the_label_does_not_read_it(logits):
    for hard in (False, True):
        here = bootstrap_loss(logits, TARGET, beta=0.0, hard=hard)
        there = bootstrap_loss(logits, (TARGET + 1) % 4, beta=0.0, hard=hard)
        torch.testing.assert_close(here, there)


def test_an_impossible_class_adds_no_entropy():
    masked = torch.tensor([[1.0, 2.0, -math.inf]])
    result = bootstrap_loss(masked, torch.tensor([0]))
    torch.testing.assert_close(result, bootstrap_loss(masked[:, :2], torch.tensor([0])))


def test_normalized_cross_entropy_sums_to_one_over_the_labels(logits):
    rows = logits[:1].expand(4, 4)
    losses = normalized_cross_entropy(rows, torch.arange(4), reduction="none")
    assert losses.sum().item() == pytest.approx(1, rel=1e-14)


def test_normalized_cross_entropy_of_one_class_is_zero():
    logits = torch.zeros(2, 1, requires_grad=True)
    loss = normalized_cross_entropy(logits, torch.tensor([0, 0]), passive=MAE())
    loss.backward()
    assert loss.item() == 0
    assert not bool(logits.grad.any())


@pytest.mark.parametrize(("log_zero", "factor"), [(-4.0, 1.0), (-0.5, 3.0), (-7.0, 0.0)])
def test_reverse_cross_entropy(logits, log_zero, factor):
    p = logits.softmax(1)
    logs = torch.full((5, 4), log_zero, dtype=torch.float64).scatter(1, TARGET.unsqueeze(1), 0)
    expected = -factor * (p * logs).sum(1).mean()
    result = curve_loss(logits, TARGET, reverse_cross_entropy(A=log_zero, factor=factor))
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: label_smoothing_loss(z, TARGET, smoothing=-1e-9), "smoothing must be in"),
        (lambda z: label_smoothing_loss(z, TARGET, smoothing=1.1), "smoothing must be in"),
        (lambda z: bootstrap_loss(z, TARGET, beta=-1e-9), "beta must be in"),
        (lambda z: bootstrap_loss(z, TARGET, beta=1.0001), "beta must be in"),
        (lambda z: normalized_cross_entropy(z, TARGET, scale=-1e-9), "scale must be in"),
        (lambda _: reverse_cross_entropy(A=0.0), "A must be in"),
        (lambda _: reverse_cross_entropy(factor=-1.0), "factor must be in"),
    ],
)
def test_parameters_just_outside_are_refused(logits, call, message):
    with pytest.raises(ArgumentError, match=message):
        call(logits)


def test_parameters_just_inside_are_taken(logits):
    for loss in (
        label_smoothing_loss(logits, TARGET, smoothing=0.0),
        label_smoothing_loss(logits, TARGET, smoothing=1.0),
        bootstrap_loss(logits, TARGET, beta=0.0),
        bootstrap_loss(logits, TARGET, beta=1.0),
        normalized_cross_entropy(logits, TARGET, scale=0.0),
    ):
        assert math.isfinite(loss.item())


def spoiled(row, column, value):
    matrix = NOISE.clone()
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize("correct", [forward_correction, backward_correction])
@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (torch.eye(3), r"transition must have shape \(4, 4\), got \(3, 3\)"),
        (torch.eye(4)[:3], r"got \(3, 4\)"),
        (torch.ones(4), r"got \(4,\)"),
        (NOISE * 1.001, "rows sum to 1"),
        (spoiled(1, 0, 0.001), "rows sum to 1"),
        (spoiled(1, 0, -0.1), "probabilities"),
        (spoiled(1, 0, math.nan), "rows sum to 1"),
        (spoiled(1, 0, math.inf), "rows sum to 1"),
        (NOISE.t(), "rows sum to 1"),
    ],
)
def test_what_is_no_transition_is_refused(logits, correct, transition, message):
    with pytest.raises(ArgumentError, match=message):
        correct(logits, TARGET, transition)


@pytest.mark.parametrize("correct", [forward_correction, backward_correction])
def test_a_transition_of_float32_is_taken(logits, correct):
    rounded = (NOISE.float() * (1 + 1e-6)).float()
    torch.testing.assert_close(
        correct(logits, TARGET, rounded), correct(logits, TARGET, NOISE), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "rows",
    [
        [[0.25] * 4] * 4,
        [[0.5, 0.5, 0, 0]] * 2 + [[0, 0, 1.0, 0], [0, 0, 0, 1.0]],
        # The third row is the mean of the first two, which rounding hides from the factorisation.
        [[0.2, 0.3, 0.4, 0.1], [0.5, 0.2, 0.1, 0.2], [0.35, 0.25, 0.25, 0.15], [0, 0, 0, 1.0]],
    ],
    ids=["even", "two rows alike", "a row between two"],
)
def test_backward_correction_refuses_a_transition_without_an_inverse(logits, rows, dtype):
    transition = torch.tensor(rows, dtype=dtype)
    with pytest.raises(ArgumentError, match="no inverse"):
        backward_correction(logits, TARGET, transition)


def test_backward_correction_takes_heavy_noise(logits):
    rate = 0.74  # of the 0.75 at which nothing can be learned
    matrix = torch.full((4, 4), rate / 3, dtype=torch.float64).fill_diagonal_(1 - rate)
    assert math.isfinite(backward_correction(logits, TARGET, matrix).item())


@OURS
def test_errors_are_those_of_cross_entropy(name, logits):
    loss, _ = LOSSES[name]
    for target, options in (
        (torch.tensor([0, 4, 0, 0, 0]), {}),
        (torch.tensor([0, -1, 0, 0, 0]), {}),
        (torch.tensor([0, 4, 0, 0, 0]), {"weight": torch.ones(4, dtype=torch.float64)}),
        (TARGET[:4], {}),
        (TARGET.int(), {}),
        (TARGET, {"reduction": "average"}),
        (TARGET, {"weight": torch.ones(3, dtype=torch.float64)}),
    ):
        with pytest.raises(Exception, match=r".") as theirs:
            functional.cross_entropy(logits, target, **options)
        with pytest.raises(theirs.type):
            loss(logits, target, **options)


@OURS
def test_probabilities_are_refused_where_they_mean_nothing(name, logits):
    loss, _ = LOSSES[name]
    with pytest.raises(RuntimeError, match="target must hold classes"):
        loss(logits, logits.softmax(1))


@EACH
def test_under_transforms(name, logits):
    loss, _ = LOSSES[name]
    expected = torch.autograd.functional.jacobian(lambda z: loss(z, TARGET), logits)
    torch.testing.assert_close(torch.func.grad(loss)(logits, TARGET), expected)
    rows = torch.func.vmap(torch.func.grad(loss))(logits, TARGET)
    torch.testing.assert_close(rows / 5, expected)


@OURS
def test_autocast_gives_float32(name, logits):
    loss, _ = LOSSES[name]
    half = logits.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = loss(half, TARGET)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, loss(half.float(), TARGET))


ZEROS = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.2, 0.8]], dtype=torch.float64)


@pytest.mark.parametrize("correct", [forward_correction, backward_correction])
def test_a_learned_matrix_with_zeros_has_the_gradient_of_the_formula(correct):
    logits = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 1, 2, 1])
    matrix, plain = ZEROS.clone().requires_grad_(), ZEROS.clone().requires_grad_()
    correct(logits, target, matrix, reduction="sum").backward()
    p = logits.softmax(1)
    if correct is forward_correction:
        loss = -sum((p[row] @ plain[:, y]).log() for row, y in enumerate(target.tolist()))
    else:
        inverse = torch.linalg.inv(plain)
        loss = -sum(inverse[y] @ p[row].log() for row, y in enumerate(target.tolist()))
    loss.backward()
    torch.testing.assert_close(matrix.grad, plain.grad)
    assert matrix.grad[ZEROS == 0].abs().sum() > 0


@pytest.mark.parametrize("size", [0.0, 30.0, 1e4])
def test_forward_correction_is_finite_where_only_an_impossible_class_is_likely(size):
    logits = torch.tensor([[0.0, 0.0, size], [-math.inf, 0.0, size]], requires_grad=True)
    matrix = ZEROS.float().requires_grad_()
    losses = forward_correction(logits, torch.tensor([0, 1]), matrix, reduction="none")
    losses.sum().backward()
    assert losses[0].item() == pytest.approx(
        size + math.log(1 / 0.7) if size else 1.45529, abs=1e-2
    )
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert matrix.grad.isfinite().all()


def test_a_label_that_no_class_can_get_has_an_infinite_loss_and_no_nan():
    matrix = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = forward_correction(logits, torch.tensor([1]), matrix)
    loss.backward()
    assert loss.item() == math.inf
    assert logits.grad.isfinite().all()
    assert matrix.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equally_likely_classes_count_as_the_first_of_them(dtype):
    logits = torch.zeros(1, 3, dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        bootstrap_loss(logits, torch.tensor([2]), beta=0.5, hard=True), logits
    )
    torch.testing.assert_close(gradient, gradient.new_tensor([[-1 / 6, 1 / 3, -1 / 6]]))
