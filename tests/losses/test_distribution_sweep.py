"""Losses of the whole distribution over a sweep of logit gaps, against mpmath."""

import mpmath
import pytest
import torch

from imae.curves import MAE
from imae.losses import (
    active_negative_loss,
    asymmetric_mse,
    backward_correction,
    bootstrap_loss,
    eps_softmax_loss,
    forward_correction,
    normalized_cross_entropy,
)
from imae.losses.margin import log_probabilities

GAPS = [0.5, 3.0, 6.0, 9.0, 12.0, 15.0, 17.0, 20.0, 30.0, 45.0, 60.0, 84.0]
mpf = mpmath.mpf


def noise(num_classes):
    return torch.full((num_classes, num_classes), 0.4 / num_classes) + 0.6 * torch.eye(num_classes)


# Each the derivative by the logarithms of the probabilities; the label is class 0.
def of_nce(log_p, p):  # noqa: ARG001
    total = sum(log_p)
    return [(k == 0) / total - log_p[0] / total**2 for k in range(len(log_p))]


def of_negative(log_p, p):
    floor = mpf(-16.11809565095832)
    above = [max(floor, each) - floor for each in log_p]
    total = sum(above)
    return [
        5 * nce + (5 * (above[0] / total**2 - (k == 0) / total) if above[k] > 0 else 0)
        for k, nce in enumerate(of_nce(log_p, p))
    ]


def of_squares(a, alpha):
    def formula(log_p, p):
        nce = of_nce(log_p, p)
        return [2 * (p[k] - a * (k == 0)) * p[k] / len(p) + alpha * nce[k] for k in range(len(p))]

    return formula


def of_pushed(log_p, p):
    is_top, m = log_p[0] == max(log_p), mpf(1e5)
    inside = p[0] + m * is_top
    cross_entropy = p[0] / inside if mpmath.log(inside / (1 + m)) > -18.420680743952367 else 0
    return [-(mpf(0.01) * cross_entropy + 10 * p[0]) * (k == 0) for k in range(len(p))]


def of_bootstrap(log_p, p):
    return [-mpf(0.95) * (k == 0) - mpf(1 - 0.95) * p[k] * (log_p[k] + 1) for k in range(len(p))]


def of_forward(log_p, p):  # noqa: ARG001
    chances = [mpf(each) for each in noise(len(p))[:, 0].tolist()]
    total = mpmath.fdot(p, chances)
    return [-p[k] * chances[k] / total for k in range(len(p))]


LOSSES = {
    "nce": (normalized_cross_entropy, of_nce),
    "nce_mae": (
        lambda z, y, **o: normalized_cross_entropy(z, y, passive=MAE(), **o),
        lambda log_p, p: [each - 2 * p[0] * (k == 0) for k, each in enumerate(of_nce(log_p, p))],
    ),
    "anl": (active_negative_loss, of_negative),
    "amse": (asymmetric_mse, of_squares(30, 0)),
    "amse of 1": (lambda z, y, **o: asymmetric_mse(z, y, a=1.0, **o), of_squares(1, 0)),
    "jal": (lambda z, y, **o: asymmetric_mse(z, y, alpha=1.0, **o), of_squares(30, 1)),
    "eps_softmax": (eps_softmax_loss, of_pushed),
    "bootstrap": (bootstrap_loss, of_bootstrap),
    "forward": (
        lambda z, y, **o: forward_correction(z, y, noise(z.shape[1]), **o),
        of_forward,
    ),
    "backward": (
        lambda z, y, **o: backward_correction(z, y, torch.eye(z.shape[1]), **o),
        lambda log_p, p: [-mpf(k == 0) for k in range(len(p))],  # noqa: ARG005
    ),
}


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_exact(name, num_classes):
    loss, formula = LOSSES[name]
    logits = torch.sin(torch.arange(num_classes) * 2.3).repeat(2 * len(GAPS), 1)
    gaps = torch.tensor(GAPS)
    logits[:, 0] = logits[:, 1:].amax(1) + torch.cat([gaps, -gaps])
    logits.requires_grad_()
    loss(logits, torch.zeros(len(logits), dtype=torch.int64), reduction="sum").backward()
    for row, found in zip(logits.tolist(), logits.grad.tolist(), strict=True):
        with mpmath.workdps(60):
            z = [mpf(each) for each in row]
            rest = mpmath.log(mpmath.fsum(map(mpmath.exp, z)))
            log_p = [each - rest for each in z]
            p = list(map(mpmath.exp, log_p))
            inner = formula(log_p, p)
            exact = [each - q * sum(inner) for each, q in zip(inner, p, strict=True)]
            norm = mpmath.fsum(map(abs, exact))
            wrong = mpmath.fsum(abs(a - mpf(b)) for a, b in zip(exact, found, strict=True))
        if norm > 1e-37:  # near the smallest number there are no digits
            assert wrong <= 1e-5 * norm


def test_the_logarithms_are_those_of_the_softmax(generator):
    logits = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(log_probabilities(logits), logits.log_softmax(1))
    assert log_probabilities(torch.tensor([[7.0]])).item() == 0
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_probabilities, logits)
    assert torch.autograd.gradgradcheck(log_probabilities, logits)
