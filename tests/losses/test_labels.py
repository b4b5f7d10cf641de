import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from imae.curves import CCE
from imae.losses import (
    IMAELoss,
    active_negative_loss,
    asymmetric_mse,
    backward_correction,
    bootstrap_loss,
    curve_loss,
    eps_softmax_loss,
    forward_correction,
    normalized_cross_entropy,
)
from imae.losses.arguments import (
    Labels,
    check_classes_in_range,
    check_labels,
    is_plain,
    precise_dtype,
)

DTYPES = (torch.float32, torch.float64)


# Loading the samples of all functions of torch takes seconds. By default test_functional.py
# compares every way to call a loss.
NEEDS_SAMPLES = pytest.mark.slow


@pytest.fixture(scope="module")
def torch_samples():
    """The inputs by which torch tests its own cross entropy: of the function and the module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db

        functions, modules = [], []
        for dtype in DTYPES:
            for op in (op for op in op_db if op.name == "nn.functional.cross_entropy"):
                for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
                    functions.append((sample.input, sample.args[0], sample.kwargs))
            for info in (
                info for info in module_db if info.module_cls is torch.nn.CrossEntropyLoss
            ):
                inputs = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=True, training=True
                )
                for item in inputs:
                    options = item.constructor_input.kwargs
                    modules.append((*item.forward_input.args, options))
    return functions, modules


def outcome(loss, logits, target, options):
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, target, **options)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    return value.detach(), gradient


def ours(logits, target, **options):
    return curve_loss(logits, target, CCE(), **options)


@NEEDS_SAMPLES
def test_torch_gives_as_many_samples_as_it_did(torch_samples):
    functions, modules = torch_samples
    counts = len(functions) / len(DTYPES), len(modules) / len(DTYPES)
    if torch.__version__.startswith("2.13."):
        assert counts == (21, 105)
    assert sum(counts) >= 100


@NEEDS_SAMPLES
@pytest.mark.parametrize("kind", [0, 1], ids=["function", "module"])
def test_every_sample_of_torch_agrees(torch_samples, kind):
    for logits, target, options in torch_samples[kind]:
        expected = outcome(functional.cross_entropy, logits, target, options)
        torch.testing.assert_close(
            outcome(ours, logits, target, options),
            expected,
            equal_nan=True,
            msg=lambda text, options=options, shape=logits.shape: f"{options} {shape}: {text}",
        )


@NEEDS_SAMPLES
@pytest.mark.parametrize("kind", [0, 1], ids=["function", "module"])
def test_every_sample_of_torch_agrees_without_a_gradient(torch_samples, kind):
    with torch.no_grad():
        for logits, target, options in torch_samples[kind]:
            expected = functional.cross_entropy(logits, target, **options)
            result = ours(logits, target, **options)
            torch.testing.assert_close(result, expected, equal_nan=True)


Z, Y = torch.zeros(2, 3), torch.tensor([0, 2])
SOFT = torch.full((2, 3), 1 / 3)
MALFORMED = {
    "class too large": (Z, torch.tensor([0, 3]), {}),
    "class negative": (Z, torch.tensor([0, -1]), {}),
    "class -100 when another is ignored": (Z, torch.tensor([0, -100]), {"ignore_index": 1}),
    "class too large, weighted": (Z, torch.tensor([0, 3]), {"weight": torch.ones(3)}),
    "class negative, weighted": (Z, torch.tensor([0, -1]), {"weight": torch.ones(3)}),
    "class too large, smoothed": (Z, torch.tensor([0, 3]), {"label_smoothing": 0.1}),
    "class too large, all smoothed": (Z, torch.tensor([0, 3]), {"label_smoothing": 1.0}),
    "class too large, one row": (Z[0], torch.tensor(3), {}),
    "class too large, volume": (torch.zeros(1, 3, 2), torch.tensor([[0, 3]]), {}),
    "class too large, byte": (Z, torch.tensor([0, 3], dtype=torch.uint8), {}),
    "more labels than rows": (Z, torch.tensor([0, 1, 2]), {}),
    "fewer labels than rows": (Z, torch.tensor([0]), {}),
    "labels of int32": (Z, Y.int(), {}),
    "labels of int16": (Z, Y.short(), {}),
    "labels of bool": (Z, Y.bool(), {}),
    "labels of float, no distribution": (Z, Y.float(), {}),
    "logits of int64": (Z.long(), Y, {}),
    "logits without a dimension": (torch.tensor(1.0), torch.tensor(0), {}),
    "label with a dimension, one row": (Z[0], torch.tensor([0, 1]), {}),
    "labels with one dimension too many": (Z, Y.unsqueeze(1), {}),
    "labels with one dimension too few": (torch.zeros(2, 3, 4), Y, {}),
    "labels of another volume": (torch.zeros(2, 3, 4), torch.zeros(2, 5, dtype=torch.int64), {}),
    "distribution of another shape": (Z, torch.full((2, 4), 0.25), {}),
    "distribution of fewer rows": (Z, SOFT[:1], {}),
    "distribution and an ignored class": (Z, SOFT, {"ignore_index": 1}),
    "weight too short": (Z, Y, {"weight": torch.ones(2)}),
    "weight too long": (Z, Y, {"weight": torch.ones(4)}),
    "weight of two dimensions": (Z, Y, {"weight": torch.ones(1, 3)}),
    "weight too short for a distribution": (Z, SOFT, {"weight": torch.ones(2)}),
    "smoothing just too large": (Z, Y, {"label_smoothing": 1.000001}),
    "weight that asks for a gradient": (Z, Y, {"weight": torch.ones(3, requires_grad=True)}),
    "no classes": (Z[:, :0], Y, {}),
    "ignored class of another type": (Z, Y, {"ignore_index": 1.5}),
    "unknown reduction": (Z, Y, {"reduction": "average"}),
    "reduction in capitals": (Z, Y, {"reduction": "Mean"}),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_call_raises_what_torch_raises(name, grad):
    logits, target, options = MALFORMED[name]
    if logits.is_floating_point():
        logits = logits.clone().requires_grad_(grad)
    with pytest.raises(Exception, match=r".") as theirs:
        functional.cross_entropy(logits, target, **options)
    with pytest.raises(theirs.type) as raised:
        ours(logits, target, **options)
    assert isinstance(raised.value, theirs.type)
    # The message gives the value or the shapes at fault, in one line if ours.
    value = next((str(v) for k, v in options.items() if k in ("reduction", "label_smoothing")), "")
    given = (value, str(tuple(target.shape)), *(str(y) for y in target.flatten().tolist()))
    assert any(part and part in str(raised.value) for part in given) or "weight cannot" in str(
        raised.value
    )


NOISE = torch.full((3, 3), 0.1).fill_diagonal_(0.8)
LOSSES = {
    "capped": partial(curve_loss, curve=CCE(), cap=0.75),
    "recommended": lambda z, y, **o: IMAELoss("auto", cap=0.75, normalize="half", **o)(z, y),
    "bootstrap": bootstrap_loss,
    "forward": partial(forward_correction, transition=NOISE),
    "backward": partial(backward_correction, transition=NOISE),
    "normalized": normalized_cross_entropy,
    "squared": asymmetric_mse,
    "negative": active_negative_loss,
    "pushed": eps_softmax_loss,
}
NOT_TENSORS = {
    "lists of logits": ([[0.0, 1.0]], Y[:1], {}),
    "a list of labels": (Z, [0, 2], {}),
    "no labels": (Z, None, {}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_refuses_what_cross_entropy_does(name):
    for case, (logits, target, options) in {**MALFORMED, **NOT_TENSORS}.items():
        if "label_smoothing" in options and name not in ("capped", "recommended"):
            continue
        if name in ("forward", "backward") and case == "no classes":
            continue  # the matrix is refused first
        with pytest.raises(Exception, match=r".") as theirs:
            functional.cross_entropy(logits, target, **options)
        with pytest.raises(theirs.type):
            LOSSES[name](logits, target, **options)


@pytest.mark.parametrize("smoothing", [-1e-9, math.nextafter(1, 2), math.nan])
def test_smoothing_outside_is_refused_even_where_torch_lets_it_pass(smoothing):
    with pytest.raises(RuntimeError):
        ours(Z, Y, label_smoothing=smoothing)


def test_smoothing_at_its_ends_is_taken():
    for smoothing in (0.0, 1.0):
        expected = functional.cross_entropy(Z, Y, label_smoothing=smoothing)
        torch.testing.assert_close(ours(Z, Y, label_smoothing=smoothing), expected)


def test_the_first_class_out_of_range_is_named():
    line = "Target 7 is out of bounds: target must be in [0, 3) or ignore_index=-100"
    with pytest.raises(IndexError) as raised:
        ours(Z, torch.tensor([7, 9]))
    assert str(raised.value) == line


def checked(target, **options):
    arguments = {"weight": None, "ignore_index": -100, "reduction": "mean", **options}
    return check_labels(Z, target, **arguments)


def test_plain_labels_need_no_scale():
    labels = checked(Y)
    assert labels.is_valid is None
    assert labels.row_scale() is None
    assert labels.total_scale() == 2
    assert labels.batched


def test_ignored_rows_have_scale_zero():
    labels = checked(torch.tensor([-100, 2]), weight=torch.tensor([1.0, 2.0, 5.0]))
    assert labels.index.tolist() == [0, 2]
    assert labels.is_valid.tolist() == [False, True]
    assert labels.row_scale().tolist() == [0, 5]
    assert labels.total_scale().item() == 5
    assert labels.reduce(torch.tensor([math.inf, 10.0]), "mean").item() == 2
    assert labels.reduce(torch.tensor([math.nan, 10.0]), "none").tolist() == [0, 10]


def test_distributions_are_averaged_over_rows():
    labels = checked(SOFT, weight=torch.tensor([1.0, 2.0, 5.0]))
    assert labels.index is None
    assert labels.row_scale() is None
    assert labels.total_scale() == 2


def test_one_row_comes_back_without_a_batch():
    labels = check_labels(Z[0], torch.tensor(1), weight=None, ignore_index=-100, reduction="none")
    assert not labels.batched
    assert labels.logits.shape == (1, 3)
    assert labels.reduce(torch.tensor([4.0]), "none").shape == ()


def test_class_weights_are_not_trained():
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="weight cannot be trained"):
        checked(Y, weight=weight)
    with torch.no_grad():
        assert not checked(Y, weight=weight).class_weight.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_class_weights_of_another_dtype_are_refused_as_in_cross_entropy(dtype):
    weight = torch.ones(3).to(dtype)
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        torch.nn.functional.cross_entropy(Z, Y, weight=weight)
    with pytest.raises(RuntimeError, match=r"dtype of the logits, torch.float32, got torch\."):
        checked(Y, weight=weight)
    # With probabilities as targets both take them.
    assert torch.nn.functional.cross_entropy(Z, SOFT, weight=weight) > 0
    assert checked(SOFT, weight=weight).class_weight.dtype == torch.float32


def test_class_weights_that_need_no_rounding_may_have_another_dtype():
    half = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float16)
    assert checked(Y, weight=half).class_weight.tolist() == [1, 2, 0.5]
    options = {"ignore_index": -100, "reduction": "mean"}
    labels = check_labels(Z.double(), Y, weight=[1.0, 2.0, 0.5], **options)
    assert labels.class_weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_dtype_of_the_computation(given, computed):
    assert precise_dtype(torch.zeros(1, dtype=given)) == computed


def test_only_classes_out_of_range_are_refused():
    check_classes_in_range(torch.tensor([0, 2, -100]), 3, -100)
    check_classes_in_range(torch.tensor(2, dtype=torch.uint8), 3, -100)
    for outside in (torch.tensor([0, 3]), torch.tensor(-1), torch.tensor([156], dtype=torch.uint8)):
        with pytest.raises(IndexError, match=r"out of bounds: target must be in \[0, 3\)"):
            check_classes_in_range(outside, 3, -100)


def test_plain_means_eager_and_outside_transforms():
    assert is_plain(Z, torch.nn.Parameter(Z))
    seen = []
    torch.func.grad(lambda z: (seen.append(is_plain(z)), z.sum())[1])(Z)
    with torch._subclasses.FakeTensorMode():
        seen.append(is_plain(Z))
    with torch.autograd.forward_ad.dual_level():
        seen.append(is_plain(Z))
    assert seen == [False, False, False]
    assert is_plain(Z)


def test_labels_are_frozen():
    labels = checked(Y)
    with pytest.raises(AttributeError):
        labels.batched = False
    assert isinstance(labels, Labels)


def test_the_ignored_class_may_be_a_number_of_numpy():
    expected = curve_loss(Z, Y, CCE(), ignore_index=1)
    torch.testing.assert_close(curve_loss(Z, Y, CCE(), ignore_index=np.int64(1)), expected)
