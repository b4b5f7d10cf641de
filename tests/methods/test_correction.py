import math

import numpy as np
import pytest
import torch

from imae.errors import ArgumentError, DataError
from imae.losses import backward_correction, forward_correction
from imae.methods import BackwardCorrection, Facts, ForwardCorrection, Rows

T = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]
LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, 1.0], [3.0, 0.2, -4.0], [-1.0, 0.5, 0.0]])
TARGET = torch.tensor([0, 2, 1, 1])
BOTH = pytest.mark.parametrize("kind", [ForwardCorrection, BackwardCorrection])


def rows(logits=LOGITS, target=TARGET):
    return Rows(logits, target, torch.arange(len(target)))


def facts(predict=None, **changes):
    known = {"labels": TARGET, "num_classes": 3, "num_epochs": 4, "seed": 0}
    return Facts(**{**known, **changes}, predict=predict)


def softmax(logits):
    powers = [math.exp(logit) for logit in logits]
    return [power / sum(powers) for power in powers]


def forward_by_hand(logits, label, matrix):
    p = softmax(logits)
    return -math.log(sum(p[i] * matrix[i][label] for i in range(len(p))))


def backward_by_hand(logits, label, matrix):
    inverse = np.linalg.inv(np.array(matrix))
    p = softmax(logits)
    return -sum(inverse[label, j] * math.log(p[j]) for j in range(len(p)))


def by_hand(kind, logits, target, matrix):
    loss = forward_by_hand if kind is ForwardCorrection else backward_by_hand
    pairs = zip(logits.tolist(), target.tolist(), strict=True)
    losses = [loss(row, label, matrix) for row, label in pairs]
    return torch.tensor(losses, dtype=torch.float32)


@BOTH
def test_a_given_matrix_corrects_as_the_publication_says(kind):
    method = kind(T)
    method.start(facts())
    torch.testing.assert_close(method(rows()), by_hand(kind, LOGITS, TARGET, T))
    assert method.restart() is None


@pytest.mark.parametrize(
    ("kind", "loss"),
    [(ForwardCorrection, forward_correction), (BackwardCorrection, backward_correction)],
)
def test_losses_and_gradients_are_those_of_the_library(kind, loss):
    mine, library = LOGITS.clone().requires_grad_(), LOGITS.clone().requires_grad_()
    found = kind(T)(rows(mine))
    expected = loss(library, TARGET, torch.tensor(T), reduction="none")
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(mine.grad, library.grad)


@BOTH
def test_gradients_are_right(kind):
    method = kind(T)
    logits = LOGITS.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: method(rows(z)), (logits,), atol=1e-4)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_give_finite_losses_and_gradients(kind, dtype):
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype=dtype).requires_grad_()
    losses = kind(T)(rows(logits, torch.tensor([1, 0])))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 0


@BOTH
def test_a_matrix_can_come_from_a_file(kind, tmp_path):
    np.save(tmp_path / "t.npy", np.array(T))
    np.savetxt(tmp_path / "t.csv", np.array(T), delimiter=",")
    for name in ("t.npy", "t.csv"):
        method = kind(str(tmp_path / name))
        torch.testing.assert_close(method(rows()), kind(T)(rows()))
    with pytest.raises(DataError, match=r"none\.npy: No such file"):
        kind(str(tmp_path / "none.npy"))


@BOTH
def test_the_known_matrix_is_that_of_the_run(kind):
    method = kind("known")
    method.start(facts(transition=torch.tensor(T, dtype=torch.float64)))
    torch.testing.assert_close(method(rows()), by_hand(kind, LOGITS, TARGET, T))
    assert method.restart() is None
    with pytest.raises(ArgumentError, match="use 'estimate' or give the matrix"):
        kind("known").start(facts())


def anchors_by_hand(probabilities, place):
    """For each class, the probabilities of the row at this place in the order of the class's."""
    found = []
    for i in range(len(probabilities[0])):
        order = sorted(range(len(probabilities)), key=lambda row: probabilities[row][i])
        found.append(probabilities[order[place]])
    return found


@BOTH
def test_two_stages_cross_entropy_then_the_estimated_matrix(kind):
    generator = torch.Generator().manual_seed(3)
    predicted = 3 * torch.randn(200, 3, generator=generator)
    calls = []

    def predict():
        calls.append(None)
        return predicted

    method = kind()
    method.start(facts(predict))
    assert method.restart().epoch == 2
    assert not method.restart().is_rate_constant
    plain = torch.nn.functional.cross_entropy(LOGITS, TARGET, reduction="none")
    for epoch in range(4):
        method.start_epoch(epoch)
        probabilities = [softmax(row) for row in predicted.tolist()]
        estimate = anchors_by_hand(probabilities, int(0.97 * 199))
        expected = plain if epoch < 2 else by_hand(kind, LOGITS, TARGET, estimate)
        torch.testing.assert_close(method(rows()), expected, rtol=1e-4, atol=1e-5)
        method.share()
        method.end_epoch(epoch)
        assert len(calls) == (epoch >= 1)


@pytest.mark.parametrize(
    ("num_classes", "quantile", "place"), [(33, None, 96), (34, None, 99), (34, 0.5, 49)]
)
def test_the_anchor_of_many_classes_is_the_surest_row(num_classes, quantile, place):
    predicted = torch.randn(100, num_classes, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(num_classes)
    method = ForwardCorrection(quantile=quantile)
    method.start(facts(lambda: predicted, num_classes=num_classes, labels=labels))
    method.end_epoch(1)
    expected = anchors_by_hand(predicted.softmax(1).tolist(), place)
    torch.testing.assert_close(method.transition, torch.tensor(expected))


@BOTH
def test_a_restored_method_goes_on_with_its_matrix(kind):
    predicted = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)) * 4
    method = kind()
    method.start(facts(lambda: predicted))
    method.end_epoch(1)
    other = kind()
    other.start(facts())
    other.load_state_dict(method.state_dict())
    other.start_epoch(3)
    assert torch.equal(other(rows()), method(rows()))


@pytest.mark.parametrize(
    ("epochs", "warm_up", "stage_end"), [(2, 0.01, 1), (2, 0.99, 1), (20, 0.3, 6), (120, 0.5, 60)]
)
def test_both_stages_have_an_epoch_at_least(epochs, warm_up, stage_end):
    method = ForwardCorrection(warm_up=warm_up)
    method.start(facts(num_epochs=epochs))
    assert method.restart().epoch == stage_end


def test_a_run_too_short_for_two_stages_is_refused():
    method = ForwardCorrection()
    method.start(facts(num_epochs=1))
    with pytest.raises(ArgumentError, match="at least 2 epochs"):
        method.restart()
    method = ForwardCorrection(T)
    method.start(facts(num_epochs=1))
    assert method.restart() is None


@BOTH
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"warm_up": 0.0}, r"warm_up must be in \(0, 1\)"),
        ({"warm_up": 1.0}, r"warm_up must be in \(0, 1\)"),
        ({"quantile": -0.01}, r"quantile must be in \[0, 1\]"),
        ({"quantile": 1.01}, r"quantile must be in \[0, 1\]"),
        ({"matrix": "guess"}, r"ends in \.csv or \.npy, got 'guess'"),
        ({"matrix": [[0.9, 0.2], [0.1, 0.9]]}, "row 0 sums to"),
        ({"matrix": [[1.1, -0.1], [0.1, 0.9]]}, "not negative"),
    ],
)
def test_options_out_of_range_are_refused(kind, options, says):
    with pytest.raises(ArgumentError, match=says):
        kind(**options)


def test_options_at_the_edge_are_taken():
    for options in ({"warm_up": 0.001}, {"warm_up": 0.999}, {"quantile": 0.0}, {"quantile": 1.0}):
        ForwardCorrection(**options)


def test_a_matrix_that_does_not_fit_the_data_is_refused():
    with pytest.raises(ArgumentError, match=r"must be for 3 classes, got \(2, 2\)"):
        ForwardCorrection([[1.0, 0.0], [0.0, 1.0]]).start(facts())
    never_two = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    with pytest.raises(ArgumentError, match=r"label 2 no chance from any class, .* row 1 has it"):
        ForwardCorrection(never_two).start(facts())


def test_a_matrix_without_an_inverse_is_refused_by_backward_alone():
    flat = [[0.5, 0.5], [0.5, 0.5]]
    ForwardCorrection(flat)
    with pytest.raises(ArgumentError, match="no inverse; use the method forward"):
        BackwardCorrection(flat)
    BackwardCorrection([[0.5001, 0.4999], [0.4999, 0.5001]])


def test_its_text_shows_the_options():
    assert repr(ForwardCorrection(T)).startswith("ForwardCorrection(matrix='given', warm_up=0.5")
