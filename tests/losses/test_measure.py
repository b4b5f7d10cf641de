import math

import pytest
import torch
from torch.nn import functional

from imae.curves import CCE, GCE
from imae.errors import ArgumentError
from imae.losses import GCELoss, IMAELoss, curve_loss, normalized_cross_entropy, weight_curve

P = torch.tensor([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6], dtype=torch.float64)


def test_cross_entropy_of_torch():
    _, weights = weight_curve(functional.cross_entropy, P)
    torch.testing.assert_close(weights, 2 * (1 - P))


@pytest.mark.parametrize("num_classes", [2, 3, 100])
def test_the_number_of_classes_does_not_matter_to_a_curve(num_classes):
    _, weights = weight_curve(GCELoss(q=0.7), P, num_classes=num_classes)
    torch.testing.assert_close(weights, GCE(q=0.7).weight(P), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_reduction_does_not_matter(reduction):
    _, weights = weight_curve(IMAELoss(T=8.0, reduction=reduction), P)
    torch.testing.assert_close(weights, torch.exp(8 * P * (1 - P)))


def test_a_loss_that_somebody_wrote():
    def brier(logits, target):
        one_hot = functional.one_hot(target, logits.shape[1])
        return ((logits.softmax(1) - one_hot) ** 2).sum()

    _, weights = weight_curve(brier, P, num_classes=2)
    torch.testing.assert_close(weights, 8 * P * (1 - P) ** 2)


def test_a_loss_that_needs_the_whole_distribution():
    _, weights = weight_curve(normalized_cross_entropy, P)
    assert bool((weights > 0).all())


def test_99_even_steps_by_default():
    p, weights = weight_curve(functional.cross_entropy)
    torch.testing.assert_close(p, torch.arange(1, 100, dtype=torch.float64) / 100)
    assert weights.shape == (99,)
    assert weights.dtype == p.dtype == torch.float64


def test_float32_probabilities_are_widened():
    p, weights = weight_curve(functional.cross_entropy, torch.tensor([0.25]))
    assert p.dtype == weights.dtype == torch.float64
    assert weights.item() == pytest.approx(1.5, rel=1e-14)


def test_no_probability_no_weight():
    p, weights = weight_curve(functional.cross_entropy, torch.empty(0))
    assert p.shape == weights.shape == (0,)


def test_it_measures_where_gradients_are_off():
    with torch.no_grad():
        _, weights = weight_curve(lambda z, y: curve_loss(z, y, CCE()), P)
    torch.testing.assert_close(weights, 2 * (1 - P))


@pytest.mark.parametrize("p", [[0.0], [1.0], [-0.1], [1.1], [math.nan], [0.5, 1.0], [[0.5]], 0.5])
def test_what_is_no_vector_of_probabilities_is_refused(p):
    with pytest.raises(
        ArgumentError, match="p must be a vector of numbers strictly between 0 and 1"
    ):
        weight_curve(functional.cross_entropy, torch.tensor(p))


@pytest.mark.parametrize("num_classes", [1, 0, 2.0, True])
def test_too_few_classes_are_refused(num_classes):
    with pytest.raises(ArgumentError, match="num_classes must be"):
        weight_curve(functional.cross_entropy, P, num_classes=num_classes)
