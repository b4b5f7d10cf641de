import copy
import pickle

import pytest
import torch

from imae.curves import MAE
from imae.errors import ArgumentError
from imae.losses import (
    ActiveNegativeLoss,
    AsymmetricMSELoss,
    BootstrapLoss,
    CorrectedLoss,
    EpsSoftmaxLoss,
    LabelSmoothingLoss,
    NormalizedCELoss,
    backward_correction,
    bootstrap_loss,
    forward_correction,
    label_smoothing_loss,
    normalized_cross_entropy,
)

NOISE = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])
LOGITS = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.2, 0.1], [0.0, 0.5, 0.4], [2.0, 1.0, 0.0]])
TARGET = torch.tensor([0, 2, 1, 1])
PAIRS = {
    "smoothing": (
        lambda **o: LabelSmoothingLoss(0.3, **o),
        lambda **o: label_smoothing_loss(LOGITS, TARGET, smoothing=0.3, **o),
    ),
    "smoothing by default": (
        LabelSmoothingLoss,
        lambda **o: label_smoothing_loss(LOGITS, TARGET, **o),
    ),
    "soft bootstrap": (
        lambda **o: BootstrapLoss(0.6, **o),
        lambda **o: bootstrap_loss(LOGITS, TARGET, beta=0.6, **o),
    ),
    "hard bootstrap": (
        lambda **o: BootstrapLoss(0.6, hard=True, **o),
        lambda **o: bootstrap_loss(LOGITS, TARGET, beta=0.6, hard=True, **o),
    ),
    "bootstrap by default": (BootstrapLoss, lambda **o: bootstrap_loss(LOGITS, TARGET, **o)),
    "forward": (
        lambda **o: CorrectedLoss(NOISE, **o),
        lambda **o: forward_correction(LOGITS, TARGET, NOISE, **o),
    ),
    "backward": (
        lambda **o: CorrectedLoss(NOISE, backward=True, **o),
        lambda **o: backward_correction(LOGITS, TARGET, NOISE, **o),
    ),
    "normalized": (
        lambda **o: NormalizedCELoss(2.0, **o),
        lambda **o: normalized_cross_entropy(LOGITS, TARGET, scale=2.0, **o),
    ),
    "normalized and passive": (
        lambda **o: NormalizedCELoss(passive=MAE(), **o),
        lambda **o: normalized_cross_entropy(LOGITS, TARGET, passive=MAE(), **o),
    ),
}
EACH = pytest.mark.parametrize("name", PAIRS)


@EACH
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_module_is_its_function_with_every_option(name, reduction):
    build, function = PAIRS[name]
    options = {
        "weight": torch.tensor([0.5, 1.0, 2.0]),
        "ignore_index": 2,
        "reduction": reduction,
    }
    torch.testing.assert_close(build(**options)(LOGITS, TARGET), function(**options))
    torch.testing.assert_close(build()(LOGITS, TARGET), function())


@EACH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_equal(name, copied):
    module = PAIRS[name][0](weight=torch.tensor([0.5, 1.0, 2.0]))
    twin = copied(module)
    assert type(twin) is type(module)
    torch.testing.assert_close(twin(LOGITS, TARGET), module(LOGITS, TARGET))


@EACH
def test_state_is_what_the_loss_needs(name):
    module = PAIRS[name][0]()
    expected = ["transition"] if isinstance(module, CorrectedLoss) else []
    assert list(module.state_dict()) == expected
    assert list(PAIRS[name][0](weight=torch.ones(3)).state_dict()) == ["weight", *expected]


def test_the_transition_moves_with_the_module():
    module = CorrectedLoss(NOISE)
    assert module.double().transition.dtype == torch.float64
    other = CorrectedLoss(torch.eye(3))
    other.load_state_dict(CorrectedLoss(NOISE).state_dict())
    torch.testing.assert_close(other(LOGITS, TARGET), CorrectedLoss(NOISE)(LOGITS, TARGET))


def test_shapes_without_numbers():
    logits = LOGITS.to("meta").requires_grad_()
    for module in COMPILED.values():
        loss = copy.deepcopy(module).to("meta")(logits, TARGET.to("meta"))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert (loss.shape, gradient.shape) == ((), LOGITS.shape)


COMPILED = {
    "soft bootstrap": BootstrapLoss(0.6),
    "forward": CorrectedLoss(NOISE),
    "backward": CorrectedLoss(NOISE, backward=True),
    "normalized": NormalizedCELoss(2.0, passive=MAE()),
    "squared": AsymmetricMSELoss(alpha=1.0),
    "negative": ActiveNegativeLoss(),
    "pushed": EpsSoftmaxLoss(),
}


@pytest.mark.parametrize(
    "dynamic", [pytest.param(False, marks=pytest.mark.slow), True], ids=["static", "dynamic"]
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("normalized", "pushed") else pytest.mark.slow)
        for name in COMPILED
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_compiles_whole(name, dynamic):
    module = COMPILED[name]
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="eager")
    result = compiled(LOGITS, TARGET)
    torch._dynamo.reset()
    torch.testing.assert_close(result, module(LOGITS, TARGET))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backward", [False, True])
def test_a_matrix_in_half_precision_is_taken(dtype, backward):
    matrix = torch.full((10, 10), 0.04).fill_diagonal_(0.64)
    logits, target = torch.randn(4, 10), torch.arange(4)
    half = CorrectedLoss(matrix, backward=backward).to(dtype)(logits.to(dtype), target)
    whole = CorrectedLoss(matrix, backward=backward)(logits, target)
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_listed_class_weights_take_the_type_of_the_logits(dtype):
    weight, logits = [1.0, 2.0, 1.0], LOGITS.to(dtype)
    expected = label_smoothing_loss(logits, TARGET, weight=torch.tensor(weight, dtype=dtype))
    assert torch.equal(LabelSmoothingLoss(weight=weight)(logits, TARGET), expected)
    assert torch.equal(label_smoothing_loss(logits, TARGET, weight=weight), expected)


@pytest.mark.parametrize("backward", [False, True])
def test_a_matrix_may_hold_integers_or_be_a_list(backward):
    expected = CorrectedLoss(torch.eye(3), backward=backward)(LOGITS, TARGET)
    correct = backward_correction if backward else forward_correction
    for matrix in (torch.eye(3, dtype=torch.int64), torch.eye(3).tolist(), torch.eye(3).numpy()):
        assert torch.equal(CorrectedLoss(matrix, backward=backward)(LOGITS, TARGET), expected)
        assert torch.equal(correct(LOGITS, TARGET, matrix), expected)
    with pytest.raises(ArgumentError, match="transition must be a square matrix of numbers"):
        correct(LOGITS, TARGET, [[1, 0], [1]])
