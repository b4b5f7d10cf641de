import pytest
import torch

from imae.curves import CCE, IMAE, MAE, Window
from imae.errors import ArgumentError
from imae.losses import bound_logits, curve_loss
from imae.methods import CurveMethod, Facts, Rows

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 9.0, 1.0], [30.0, 0.0, -2.0], [0.1, 0.2, 0.3]])
TARGET = torch.tensor([0, 0, 0, 2])


def rows(logits=LOGITS):
    return Rows(logits, TARGET, torch.arange(4))


def gradient_norms(method, logits=LOGITS):
    logits = logits.clone().requires_grad_()
    method(rows(logits)).sum().backward()
    return logits.grad.abs().sum(1)


def test_without_options_it_is_the_loss_of_the_curve():
    expected = curve_loss(LOGITS, TARGET, IMAE(8.0), reduction="none")
    torch.testing.assert_close(CurveMethod(IMAE(8.0))(rows()), expected)


def test_a_factor_scales_every_weight_alike():
    plain, scaled = (gradient_norms(CurveMethod(MAE(), factor=each)) for each in (1.0, 4.0))
    torch.testing.assert_close(scaled, 4 * plain)
    with pytest.raises(ArgumentError, match="factor must be"):
        CurveMethod(MAE(), factor=0.0)


def test_a_window_silences_rows_outside():
    assert gradient_norms(CurveMethod(CCE(), window_high=5.0)).tolist()[2] == 0
    assert gradient_norms(CurveMethod(CCE(), window_low=-5.0)).tolist()[1] == 0
    method = CurveMethod(CCE(), window_low=-5.0, window_high=5.0)
    assert method.curve == Window(CCE(), low=-5.0, high=5.0)


@pytest.mark.parametrize("curve", [CCE(), MAE(), IMAE(8.0)])
def test_normalised_the_mean_weight_is_one(curve):
    norms = gradient_norms(CurveMethod(curve, normalize="batch"))
    assert float(norms.mean()) == pytest.approx(1, rel=1e-5)


def test_normalisation_counts_all_ranks():
    method = CurveMethod(CCE(), normalize="batch")
    facts = Facts(
        labels=TARGET,
        num_classes=3,
        num_epochs=1,
        seed=0,
        # Another rank has as many rows, of weight 3 in all.
        total=lambda sums: sums + torch.tensor([3.0, 4.0]),
    )
    alone = gradient_norms(CurveMethod(CCE()))
    method.start(facts)
    expected = alone / ((alone.sum() + 3) / 8)
    torch.testing.assert_close(gradient_norms(method), expected)


def test_a_batch_without_weight_is_left_as_it_is():
    method = CurveMethod(CCE(), window_low=100.0, normalize="batch")
    assert gradient_norms(method).tolist() == [0, 0, 0, 0]


def test_a_bound_is_put_before_the_loss():
    expected = curve_loss(bound_logits(LOGITS, 3.0), TARGET, IMAE(8.0), reduction="none")
    torch.testing.assert_close(CurveMethod(IMAE(8.0), bound=3.0)(rows()), expected)


def test_options_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="normalize must be one of"):
        CurveMethod(CCE(), normalize="epoch")
    with pytest.raises(ArgumentError, match="bound must be in"):
        CurveMethod(CCE(), bound=0.0)
    CurveMethod(CCE(), bound=1e-3)
    with pytest.raises(ArgumentError, match="low must be under high"):
        CurveMethod(CCE(), window_low=1.0, window_high=1.0)


def test_its_text_shows_the_options():
    assert "normalize='batch', bound=3.0" in repr(
        CurveMethod(IMAE(8.0), normalize="batch", bound=3.0)
    )


def test_normalisation_counts_rows_as_much_as_the_data_say():
    counts = torch.tensor([2.0, 0.0, 1.0, 1.0])
    twice = torch.tensor([0, 0, 2, 3])  # the same batch, written out
    method = CurveMethod(CCE(), normalize="batch")
    weighted = method(Rows(LOGITS, TARGET, torch.arange(4), weight=counts))
    repeated = method(Rows(LOGITS[twice], TARGET[twice], torch.arange(4)))
    torch.testing.assert_close((weighted * counts).sum(), repeated.sum())
    silent = method(Rows(LOGITS, TARGET, torch.arange(4), weight=torch.zeros(4)))
    assert silent.isfinite().all()
