import math

import pytest
import torch

from imae.errors import ArgumentError
from imae.metrics.robustness import fgsm, pgd


@pytest.fixture
def linear():
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    inputs = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    target = (inputs @ weights.T).argmax(1)
    return weights, inputs, target


def margins(weights, inputs, target):
    logits = inputs @ weights.T
    return logits.gather(1, target[:, None])[:, 0] - logits.gather(1, 1 - target[:, None])[:, 0]


def test_fgsm_is_the_worst_case_of_a_linear_model(linear):
    weights, inputs, target = linear
    moved = fgsm(lambda x: x @ weights.T, inputs, target, epsilon=0.2)
    fall = 0.2 * (weights[0] - weights[1]).abs().sum()
    torch.testing.assert_close(
        margins(weights, moved, target), margins(weights, inputs, target) - fall
    )


def test_pgd_reaches_the_worst_case_of_a_linear_model(linear):
    weights, inputs, target = linear
    generator = torch.Generator().manual_seed(2)
    moved = pgd(lambda x: x @ weights.T, inputs, target, epsilon=0.2, steps=10, generator=generator)
    torch.testing.assert_close(moved, fgsm(lambda x: x @ weights.T, inputs, target, epsilon=0.2))


def test_pgd_stays_within_epsilon_and_repeats_with_its_seed(linear):
    _, inputs, target = linear
    epsilon = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.1, 0.1], dtype=torch.float64)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    network = network.double().requires_grad_(False)
    first, second = (
        pgd(
            network,
            inputs,
            target,
            epsilon=epsilon,
            steps=3,
            generator=torch.Generator().manual_seed(3),
        )
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert bool(((first - inputs).abs() <= epsilon + 1e-12).all())
    assert bool((first[:, 3] == inputs[:, 3]).all())
    before = torch.nn.functional.cross_entropy(network(inputs), target)
    assert torch.nn.functional.cross_entropy(network(first), target) > before


def test_no_size_changes_nothing_and_only_a_finite_positive_one_is_taken(linear):
    weights, inputs, target = linear
    assert torch.equal(fgsm(lambda x: x @ weights.T, inputs, target, epsilon=0.0), inputs)
    for epsilon in (-0.1, math.inf, math.nan):
        message = f"epsilon must be at least 0 and finite, got {epsilon}"
        with pytest.raises(ArgumentError, match=message):
            fgsm(lambda x: x @ weights.T, inputs, target, epsilon=epsilon)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        pgd(
            lambda x: x @ weights.T,
            inputs,
            target,
            epsilon=0.1,
            steps=0,
            generator=torch.Generator(),
        )


def test_gradients_are_taken_also_where_they_are_switched_off(linear):
    weights, inputs, target = linear
    with torch.no_grad():
        moved = fgsm(lambda x: x @ weights.T, inputs, target, epsilon=0.2)
    assert not moved.requires_grad
    assert not torch.equal(moved, inputs)


def test_a_range_is_kept_at_every_step(linear):
    weights, inputs, target = linear
    low, high = inputs.min(), inputs.max()
    generator = torch.Generator().manual_seed(2)
    single = fgsm(lambda x: x @ weights.T, inputs, target, epsilon=5.0, low=low, high=high)
    several = pgd(
        lambda x: x @ weights.T,
        inputs,
        target,
        epsilon=5.0,
        steps=10,
        generator=generator,
        low=low,
        high=high,
    )
    assert (single.min(), single.max()) == (low, high)
    torch.testing.assert_close(several, single)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("size", [0.1, 1.0, 5.0, 10.0, 16.0, 17.0, 30.0, 100.0, 200.0, 1000.0])
def test_a_confident_linear_model_is_attacked_as_its_closed_form_says(size, num_classes, dtype):
    """In float32 the gradient of cross entropy has wrong signs from a margin of 17 on."""
    weights = torch.tensor([[3.0, 1.0]] + [[1.0, 2.0]] * (num_classes - 1), dtype=dtype)
    x = torch.tensor([[1.0, 0.5]], dtype=dtype)

    def network(inputs):
        return size / 1.5 * inputs @ weights.T  # a margin of about this size

    expected = x + 0.6 * torch.tensor([[-1.0, 1.0]], dtype=dtype)
    label = torch.tensor([0])
    assert torch.equal(fgsm(network, x, label, epsilon=0.6), expected)
    generator = torch.Generator().manual_seed(2)
    moved = pgd(network, x, label, epsilon=0.6, steps=10, generator=generator)
    torch.testing.assert_close(moved, expected)
