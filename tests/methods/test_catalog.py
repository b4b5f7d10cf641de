import pytest
import torch
from torch import nn

from imae.curves import CURVES, MAE, Scale
from imae.errors import ArgumentError
from imae.losses import CappedLogits, bootstrap_loss, label_smoothing_loss, normalized_cross_entropy
from imae.methods import METHODS, Facts, Rows, TrustedRows
from imae.methods.catalog import CURVE_OPTIONS

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, 1.0]])
TARGET = torch.tensor([0, 2])
INPUTS = torch.tensor([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.5]])


def losses(name, **arguments):
    return METHODS.build(name, **arguments)(Rows(LOGITS, TARGET, torch.arange(2)))


def run_facts(method):
    """A run of two rows by linear networks, with all that a method may ask for."""
    networks = tuple(nn.Linear(4, 3) for _ in range(method.num_networks))
    return Facts(
        labels=TARGET,
        num_classes=3,
        num_epochs=10,
        seed=0,
        networks=networks,
        predict=lambda: networks[0](INPUTS).detach(),
        features=lambda rows: INPUTS[rows],
        transition=torch.eye(3) * 0.7 + 0.1,
        trusted=TrustedRows(INPUTS, TARGET),
    )


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_gives_finite_losses_and_gradients(name):
    entry = METHODS.find(name)
    arguments = {"num_classes": 3} if "num_classes" in entry.defaults else {}
    logits = LOGITS.clone().requires_grad_()
    method = METHODS.build(name, **arguments)
    method.start(run_facts(method))
    method.start_epoch(0)
    others = tuple(LOGITS.clone() for _ in range(method.num_networks - 1))
    values = method(Rows(logits, TARGET, torch.arange(2), INPUTS, INPUTS, others))
    values.sum().backward()
    assert values.shape == (2,)
    assert values.isfinite().all()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 0
    assert entry.summary


def test_every_curve_is_a_method_with_the_options():
    for curve in CURVES:
        if curve.name == "truncated_gce":  # the method of this name prunes by a schedule
            continue
        assert METHODS.find(curve.name).defaults == {**curve.defaults, **CURVE_OPTIONS}


def test_the_stable_variant_is_imae_with_two_options():
    stable = METHODS.find("imae_stable").defaults
    changed = {
        name for name, value in stable.items() if value != METHODS.find("imae").defaults[name]
    }
    assert changed == {"normalize", "bound"}
    torch.testing.assert_close(losses("imae_stable", normalize=None, bound=None), losses("imae"))


def test_losses_of_the_whole_distribution_are_those_of_the_library():
    kinds = {
        "label_smoothing": label_smoothing_loss(LOGITS, TARGET, smoothing=0.1, reduction="none"),
        "bootstrap_soft": bootstrap_loss(LOGITS, TARGET, beta=0.95, reduction="none"),
        "bootstrap_hard": bootstrap_loss(LOGITS, TARGET, beta=0.8, hard=True, reduction="none"),
        "nce_mae": normalized_cross_entropy(LOGITS, TARGET, passive=MAE(), reduction="none"),
        # Reverse cross entropy with A = -4 is twice the mean absolute error.
        "nce_rce": normalized_cross_entropy(
            LOGITS, TARGET, passive=Scale(MAE(), 2.0), reduction="none"
        ),
    }
    for name, expected in kinds.items():
        torch.testing.assert_close(losses(name), expected)


@pytest.mark.parametrize("name", [name for name in METHODS.names() if name != "imae_stable"])
def test_every_method_takes_a_cap(name):
    step = METHODS.build(name, cap=0.5).output()
    assert isinstance(step, CappedLogits)
    assert step.limit == 0.5


def test_a_cap_that_the_classes_cannot_meet_is_refused_at_the_start():
    method = METHODS.build("label_smoothing", cap=0.2)
    with pytest.raises(ArgumentError, match="cap"):
        method.start(Facts(TARGET, 4, num_epochs=2, seed=0))


def test_an_argument_that_is_not_taken_is_refused():
    with pytest.raises(ArgumentError, match="takes window_low, window_high, normalize, bound"):
        METHODS.build("cce", T=8)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("label_smoothing", {"smoothing": 2}),
        ("bootstrap_soft", {"beta": "abc"}),
        ("bootstrap_hard", {"beta": -0.1}),
        ("nce_mae", {"alpha": -1}),
        ("nce_rce", {"A": 1}),
        ("trimmed", {"loss": 3}),
        ("agce", {"q": 2000}),
        ("imae", {"T": "abc"}),
    ],
)
def test_an_argument_out_of_its_range_is_refused_before_a_run_begins(name, arguments):
    with pytest.raises(ArgumentError):
        METHODS.build(name, **arguments)


def test_a_misspelt_auto_is_named():
    with pytest.raises(ArgumentError, match="T must be a number or 'auto', got 'Auto'"):
        METHODS.build("imae_capped", T="Auto")
