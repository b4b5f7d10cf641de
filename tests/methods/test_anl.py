import pytest
import torch
from torch import nn

from imae.curves import IMAE
from imae.errors import ArgumentError
from imae.losses import active_negative_loss
from imae.methods import METHODS, ActiveNegative, Facts, Rows
from imae.methods.catalog import AuthorsIMAE

TARGET = torch.tensor([0, 2, 1])
INPUTS = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def started(network, **options):
    method = ActiveNegative(**options)
    method.start(Facts(TARGET, 3, num_epochs=1, seed=0, networks=(network,)))
    return method


def test_the_mean_is_the_loss_and_the_absolute_weights():
    network = nn.Linear(4, 3)
    losses = started(network, delta=0.01)(Rows(network(INPUTS), TARGET, torch.arange(3)))
    penalty = 0.01 * (network.weight.abs().sum() + network.bias.abs().sum())
    expected = active_negative_loss(network(INPUTS), TARGET) + penalty
    torch.testing.assert_close(losses.mean(), expected)
    losses.mean().backward()
    plain = torch.autograd.grad(expected, network.weight)[0]
    torch.testing.assert_close(network.weight.grad, plain)


def test_frozen_weights_are_not_penalised():
    network = nn.Linear(4, 3).requires_grad_(False)
    losses = started(network, delta=10.0)(Rows(network(INPUTS), TARGET, torch.arange(3)))
    expected = active_negative_loss(network(INPUTS), TARGET, reduction="none")
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("options", [{"alpha": -1.0}, {"beta": -1.0}, {"delta": -1.0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ArgumentError, match="must be in"):
        ActiveNegative(**options)


def test_its_text_shows_the_options():
    assert "alpha=5.0, beta=5.0, delta=5e-05" in repr(ActiveNegative())


@pytest.mark.parametrize("T", [0.5, 8.0])
def test_the_authors_form_is_their_quotient_where_that_has_digits(T):
    m = torch.linspace(-30, 14, 89, dtype=torch.float64)
    p = m.sigmoid()
    # Their gradient of MAE, rescaled to the weight of IMAE, with a constant against 0 / 0.
    of_mae = 4 * p * (1 - p)
    theirs = torch.exp(T * p * (1 - p)) * of_mae / (of_mae + 4 * p * 5e-7)
    torch.testing.assert_close(-2 * AuthorsIMAE(T).slope(m), theirs, rtol=1e-6, atol=0)


def test_the_authors_form_stops_where_p_is_1_and_is_imae_elsewhere():
    weight = AuthorsIMAE(8.0).weight(torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64))
    expected = IMAE(8.0).weight(torch.tensor([0.0, 0.3], dtype=torch.float64))
    torch.testing.assert_close(weight[:2], expected, rtol=1e-6, atol=0)
    assert weight[2].item() == 0
    m = torch.tensor([-50.0, 0.3, 20.0, 60.0], requires_grad=True, dtype=torch.float64)
    torch.autograd.gradcheck(AuthorsIMAE(8.0).value, m)


def test_the_authors_form_divides_by_the_summed_weight_of_the_batch():
    logits = (3 * torch.randn(3, 3, generator=torch.Generator().manual_seed(2))).requires_grad_()
    method = METHODS.build("imae_authors", T=8.0)
    (gradient,) = torch.autograd.grad(method(Rows(logits, TARGET, torch.arange(3))).mean(), logits)
    assert gradient.abs().sum().item() == pytest.approx(1, rel=1e-5)
