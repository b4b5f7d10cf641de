"""Adversarial perturbations of inputs, bounded in every coordinate: FGSM and PGD."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from imae.errors import ArgumentError, check_integer
from imae.losses.margin import margin, precise

Logits = Callable[[Tensor], Tensor]


def fgsm(
    network: Logits,
    inputs: Tensor,
    target: Tensor,
    *,
    epsilon: Tensor | float,
    low: Tensor | float = -math.inf,
    high: Tensor | float = math.inf,
) -> Tensor:
    """Inputs moved by one step in the direction that raises cross entropy fastest.

    Formula, with m the log-odds of the label (``margin``):
        x' = x - epsilon sign(d m(f(x), y) / dx) = x + epsilon sign(d CE(f(x), y) / dx)

    Cross entropy falls wherever m rises, so both gradients have the same signs. That of cross
    entropy is lost to rounding where the network is sure, from m = 17 on in float32; that of m
    is not.

    For a linear network this is the worst perturbation of its size: the margin of a binary
    classifier falls by exactly epsilon times the L1 norm of the difference of its two weights.

    Args:
        network: Logits of shape (B, C) for inputs of shape (B, ...), in evaluation mode.
        inputs: Shape (B, ...).
        target: True labels, shape (B,).
        epsilon: Largest change of a coordinate; a tensor that broadcasts against the inputs where
            channels have different scales.
        low: Smallest value that a coordinate may take, a number or a tensor that broadcasts.
        high: Largest such value.

    Raises:
        ArgumentError: If epsilon is negative or not finite.

    Examples:
        >>> weights = torch.tensor([[1.0, -2.0], [0.0, 0.0]])
        >>> fgsm(lambda x: x @ weights.T, torch.zeros(1, 2), torch.tensor([0]), epsilon=0.1)
        tensor([[-0.1000,  0.1000]])

    Reference:
        Goodfellow et al., "Explaining and harnessing adversarial examples", ICLR 2015.
    """
    size = _checked_size(epsilon, inputs)
    return _clipped(inputs + size * _direction(network, inputs, target), low, high)


def pgd(
    network: Logits,
    inputs: Tensor,
    target: Tensor,
    *,
    epsilon: Tensor | float,
    steps: int,
    generator: torch.Generator,
    step_size: float = 0.25,
    low: Tensor | float = -math.inf,
    high: Tensor | float = math.inf,
) -> Tensor:
    """Inputs moved by several steps of signed gradients, within epsilon of the originals.

    Formula:
        x_0 = x + u,  u uniform in [-epsilon, epsilon];
        x_{t+1} = clip(x_t - step_size epsilon sign(d m / dx), x - epsilon, x + epsilon),
        with m the log-odds of the label, as in ``fgsm``

    Args:
        network: Logits of shape (B, C) for inputs of shape (B, ...), in evaluation mode.
        inputs: Shape (B, ...).
        target: True labels, shape (B,).
        epsilon: Largest change of a coordinate, a number or a tensor that broadcasts.
        steps: Number of steps, at least 1.
        generator: Draws the start.
        step_size: Length of a step, as a share of epsilon.
        low: Smallest value that a coordinate may take, a number or a tensor that broadcasts.
        high: Largest such value.

    Raises:
        ArgumentError: If epsilon is negative or not finite, or there is no step.

    Reference:
        Madry et al., "Towards deep learning models resistant to adversarial attacks", ICLR 2018.
    """
    check_integer("steps", steps, low=1)
    size = _checked_size(epsilon, inputs)
    start = torch.rand(inputs.shape, generator=generator, dtype=inputs.dtype)
    moved = _clipped(inputs + size * (2 * start.to(inputs.device) - 1), low, high)
    for _ in range(steps):
        moved = moved + step_size * size * _direction(network, moved, target)
        moved = _clipped(_clipped(moved, inputs - size, inputs + size), low, high)
    return moved


def _direction(network: Logits, inputs: Tensor, target: Tensor) -> Tensor:
    """The sign of the gradient of cross entropy, which is that of the label's falling log-odds."""
    inputs = inputs.detach().requires_grad_()
    with torch.enable_grad():
        # Summed, so that a row's gradient does not depend on the rows beside it.
        odds = margin(precise(network(inputs)), target).sum()
        (gradient,) = torch.autograd.grad(odds, inputs)
    return -gradient.sign()


def _clipped(inputs: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    lowest, highest = (torch.as_tensor(each).to(inputs) for each in (low, high))
    return torch.maximum(torch.minimum(inputs, highest), lowest)


def _checked_size(epsilon: Tensor | float, inputs: Tensor) -> Tensor:
    size = torch.as_tensor(epsilon, dtype=inputs.dtype, device=inputs.device)
    if not bool(((size >= 0) & size.isfinite()).all()):
        raise ArgumentError(f"epsilon must be at least 0 and finite, got {epsilon}")
    return size
