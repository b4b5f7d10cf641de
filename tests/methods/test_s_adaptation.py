import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from imae.errors import ArgumentError
from imae.methods import Facts, Rows, SAdaptation
from imae.methods.correction import log_confusion
from imae.models.network import Network

C, E = 3, 4
TARGET = torch.tensor([0, 2, 1, 1, 0])
VARIANTS = pytest.mark.parametrize("variant", ["simple", "complex"])


class Probe(Network):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(E, C)

    @property
    def classifier(self):
        return self.fc

    def features(self, x):
        return x


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PREDICTED = 2 * draw(len(TARGET), C, seed=9)


def started(variant="simple", predicted=PREDICTED, num_epochs=4, **options):
    method = SAdaptation(variant, **{"warm_up": 0.5, **options})
    facts = Facts(
        labels=TARGET,
        num_classes=C,
        num_epochs=num_epochs,
        seed=0,
        networks=(Probe(),),
        predict=lambda: predicted.float(),
    )
    method.start(facts)
    return method


def adapting(variant, **options):
    method = started(variant, **options)
    method.end_epoch(1)
    method.start_epoch(2)
    return method


def rows(logits=None, features=None, target=TARGET):
    logits = draw(len(target), C, seed=1) if logits is None else logits
    features = draw(len(target), E, seed=2) if features is None else features
    return Rows(logits, target, torch.arange(len(target)), features=features)


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def confusion_by_hand(predicted, labels):
    p = [softmax(row) for row in predicted.tolist()]
    return [
        [
            sum(p[t][i] for t in range(len(p)) if labels[t] == j)
            / sum(p[t][i] for t in range(len(p)))
            for j in range(C)
        ]
        for i in range(C)
    ]


def loss_by_hand(logits, features, label, bias, weight):
    p = softmax(logits)
    chance = 0.0
    for i in range(C):
        scores = []
        for j in range(C):
            score = bias[i][j]
            if weight is not None:
                score += sum(weight[i][j][e] * features[e] for e in range(E))
            scores.append(score)
        chance += p[i] * softmax(scores)[label]
    return -math.log(chance)


def losses_by_hand(method, batch):
    weight = None if method.weight is None else method.weight.tolist()
    return [
        loss_by_hand(z, h, y, method.bias.tolist(), weight)
        for z, h, y in zip(
            batch.logits.tolist(), batch.features.tolist(), batch.target.tolist(), strict=True
        )
    ]


def test_the_confusion_matrix_is_that_of_the_publication():
    found = log_confusion(PREDICTED, TARGET, C).exp()
    expected = torch.tensor(confusion_by_hand(PREDICTED, TARGET.tolist()))
    torch.testing.assert_close(found, expected)


def test_the_confusion_matrix_is_finite_for_sure_networks_and_labels_that_are_not_there():
    predicted = torch.tensor([[1e4, -1e4, 0.0], [1e4, 0.0, -1e4]])
    found = log_confusion(predicted, torch.tensor([0, 1]), C)
    assert found.isfinite().all()
    torch.testing.assert_close(found.softmax(1)[0], torch.tensor([0.5, 0.5, 0.0]))


@VARIANTS
def test_warm_up_then_the_layer_from_the_confusion_matrix(variant):
    method, batch = started(variant), rows()
    plain = torch.nn.functional.cross_entropy(batch.logits, TARGET, reduction="none")
    confusion = confusion_by_hand(PREDICTED, TARGET.tolist())
    for epoch in range(4):
        method.start_epoch(epoch)
        found = method(batch)
        if epoch < 2:
            torch.testing.assert_close(found, plain)
        else:
            p = batch.logits.softmax(1)
            expected = -(p @ torch.tensor(confusion, dtype=torch.float64)).log()
            expected = expected.gather(1, TARGET.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        method.end_epoch(epoch)


@VARIANTS
def test_steps_of_the_layer_follow_the_formula(variant):
    method, batch = adapting(variant), rows()
    start = method.bias.detach().clone()
    optimiser = torch.optim.SGD(method.parameters(), lr=0.5)
    for _ in range(3):
        losses = method(batch)
        expected = torch.tensor(losses_by_hand(method, batch), dtype=torch.float64)
        torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
        optimiser.zero_grad()
        losses.mean().backward()
        optimiser.step()
    assert not torch.equal(method.bias, start)
    assert method.weight is None or method.weight.abs().sum() > 0


@VARIANTS
def test_gradients_are_right(variant):
    method = adapting(variant).double()
    if method.weight is not None:
        with torch.no_grad():
            method.weight.copy_(draw(C, C, E, seed=5))
    logits, features = draw(5, C, seed=1).requires_grad_(), draw(5, E, seed=2).requires_grad_()
    inputs = (logits, features, *method.parameters())
    assert torch.autograd.gradcheck(
        lambda z, h=None, *_: method(rows(z, h)), inputs if variant == "complex" else inputs[:1]
    )


@VARIANTS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("epoch", [0, 2])
def test_extreme_logits_give_finite_losses_and_gradients(variant, dtype, epoch):
    method = adapting(variant)
    method.start_epoch(epoch)
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype=dtype).requires_grad_()
    features = torch.tensor([[1e4] * E, [-1e4] * E], dtype=dtype)
    losses = method(rows(logits, features, torch.tensor([1, 0])))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert all(each.grad.isfinite().all() for each in method.parameters())


@VARIANTS
def test_half_precision_does_not_reach_the_layer(variant):
    method = adapting(variant)
    if method.weight is not None:
        with torch.no_grad():
            method.weight.copy_(draw(C, C, E, seed=5))
    batch = rows(draw(5, C, seed=1).float(), draw(5, E, seed=2).float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = method(batch)
    assert torch.equal(half, method(batch))


@VARIANTS
def test_every_parameter_has_a_gradient_in_the_warm_up_and_it_is_zero(variant):
    method = started(variant)
    method.start_epoch(0)
    method(rows(draw(5, C, seed=1).requires_grad_())).sum().backward()
    assert [float(each.grad.abs().sum()) for each in method.parameters()] == [0.0] * (
        2 if variant == "complex" else 1
    )


@VARIANTS
def test_a_restored_method_goes_on_as_it_was(variant):
    method, batch = adapting(variant), rows()
    with torch.no_grad():
        for each in method.parameters():
            each.add_(0.1 * draw(*each.shape, seed=4))
    other = started(variant, predicted=torch.zeros(len(TARGET), C))
    other.load_state_dict(method.state_dict())
    other.start_epoch(3)
    assert torch.equal(other(batch), method(batch))


@pytest.mark.parametrize(
    ("epochs", "warm_up", "border"), [(2, 0.01, 1), (2, 0.99, 1), (20, 0.3, 6), (40, 0.5, 20)]
)
def test_both_parts_have_an_epoch_at_least(epochs, warm_up, border):
    method, batch = started(num_epochs=epochs, warm_up=warm_up), rows()
    method.start_epoch(border - 1)
    before = method(batch)
    method.start_epoch(border)
    assert not torch.equal(method(batch), before)


def test_options_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="variant must be one of simple, complex, got 'both'"):
        SAdaptation("both")
    for warm_up in (0.0, 1.0):
        with pytest.raises(ArgumentError, match=r"warm_up must be in \(0, 1\)"):
            SAdaptation(warm_up=warm_up)
    SAdaptation(warm_up=0.001)
    SAdaptation("complex", warm_up=0.999)
    with pytest.raises(ArgumentError, match="needs at least 2 epochs"):
        started(num_epochs=1)


def test_its_text_shows_the_options():
    assert repr(SAdaptation("complex")) == "SAdaptation(variant='complex', warm_up=0.25)"


def test_only_the_complex_layer_asks_for_features():
    assert SAdaptation("complex").needs_features
    simple = adapting("simple")
    assert not simple.needs_features
    batch = rows()
    torch.testing.assert_close(simple(replace(batch, features=None)), simple(batch))
