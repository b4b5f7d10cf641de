"""The weight curve of any loss, measured on its gradient."""

from collections.abc import Callable

import torch
from torch import Tensor

from imae._checks import check_integer
from imae.errors import ArgumentError


def weight_curve(
    loss: Callable[[Tensor, Tensor], Tensor],
    p: Tensor | None = None,
    *,
    num_classes: int = 10,
) -> tuple[Tensor, Tensor]:
    """The weight that a loss gives to an example, as a function of its label's probability.

    Formula:

        w(p) = ||dL/dz||_1 at logits z whose softmax is p at the label and even elsewhere

    For a loss that depends on the label's probability alone this is its whole weight curve; for
    others it is the curve along evenly spread remaining probabilities.

    Args:
        loss: Called as ``loss(logits, target)`` on one row at a time, so its reduction does not
            matter; any torch loss, ours or not.
        p: Probabilities, shape (K,), strictly between 0 and 1; 99 even steps by default.
        num_classes: Number of classes, at least 2.

    Returns:
        The probabilities and the weights, both of shape (K,), float64.

    Raises:
        ArgumentError: If a probability is not strictly between 0 and 1.

    Examples:
        >>> import torch.nn.functional as F
        >>> p, w = weight_curve(F.cross_entropy, torch.tensor([0.25, 0.5]))
        >>> w                                           # 2 (1 - p)
        tensor([1.5000, 1.0000], dtype=torch.float64)

    Reference:
        Wang et al., "IMAE for Noise-Robust Learning", 2023, section 3.
    """
    check_integer("num_classes", num_classes, low=2)
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64) if p is None else p.double()
    if p.dim() != 1 or not bool(((p > 0) & (p < 1)).all()):
        raise ArgumentError(f"p must be a vector of numbers strictly between 0 and 1, got {p}")
    logits = torch.log((1 - p) / (num_classes - 1)).unsqueeze(1).repeat(1, num_classes)
    logits[:, 0] = p.log()
    target = torch.zeros(1, dtype=torch.int64)
    weights = [_gradient_norm(loss, row.unsqueeze(0), target) for row in logits]
    return p, torch.stack(weights) if weights else torch.empty_like(p)


def _gradient_norm(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor
) -> Tensor:
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(logits, target).sum(), logits)
    return gradient.abs().sum()
