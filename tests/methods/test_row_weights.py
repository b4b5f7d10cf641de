"""Rows of weight 0 are as absent to every method that takes a statistic of all rows."""

import math

import numpy as np
import pytest
import torch

from imae.methods import METHODS, Facts, Rows, masking
from imae.methods.correction import log_confusion

NUM_CLASSES = 3
NUM_EPOCHS = 8


def drawn(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


REAL = {"logits": 2 * drawn(40, NUM_CLASSES), "labels": torch.arange(40) % NUM_CLASSES}
# Rows that would decide: very sure, all of one label, and some of them no numbers.
ODD = {"logits": 9 * drawn(60, NUM_CLASSES, seed=1), "labels": torch.zeros(60, dtype=torch.int64)}
ODD["logits"][::7] = math.nan


def facts_of(with_odd, weights=None):
    parts = (REAL, ODD) if with_odd else (REAL,)
    labels = torch.cat([part["labels"] for part in parts])
    logits = torch.cat([part["logits"] for part in parts])
    counts = torch.ones(40) if weights is None else weights
    return Facts(
        labels,
        NUM_CLASSES,
        NUM_EPOCHS,
        0,
        predict=lambda: logits,
        features=lambda rows: logits[rows],
        weights=torch.cat([counts, torch.zeros(len(labels) - 40)]) if with_odd else weights,
    )


def trained(name, with_odd, weights=None, **options):
    """The method after some steps and epoch ends, with and without the rows of weight 0."""
    facts = facts_of(with_odd, weights)
    method = METHODS.build(name, **options)
    method.start(facts)
    for epoch in range(6):
        method.start_epoch(epoch)
        logits = facts.predict() * (1 + epoch % 2)
        losses = method(Rows(logits, facts.labels, torch.arange(len(logits)), weight=facts.weights))
        assert bool(losses[:40].isfinite().all())
        method.share()
        method.end_epoch(epoch)
    return method, losses[:40]


def cut(value):
    return value[:40] if value.dim() and len(value) == 100 else value


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("trimmed", {"keep": 0.6, "warm_up": 0.25, "every": 0.25}),
        ("truncated_gce", {"warm_up": 0.25, "every": 0.25}),
        ("s_adaptation", {}),
        ("active_bias", {}),
        ("forward", {"matrix": "estimate"}),
        ("backward", {"matrix": "estimate"}),
        ("joint_optim", {}),
    ],
)
def test_rows_without_weight_decide_nothing(name, options):
    method, losses = trained(name, True, **options)
    expected, of_real = trained(name, False, **options)
    torch.testing.assert_close(losses, of_real)
    state = method.state_dict()
    for key, value in expected.state_dict().items():
        if key not in ("history", "labels"):  # of every row, and compared by the losses
            torch.testing.assert_close(cut(state[key]), value, equal_nan=True)


def test_masking_fits_and_plays_without_them(monkeypatch):
    monkeypatch.setattr(masking, "_FIT_STEPS", 50)  # enough to differ if a row counted
    method, _ = trained("masking", True)
    assert all(bool(value.isfinite().all()) for value in method.state_dict().values())
    expected = METHODS.build("masking")
    expected.start(facts_of(False))
    of_odd = METHODS.build("masking")
    of_odd.start(facts_of(True))
    for each in (expected, of_odd):
        each.end_epoch(1)  # the fit, at the end of the warm-up
    for key, value in expected.state_dict().items():
        assert torch.equal(of_odd.state_dict()[key], value)


def test_d2l_measures_rows_that_count():
    seen = []
    facts = facts_of(True)
    watched = Facts(
        facts.labels,
        NUM_CLASSES,
        NUM_EPOCHS,
        0,
        networks=(torch.nn.Linear(1, 1),),
        features=lambda rows: (seen.append(rows), drawn(len(rows), 4))[1],
        weights=facts.weights,
    )
    method = METHODS.build("d2l")
    method.start(watched)
    method.start_epoch(0)
    assert sorted(seen[0].tolist()) == list(range(40))


def test_a_weight_of_two_is_a_row_twice():
    weights = torch.ones(40)
    weights[:10] = 2
    logits, labels = REAL["logits"], REAL["labels"]
    doubled = torch.cat([logits, logits[:10]]), torch.cat([labels, labels[:10]])
    torch.testing.assert_close(
        log_confusion(logits, labels, NUM_CLASSES, weights), log_confusion(*doubled, NUM_CLASSES)
    )
    method, _ = trained("active_bias", False, weights)
    memory = method._uncertainty(method.history.values)
    expected = (memory.sum() + memory[:10].sum()) / 50
    torch.testing.assert_close(method.mean_uncertainty, expected)


def test_a_label_that_no_counted_row_has_may_be_impossible():
    matrix = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).tolist()
    labels = torch.tensor([0, 1, 2])
    weights = torch.tensor([1.0, 1.0, 0.0])
    METHODS.build("forward", matrix=matrix).start(Facts(labels, 3, 4, 0, weights=weights))
    with pytest.raises(ValueError, match="label 2 no chance from any class, but training row 2"):
        METHODS.build("forward", matrix=matrix).start(Facts(labels, 3, 4, 0))


def test_facts_without_any_weight_are_of_all_rows():
    facts = Facts(torch.tensor([0, 1]), 2, 4, 0, weights=torch.zeros(2))
    assert facts.counted.tolist() == [0, 1]
    assert facts.counts.tolist() == [1, 1]


@pytest.mark.parametrize("normalize", ["batch", "chance", "half"])
def test_a_row_that_is_no_number_and_does_not_count_is_not_normalised_by(normalize):
    logits = torch.tensor([[1.0, 0.0], [math.nan, 0.0]])
    rows = Rows(logits, torch.tensor([0, 0]), torch.arange(2), weight=torch.tensor([1.0, 0.0]))
    method = METHODS.build("gce", normalize=normalize)
    assert method(rows)[0].isfinite()


def test_a_class_that_is_impossible_leaves_joint_optimisation_finite():
    method = METHODS.build("joint_optim")
    labels = torch.tensor([0, 1])
    method.start(Facts(labels, 3, 320, 0))
    logits = torch.tensor([[1.0, 0.0, -math.inf], [0.0, 2.0, 1.0]], requires_grad=True)
    losses = method(Rows(logits, labels, torch.arange(2)))
    losses.sum().backward()
    assert bool(losses.isfinite().all())
    assert bool(logits.grad.isfinite().all())
