import math

import pytest
import torch
from torch.nn.functional import linear

from imae.curves import CCE, GCE, IMAE, Window
from imae.errors import ArgumentError
from imae.losses import curve_loss, kernel, linear_curve_loss
from imae.losses import functional as linear_module

REDUCTIONS = ("none", "mean", "sum")
OPTIONS = {
    "plain": {},
    "class weights": {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0])},
    "ignored": {"ignore_index": 2},
    "normalized": {"normalize": "batch"},
    "capped": {"cap": 0.4, "normalize": "half"},
    "all": {
        "weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0]),
        "ignore_index": 2,
        "normalize": "batch",
        "cap": 0.4,
    },
}


def inputs(generator, *, dtype=torch.float64, num_rows=11):
    """Features, a classifier, its bias and labels: 11 rows, 5 classes, every class present."""
    features = torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    classes = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    bias = torch.randn(5, generator=generator, dtype=torch.float64)
    target = torch.arange(num_rows) % 5
    return features.to(dtype), classes.to(dtype), bias.to(dtype), target


def fused(features, classes, bias, target, curve, **options):
    return linear_curve_loss(features, classes, target, curve, bias, **options)


def unfused(features, classes, bias, target, curve, **options):
    logits = linear(features.flatten(0, -2), classes, bias)
    loss = curve_loss(logits, target.flatten(), curve, **options)
    return loss.view_as(target) if loss.dim() else loss


def outcome(function, tensors, target, curve, *, factors=None, **options):
    """The loss and the gradients on features, classifier and bias."""
    leaves = [None if t is None else t.detach().clone().requires_grad_() for t in tensors]
    loss = function(*leaves, target, curve, **options)
    total = loss.sum() if factors is None else (loss * factors).sum()
    total.backward()
    return loss.detach(), *(leaf.grad for leaf in leaves if leaf is not None)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("piece", [1 << 22, 20, 1], ids=["one piece", "three pieces", "row by row"])
def test_fused_is_unfused(monkeypatch, generator, name, reduction, has_bias, piece):
    monkeypatch.setattr(linear_module, "_PIECE", piece)
    monkeypatch.setattr(kernel, "_PIECE", piece)
    *tensors, target = inputs(generator)
    tensors[2] = tensors[2] if has_bias else None
    options = {"reduction": reduction, **OPTIONS[name]}
    options["weight"] = options["weight"].double() if "weight" in options else None
    result = outcome(fused, tensors, target, IMAE(T=8.0), **options)
    expected = outcome(unfused, tensors, target, IMAE(T=8.0), **options)
    torch.testing.assert_close(result, expected)


def test_every_curve(curve, generator, monkeypatch):
    monkeypatch.setattr(linear_module, "_PIECE", 20)
    *tensors, target = inputs(generator, dtype=torch.float32)
    for reduction in REDUCTIONS:
        torch.testing.assert_close(
            outcome(fused, tensors, target, curve, reduction=reduction),
            outcome(unfused, tensors, target, curve, reduction=reduction),
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("cap", [None, 0.4])
def test_half_precision(generator, dtype, reduction, cap):
    *tensors, target = inputs(generator, dtype=dtype)
    options = {"reduction": reduction, "cap": cap}
    result = outcome(fused, tensors, target, GCE(), **options)
    wide = outcome(unfused, [t.double() for t in tensors], target, GCE(), **options)
    assert all(item.dtype == dtype for item in result)
    bound = 8 * torch.finfo(dtype).eps
    for item, exact in zip(result, wide, strict=True):
        torch.testing.assert_close(item.double(), exact, rtol=bound, atol=bound)


def test_a_mean_does_not_overflow_on_the_way():
    # The sum over rows is past the largest float16; the mean is far under it.
    features = torch.full((4096, 2), 64.0, dtype=torch.float16)
    classes = torch.zeros(4, 2, dtype=torch.float16)
    target = torch.zeros(4096, dtype=torch.int64)
    result = outcome(fused, (features, classes, None), target, CCE())
    expected = outcome(unfused, (features, classes, None), target, CCE())
    torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-6)


def test_autocast_gives_float32(generator):
    *tensors, target = inputs(generator, dtype=torch.float32)
    expected = outcome(unfused, tensors, target, IMAE(T=8.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = outcome(fused, tensors, target, IMAE(T=8.0))
    assert all(item.dtype == torch.float32 for item in result)
    torch.testing.assert_close(result, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_factors_on_the_loss(generator, reduction):
    *tensors, target = inputs(generator)
    factors = torch.linspace(-1, 2, 11, dtype=torch.float64) if reduction == "none" else 3.0
    options = {"reduction": reduction, "factors": factors}
    result = outcome(fused, tensors, target, GCE(), **options)
    expected = outcome(unfused, tensors, target, GCE(), **options)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("leading", [(11,), (3, 2), (2, 2, 3)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_features_of_more_dimensions(generator, leading, reduction):
    _, classes, bias, _ = inputs(generator)
    features = torch.randn(*leading, 3, generator=generator, dtype=torch.float64)
    target = torch.randint(5, leading, generator=generator)
    arguments = (features, classes, bias), target, IMAE(T=8.0)
    result = outcome(fused, *arguments, reduction=reduction)
    assert result[0].shape == (leading if reduction == "none" else ())
    expected = outcome(unfused, *arguments, reduction=reduction)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", OPTIONS)
def test_second_derivatives(generator, reduction, name):
    *tensors, target = inputs(generator)
    results = []
    for function in (fused, unfused):
        leaves = [t.clone().requires_grad_() for t in tensors]
        options = {**OPTIONS[name], "reduction": reduction}
        options["weight"] = options["weight"].double() if "weight" in options else None
        loss = function(*leaves, target, GCE(), **options).sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum((gradient**2).sum() for gradient in first)
        results.append(torch.autograd.grad(penalty, leaves))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_in_numbers(generator, reduction):
    *tensors, target = inputs(generator, num_rows=4)
    leaves = [t.requires_grad_() for t in tensors]

    def loss(features, classes, bias):
        return fused(features, classes, bias, target, IMAE(T=2.0), reduction=reduction)

    assert torch.autograd.gradcheck(loss, leaves)
    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=True)


def test_a_second_backward_gives_the_same(generator):
    *tensors, target = inputs(generator)
    leaves = [t.requires_grad_() for t in tensors]
    loss = fused(*leaves, target, IMAE(T=8.0))
    first = [g.clone() for g in torch.autograd.grad(loss, leaves, retain_graph=True)]
    for gradient in torch.autograd.grad(loss, leaves, retain_graph=True):
        gradient.mul_(7)
    torch.testing.assert_close(list(torch.autograd.grad(loss, leaves)), first)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_only_some_gradients_are_wanted(generator, wanted):
    *tensors, target = inputs(generator)
    expected = outcome(unfused, tensors, target, GCE())[1 + wanted]
    tensors[wanted].requires_grad_()
    fused(*tensors, target, GCE()).backward()
    torch.testing.assert_close(tensors[wanted].grad, expected)
    assert all(t.grad is None for k, t in enumerate(tensors) if k != wanted)


def test_without_gradients(generator):
    *tensors, target = inputs(generator)
    with torch.no_grad():
        loss = fused(*tensors, target, GCE())
    torch.testing.assert_close(loss, unfused(*tensors, target, GCE()), rtol=1e-6, atol=0)
    assert not loss.requires_grad


@pytest.mark.parametrize("normalize", [None, "batch"])
def test_no_row_counts(generator, normalize):
    *tensors, target = inputs(generator)
    for ignored in (torch.full_like(target, -100), target[:0]):
        some = [tensors[0][: len(ignored)], *tensors[1:]]
        options = {"normalize": normalize}
        mean = outcome(fused, some, ignored, GCE(), **options)
        assert math.isnan(mean[0].item())
        assert not any(bool(gradient.any()) for gradient in mean[1:])
        total = outcome(fused, some, ignored, GCE(), reduction="sum", **options)
        assert not any(bool(item.any()) for item in total)


def test_outside_its_window_nothing_is_sent(generator):
    *tensors, target = inputs(generator)
    outside = Window(IMAE(T=8.0), low=50.0, high=60.0)
    loss, *gradients = outcome(fused, tensors, target, outside, normalize="batch")
    assert math.isfinite(loss.item())
    assert not any(bool(gradient.any()) for gradient in gradients)


def test_a_mean_weight_that_is_hardly_a_number_is_not_divided_by():
    tensors = [torch.ones(1, 1), torch.tensor([[-130.0], [0.0]]), torch.zeros(2)]
    result = outcome(fused, tensors, torch.tensor([0]), GCE(q=0.7), normalize="batch")
    assert all(bool(item.isfinite().all()) for item in result)


def test_small_integers_are_labels_too(generator):
    *tensors, target = inputs(generator)
    result = outcome(fused, tensors, target.byte(), GCE())
    torch.testing.assert_close(result, outcome(fused, tensors, target, GCE()))


@pytest.mark.parametrize("size", [1.0, 1e20])
def test_a_class_that_is_impossible_is_capped_too(generator, size):
    features, classes, bias, target = inputs(generator, dtype=torch.float32)
    target = target % 4
    tensors = size * features, classes, torch.cat([bias[:4], torch.tensor([-math.inf])])
    result = outcome(fused, tensors, target, IMAE(T=8.0), cap=0.4)
    torch.testing.assert_close(result, outcome(unfused, tensors, target, IMAE(T=8.0), cap=0.4))


def test_function_transforms_agree(generator):
    *tensors, target = inputs(generator)
    expected = outcome(unfused, tensors, target, GCE())

    def loss(features, classes, bias):
        return fused(features, classes, bias, target, GCE())

    gradients = torch.func.grad(loss, argnums=(0, 1, 2))(*tensors)
    torch.testing.assert_close(gradients, expected[1:])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_compiles_whole(generator):
    *tensors, target = inputs(generator, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    result = outcome(compiled, tensors, target, CCE())
    torch._dynamo.reset()
    torch.testing.assert_close(result, outcome(unfused, tensors, target, CCE()))


def test_it_never_holds_all_logits(generator, monkeypatch):
    monkeypatch.setattr(linear_module, "_PIECE", 10)
    seen = []

    def watched(*arguments):
        logits = linear(*arguments)
        seen.append(logits.numel())
        return logits

    monkeypatch.setattr(linear_module, "linear", watched)
    *tensors, target = inputs(generator)
    for reduction in REDUCTIONS:
        outcome(fused, tensors, target, CCE(), reduction=reduction)
        outcome(fused, tensors, target, CCE(), reduction=reduction, cap=0.5)
    assert max(seen) == 10


F, W, Y = torch.zeros(4, 3), torch.zeros(5, 3), torch.tensor([0, 1, 2, 4])


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((F, W, Y[:3]), {}, ArgumentError, r"target must have .* target \(3,\)"),
        ((F, W, Y.unsqueeze(1)), {}, ArgumentError, r"target must have"),
        ((F[0], W, Y[0]), {}, ArgumentError, r"target must have"),
        ((F, W.t(), Y), {}, ArgumentError, r"class_weight must have shape \(C, 3\)"),
        ((F, W[0], Y), {}, ArgumentError, r"class_weight must have shape"),
        ((F, W, Y), {"bias": torch.zeros(4)}, ArgumentError, r"bias must have shape \(5,\)"),
        ((F, W, Y), {"bias": torch.zeros(5, 1)}, ArgumentError, r"bias must have shape"),
        ((F, W, Y), {"weight": torch.ones(4)}, RuntimeError, r"weight"),
        ((F, W, Y), {"reduction": "average"}, ValueError, r"reduction must be one of"),
        ((F, W, Y), {"normalize": "rows"}, ValueError, r"normalize must be one of"),
        ((F, W, Y.int()), {}, RuntimeError, r"Int"),
        ((F, W, Y), {"cap": 0.2}, ArgumentError, r"cap must be in \(0.2, 1\), got 0.2"),
        ((F, W, Y + 1), {}, IndexError, r"Target 5 is out of bounds"),
        ((F, W, -Y), {}, IndexError, r"Target -1 is out of bounds"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, kind, message):
    features, classes, target = arguments
    with pytest.raises(kind, match=message):
        linear_curve_loss(features, classes, target, CCE(), **options)


FROZEN = [("features",), ("weight",), ("bias",), ("features", "bias")]


@pytest.mark.parametrize("frozen", FROZEN, ids="-".join)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_with_frozen_inputs(frozen, reduction, generator):
    def inputs():
        made = {
            "features": torch.randn(5, 3, dtype=torch.float64, generator=generator.manual_seed(1)),
            "weight": torch.randn(4, 3, dtype=torch.float64, generator=generator),
            "bias": torch.randn(4, dtype=torch.float64, generator=generator),
        }
        return {name: each.requires_grad_(name not in frozen) for name, each in made.items()}

    def second(loss):
        given = inputs()
        free = [each for name, each in given.items() if name not in frozen]
        value = loss(given["features"], given["weight"], given["bias"]).sum()
        first = torch.autograd.grad(value, free, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), free)

    target = torch.tensor([0, 3, 1, 2, 2])
    fused = second(
        lambda x, w, b: linear_curve_loss(x, w, target, IMAE(8.0), b, reduction=reduction)
    )
    plain = second(
        lambda x, w, b: curve_loss(
            torch.nn.functional.linear(x, w, b), target, IMAE(8.0), reduction=reduction
        )
    )
    for ours, expected in zip(fused, plain, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_batched_gradients_agree(reduction, generator):
    features = torch.randn(5, 3, generator=generator).requires_grad_()
    classifier = torch.randn(4, 3, generator=generator).requires_grad_()
    target = torch.tensor([0, 3, 1, 2, 2])
    results = []
    for loss in (
        linear_curve_loss(features, classifier, target, IMAE(8.0), reduction=reduction),
        curve_loss(features @ classifier.t(), target, IMAE(8.0), reduction=reduction),
    ):
        seeds = torch.eye(loss.numel()).view(-1, *loss.shape) * 3
        inputs = (features, classifier)
        results.append(torch.autograd.grad(loss, inputs, seeds, is_grads_batched=True))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_parameter_of_the_curve_is_trained(generator):
    T = torch.nn.Parameter(torch.tensor(2.0))
    features = torch.randn(5, 3, generator=generator)
    classifier = torch.randn(4, 3, generator=generator)
    target = torch.tensor([0, 3, 1, 2, 2])
    linear_curve_loss(features, classifier, target, IMAE(T)).backward()
    given, T.grad = T.grad, None
    curve_loss(features @ classifier.t(), target, IMAE(T)).backward()
    torch.testing.assert_close(given, T.grad)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_of_weight_zero_is_no_ignored_row(bad, generator):
    features, classes, bias, target = inputs(generator)
    features[1] = bad
    weight = torch.ones(5)
    weight[target[1]] = 0
    loss, *_ = outcome(fused, (features, classes, bias), target, CCE(), weight=weight)
    expected, *_ = outcome(unfused, (features, classes, bias), target, CCE(), weight=weight)
    assert loss.isnan()
    assert expected.isnan()
    target[1] = -100
    loss, *gradients = outcome(fused, (features, classes, bias), target, CCE(), weight=weight)
    assert loss.isfinite()
    assert gradients[2].isfinite().all()


@pytest.mark.parametrize("size", [1.0, 40.0, 400.0])
def test_large_logits_are_not_computed_in_their_place(size, generator):
    features = torch.randn(64, 8, generator=generator)
    matrix = torch.randn(500, 8, generator=generator) / 3
    features[40] *= size
    target = torch.randint(500, (64,), generator=generator)

    def gradients(head, dtype):
        leaves = [each.to(dtype, copy=True).requires_grad_() for each in (features, matrix)]
        loss = head(*leaves)
        return [each.double() for each in (loss, *torch.autograd.grad(loss, leaves))]

    found = gradients(lambda f, w: linear_curve_loss(f, w, target, IMAE(T=8.0)), torch.float32)
    exact = gradients(lambda f, w: curve_loss(f @ w.t(), target, IMAE(T=8.0)), torch.float64)
    for each, expected in zip(found, exact, strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-6)
