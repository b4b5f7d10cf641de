"""A bound on the norm of logit vectors, usable before any loss."""

import torch
from torch import Tensor

from imae._checks import check_interval


def bound_logits(logits: Tensor, norm: float) -> Tensor:
    """Logits rescaled so that no vector of them is longer than ``norm``.

    Formula:

        z min(1, norm / ||z||_2)

    Directions are kept: single logits are never cut. It bounds every margin by about twice the
    norm, so a loss whose weight does not vanish at p = 1 can no longer drive logits off to
    infinity; at p = 0 and p = 1 the push on the length of the vector is taken away, the push on
    its direction stays. A vector within the bound passes unchanged, gradient included.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        norm: Largest length allowed, positive.

    Returns:
        Same shape and dtype.

    Raises:
        ArgumentError: If ``norm`` is not positive.

    Examples:
        >>> bound_logits(torch.tensor([[6.0, 8.0], [0.3, 0.4]]), norm=5.0)
        tensor([[3.0000, 4.0000], [0.3000, 0.4000]])
    """
    check_interval("norm", norm, low=0, open_low=True)
    dim = min(1, logits.dim() - 1)
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    # A vector is scaled by its largest entry first: squares of large logits would overflow.
    largest = wide.detach().abs().amax(dim, keepdim=True)
    unit = wide / largest.masked_fill(largest == 0, 1)
    length = torch.linalg.vector_norm(unit, dim=dim, keepdim=True)
    is_long = largest * length.detach() > norm
    shrunk = unit * (norm / length.masked_fill(~is_long, 1))
    return torch.where(is_long, shrunk, wide).to(logits.dtype)
