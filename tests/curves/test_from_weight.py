import math

import pytest
import torch

from imae.curves import AGCE, CCE, DM, GCE, ICCE, IMAE, MAE, FromWeight

MARGINS = torch.linspace(-25, 25, 101, dtype=torch.float64)


def cce_weight(p):
    return 2 * (1 - p)


CLOSED_FORMS = [
    (CCE(), cce_weight),
    (MAE(), lambda p: 4 * p * (1 - p)),
    (GCE(q=0.7), lambda p: 2 * p**0.7 * (1 - p)),
    (AGCE(a=0.6, q=0.6), lambda p: 2 * (0.6 + p) ** -0.4 * p * (1 - p)),
    (IMAE(T=8.0), lambda p: torch.exp(8 * p * (1 - p))),
    (DM(beta=8.0, lam=0.5), lambda p: torch.exp(8 * p**0.5 * (1 - p))),
    (ICCE(T=2.0), lambda p: torch.exp(2 * (1 - p))),
]


@pytest.mark.parametrize(
    ("curve", "w"), CLOSED_FORMS, ids=lambda item: repr(item).split(" at 0x")[0][:30]
)
def test_the_loss_of_a_known_weight_is_the_known_loss_up_to_a_constant(curve, w):
    own = FromWeight(w)
    anchored = curve.value(MARGINS) - curve.value(torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(own.value(MARGINS), anchored, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(own.slope(MARGINS), curve.slope(MARGINS), rtol=1e-12, atol=1e-15)


def test_the_value_is_zero_at_one_half():
    assert FromWeight(cce_weight).value(torch.zeros(3)).tolist() == [0, 0, 0]


def test_beyond_any_margin_the_value_goes_on_with_the_last_weight():
    value = FromWeight(lambda p: 1 + p).value(torch.tensor([80.0, 180.0], dtype=torch.float64))
    assert (value[1] - value[0]).item() == pytest.approx(-100, rel=1e-14)


def test_a_weight_that_vanishes_leaves_the_value_finite_at_infinity():
    value = FromWeight(lambda p: 4 * p * (1 - p)).value(torch.tensor([1e30, math.inf]))
    torch.testing.assert_close(value, torch.tensor([-1.0, -1.0]))


def test_float32_stays_float32_and_accurate():
    value = FromWeight(cce_weight).value(MARGINS.float())
    assert value.dtype == torch.float32
    exact = CCE().value(MARGINS) - math.log(2)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)


def test_a_jump_costs_accuracy_near_it_only():
    step = FromWeight(lambda p: (p < 0.5).to(p))
    value = step.value(torch.tensor([-10.0, 10.0], dtype=torch.float64))
    torch.testing.assert_close(value, torch.tensor([5.0, 0.0], dtype=torch.float64))


def test_equal_functions_make_equal_curves():
    assert FromWeight(cce_weight) == FromWeight(cce_weight)
    assert FromWeight(cce_weight) != FromWeight(torch.exp)
