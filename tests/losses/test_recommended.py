"""The recommended form through everything that torch does to a loss."""

import copy
import pickle
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import ClassVar

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import imae
from imae.curves import IMAE, MAE, FromWeight, Scale, Window
from imae.curves.curve import Curve
from imae.errors import ArgumentError
from imae.losses import IMAELoss, auto, curve_loss, kernel
from imae.losses.margin import constant_number

LOGITS = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(5))
TARGET = torch.tensor([0, 1, 2, 3, 0, 1])


def recommended(training=False):
    loss = IMAELoss(T="auto", cap=0.75, normalize="half")
    loss.auto.T.fill_(6.0)
    return loss.train(training)


def fixed():
    return IMAELoss(T=6.0, cap=0.75, normalize="half")


def gradient_of(loss, logits=LOGITS, target=TARGET):
    z = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z, target), z)
    return gradient


@pytest.mark.parametrize("build", [recommended, fixed])
def test_second_derivatives_are_those_of_the_value(build):
    z = LOGITS.double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda logits: build()(logits, TARGET), (z,))


@pytest.mark.parametrize("build", [recommended, fixed])
def test_second_derivatives_of_a_small_batch(build):
    hessians = []
    for z in (LOGITS.clone().requires_grad_(), LOGITS.double().requires_grad_()):
        (first,) = torch.autograd.grad(build()(z, TARGET), z, create_graph=True)
        hessians.append(torch.autograd.grad(first.square().sum(), z)[0].double())
    torch.testing.assert_close(*hessians, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode
def test_function_transforms_agree_with_eager_mode():
    loss, expected = recommended(), gradient_of(recommended())
    whole = partial(loss, target=TARGET)
    torch.testing.assert_close(torch.func.grad(whole)(LOGITS), expected)
    torch.testing.assert_close(torch.func.jacfwd(whole)(LOGITS), expected)
    rows = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)))(LOGITS, TARGET)
    torch.testing.assert_close(rows / len(LOGITS), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_it_compiles_whole_in_training_mode():
    torch._dynamo.reset()
    eager, twin = recommended(training=True), recommended(training=True)
    compiled = torch.compile(twin, fullgraph=True, dynamic=False, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(gradient_of(compiled), gradient_of(eager))
    torch._dynamo.reset()
    torch.testing.assert_close(twin.state_dict(), eager.state_dict())
    assert twin.auto.num_steps.item() == 2


def test_it_exports():
    exported = torch.export.export(recommended(), (LOGITS, TARGET)).module()
    torch.testing.assert_close(exported(LOGITS, TARGET), recommended()(LOGITS, TARGET))


@pytest.mark.parametrize("training", [False, True])
def test_shapes_without_numbers(training):
    loss = recommended(training).to("meta")
    z = LOGITS.to("meta").requires_grad_()
    loss(z, TARGET.to("meta")).backward()
    assert z.grad.shape == LOGITS.shape
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.empty(6, 4, requires_grad=True)
        fixed()(fake, torch.zeros(6, dtype=torch.int64)).backward()
        assert fake.grad.shape == fake.shape


@pytest.mark.parametrize("reentrant", [True, False])
def test_under_checkpoint(reentrant):
    loss = recommended()
    z = LOGITS.clone().requires_grad_()
    checkpoint(loss, z, TARGET, use_reentrant=reentrant).backward()
    torch.testing.assert_close(z.grad, gradient_of(loss))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_follow_the_training_by_themselves(copied):
    loss = recommended(training=True)
    twin = copied(loss)
    torch.testing.assert_close(gradient_of(twin), gradient_of(loss))
    gradient_of(twin)
    assert (loss.auto.num_steps.item(), twin.auto.num_steps.item()) == (1, 2)


def test_batched_gradients_agree():
    loss, factors = recommended(), torch.tensor([1.0, -2.0, 0.0])
    z = LOGITS.clone().requires_grad_()
    (each,) = torch.autograd.grad(loss(z, TARGET), z, factors, is_grads_batched=True)
    torch.testing.assert_close(each, factors[:, None, None] * gradient_of(loss))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_half_precision(dtype):
    with torch.autocast("cpu", dtype=dtype):
        under = recommended()(LOGITS.to(dtype), TARGET)
    assert under.dtype == torch.float32
    half = recommended()(LOGITS.to(dtype), TARGET)
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), under, rtol=1e-2, atol=1e-2)
    assert gradient_of(recommended(training=True), LOGITS.to(dtype)).isfinite().all()


def test_a_gradient_in_two_threads():
    expected, found = gradient_of(fixed()), {}

    def work(place):
        loss = fixed()
        found[place] = [gradient_of(loss) for _ in range(20)]

    threads = [Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, expected) for each in [*found[0], *found[1]])


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("cap", [None, 0.75])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_small_batch_moves_the_state_as_others_do(num_classes, cap, offset, generator):
    small = IMAELoss(T="auto", cap=cap, normalize="half")
    other = IMAELoss(T="auto", cap=cap, normalize="half", reduction="sum")
    for _ in range(25):
        logits = 2 * torch.randn(16, num_classes, generator=generator) + offset
        drawn = torch.randint(num_classes, (16,), generator=generator)
        is_right = torch.rand(16, generator=generator) < 0.6
        target = torch.where(is_right, logits.argmax(1), drawn)
        torch.testing.assert_close(
            gradient_of(small, logits, target),
            gradient_of(other, logits, target) / 16,
            rtol=1e-4,
            atol=1e-6,
        )
    assert small.auto.T.item() > 1
    torch.testing.assert_close(small.state_dict(), other.state_dict(), rtol=1e-5, atol=1e-6)


def test_a_small_batch_in_evaluation_mode_changes_no_state():
    loss = recommended()
    before = copy.deepcopy(loss.state_dict())
    torch.testing.assert_close(gradient_of(loss), gradient_of(fixed()))
    torch.testing.assert_close(loss.state_dict(), before, rtol=0, atol=0)


@dataclass  # not frozen, so it cannot be hashed
class Unhashable(Curve):
    name: ClassVar[str] = "unhashable"

    def value(self, m):
        return MAE().value(m)

    def slope(self, m):
        return MAE().slope(m)


def test_the_weight_at_chance_of_any_curve_and_number_of_classes():
    assert constant_number(Unhashable(), 4, "chance") == pytest.approx(4 * 0.25 * 0.75)
    assert constant_number(MAE(), 1, "chance") == 1
    assert constant_number(Window(MAE(), low=0.0), 4, "chance") == 1  # where it is 0


@pytest.mark.parametrize("num_rows", [6, 6000])  # computed in one pass of numpy, or in pieces
@pytest.mark.parametrize("normalize", ["chance", "half"])
def test_the_scale_follows_what_changes_in_a_curve(num_rows, normalize):
    logits, target = LOGITS.repeat(num_rows // 6, 1), TARGET.repeat(num_rows // 6)
    T = torch.tensor(8.0)

    def weight(p):
        return torch.exp(T * p * (1 - p))

    for value in (8.0, 2.0):
        T.fill_(value)
        expected = gradient_of(IMAELoss(T=value, normalize=normalize), logits, target)
        for curve in (IMAE(T=T), FromWeight(weight), Scale(FromWeight(weight), 1.0)):
            loss = partial(curve_loss, curve=curve, normalize=normalize)
            torch.testing.assert_close(gradient_of(loss, logits, target), expected)


def test_a_small_batch_refuses_a_cap_that_cannot_be_met():
    with pytest.raises(ArgumentError, match="cap must be in"):
        curve_loss(LOGITS.clone().requires_grad_(), TARGET, IMAE(T=8.0), cap=0.2)


@pytest.mark.parametrize("shape", [(37, 5), (7, 5, 6)])
@pytest.mark.parametrize("weight", [None, torch.rand(5)])
def test_pieces_make_no_difference(monkeypatch, generator, shape, weight):
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.randint(5, shape[:1] + shape[2:], generator=generator)
    results = []
    for piece in (1 << 18, 64, 1):
        monkeypatch.setattr(kernel, "CAPPED_PIECE", piece)
        monkeypatch.setattr(auto, "CAPPED_PIECE", piece)
        loss = IMAELoss(T="auto", cap=0.75, normalize="half", weight=weight)
        results.append((gradient_of(loss, logits, target), loss.state_dict()))
    for gradient, state in results[1:]:
        torch.testing.assert_close(gradient, results[0][0])
        torch.testing.assert_close(state, results[0][1])


@pytest.mark.parametrize("loss", [imae.IMAELoss(T="auto", cap=0.75), imae.GCELoss(cap=0.75)])
def test_one_class_is_certain_under_any_cap(loss):
    logits = torch.randn(4, 1, requires_grad=True)
    value = loss(logits, torch.zeros(4, dtype=torch.int64))
    value.backward()
    assert value.isfinite()
    assert logits.grad.abs().max() == 0
    assert torch.equal(imae.CappedLogits(0.75)(logits), torch.zeros(4, 1))
