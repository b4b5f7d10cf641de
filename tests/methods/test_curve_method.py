import pytest
import torch

from imae.curves import CCE, GCE, IMAE, MAE, Window
from imae.errors import ArgumentError
from imae.losses import AutoT, bound_logits, cap_logits, curve_loss
from imae.methods import METHODS, CurveMethod, Facts, Rows

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


def test_a_limit_of_the_logits_is_a_step_of_the_model():
    assert torch.equal(CurveMethod(CCE(), bound=3.0).output()(LOGITS), bound_logits(LOGITS, 3.0))
    assert torch.equal(CurveMethod(CCE(), cap=0.6).output()(LOGITS), cap_logits(LOGITS, 0.6))
    assert CurveMethod(CCE()).output() is None


@pytest.mark.parametrize("curve", [CCE(), IMAE(8.0), GCE(0.7)])
def test_normalised_at_chance_a_row_at_chance_weighs_one(curve):
    method = CurveMethod(curve, normalize="chance")
    torch.testing.assert_close(
        gradient_norms(method, torch.zeros_like(LOGITS)), torch.ones(len(LOGITS))
    )
    # And the others by the same constant, whatever else is in the batch.
    plain, scaled = gradient_norms(CurveMethod(curve)), gradient_norms(method)
    at_chance = curve.weight(torch.tensor([1 / LOGITS.shape[1]]))
    torch.testing.assert_close(scaled, plain / at_chance)


@pytest.mark.parametrize("T", [0.0, 4.0, 24.0])
def test_scaled_by_the_weight_at_one_half_no_row_weighs_more_than_one(T):
    method = CurveMethod(IMAE(T), normalize="half")
    margins = torch.linspace(-9, 9, 41)
    logits = torch.stack([margins, torch.zeros(41)], 1)
    rows = Rows(logits.requires_grad_(), torch.zeros(41, dtype=torch.int64), torch.arange(41))
    norms = torch.autograd.grad(method(rows).sum(), rows.logits)[0].abs().sum(1)
    p = margins.sigmoid()
    torch.testing.assert_close(norms, torch.exp(T * (p * (1 - p) - 0.25)))
    assert norms.max() <= 1 + 1e-6


def test_a_curve_without_weight_at_chance_is_not_divided():
    method = CurveMethod(CCE(), window_low=0.0, normalize="chance")
    assert gradient_norms(method).isfinite().all()


def test_a_cap_that_cannot_be_met_is_refused_when_the_run_starts():
    method = CurveMethod(CCE(), cap=0.2)
    with pytest.raises(ArgumentError, match="cap must be in"):
        method.start(Facts(TARGET, 4, num_epochs=1, seed=0))
    method.start(Facts(TARGET, 6, num_epochs=1, seed=0))
    with pytest.raises(ArgumentError, match="a cap or a bound, not both"):
        CurveMethod(CCE(), cap=0.5, bound=3.0)


def test_options_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="normalize must be one of"):
        CurveMethod(CCE(), normalize="epoch")
    with pytest.raises(ArgumentError, match="bound must be in"):
        CurveMethod(CCE(), bound=0.0)
    CurveMethod(CCE(), bound=1e-3)
    with pytest.raises(ArgumentError, match="low must be under high"):
        CurveMethod(CCE(), window_low=1.0, window_high=1.0)


def test_its_text_shows_the_options():
    text = repr(CurveMethod(IMAE(8.0), normalize="batch", cap=0.75))
    assert "IMAE(T=8.0), normalize='batch'" in text
    assert "CappedLogits(cap=0.75)" in text


def test_normalisation_counts_rows_as_much_as_the_data_say():
    counts = torch.tensor([2.0, 0.0, 1.0, 1.0])
    twice = torch.tensor([0, 0, 2, 3])  # the same batch, written out
    method = CurveMethod(CCE(), normalize="batch")
    weighted = method(Rows(LOGITS, TARGET, torch.arange(4), weight=counts))
    repeated = method(Rows(LOGITS[twice], TARGET[twice], torch.arange(4)))
    torch.testing.assert_close((weighted * counts).sum(), repeated.sum())
    silent = method(Rows(LOGITS, TARGET, torch.arange(4), weight=torch.zeros(4)))
    assert silent.isfinite().all()


def test_auto_is_one_choice_of_t_for_all_ranks(two_ranks):
    generator = torch.Generator().manual_seed(0)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    learned = 2 * torch.nn.functional.one_hot(target, 3)
    steps = [torch.randn(6, 3, generator=generator).add(learned).mul(3) for _ in range(30)]
    shares = (slice(0, 2), slice(2, 6))

    def trained(method, share):
        return [
            method(Rows(logits[share], target[share], torch.arange(6)[share])) for logits in steps
        ]

    def work(rank, total, gather):
        method = METHODS.build("imae_capped")
        method.start(Facts(target, 3, num_epochs=1, seed=0, total=total, gather=gather))
        return trained(method, shares[rank]), method.auto.T

    alone = METHODS.build("imae_capped")
    alone.start(Facts(target, 3, num_epochs=1, seed=0))
    whole = trained(alone, slice(0, 6))
    (first, one), (second, two) = two_ranks.run(work)
    assert one == two
    torch.testing.assert_close(one, alone.auto.T)
    assert one > 0
    for parts, expected in zip(zip(first, second, strict=True), whole, strict=True):
        torch.testing.assert_close(torch.cat(parts), expected)


def test_auto_keeps_its_window_and_its_state():
    method = CurveMethod(AutoT(0.75), window_high=0.0, cap=0.75)
    for seed in range(25):
        logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        logits += 2 * torch.nn.functional.one_hot(rows().target, 3)  # most labels are learned
        method(rows(3 * logits))
    assert isinstance(method.curve, Window)
    assert method.curve.curve.T.item() == method.auto.T.item() > 0
    other = CurveMethod(AutoT(0.75), window_high=0.0, cap=0.75)
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other(rows()), method(rows()))
