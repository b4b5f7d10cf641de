"""Probabilities of a model that ends in a cap."""

import numpy as np
import pytest
import torch

import imae
from imae.audit import audit
from imae.audit.calibrate import find_cap, stretched
from imae.errors import ArgumentError


def made_up(num_classes, *, cap=None, seed=1, num_rows=2000):
    """Logits of rows of known classes, given labels of which a fifth is wrong, and which are."""
    generator = np.random.Generator(np.random.PCG64(seed))
    clean = generator.integers(0, num_classes, num_rows)
    step = generator.integers(1, num_classes, num_rows)
    is_wrong = generator.random(num_rows) < 0.2
    given = np.where(is_wrong, (clean + step) % num_classes, clean)
    logits = 9 * np.eye(num_classes)[clean] + generator.normal(size=(num_rows, num_classes))
    logits = torch.tensor(logits * generator.gamma(2, 0.5, (num_rows, 1)))
    logits = logits if cap is None else imae.cap_logits(logits, cap)
    return logits.softmax(1).numpy(), given, is_wrong


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("cap", [0.6, 0.75, 0.9])
def test_a_cap_is_found_and_undone(num_classes, cap):
    probabilities, given, is_wrong = made_up(num_classes, cap=cap)
    assert find_cap(probabilities) == pytest.approx(cap, abs=1e-2 if num_classes == 2 else 1e-6)
    found = audit(probabilities, given=given)
    assert found.noise_rate == pytest.approx(0.2, abs=0.03)
    assert found.is_flagged[is_wrong].mean() > 0.8
    blind = audit(probabilities, given=given, cap=1.0)  # a power of them does nearly as well
    assert blind.noise_rate == pytest.approx(0.2, abs=0.06)


def test_single_precision_and_few_digits_show_the_cap_too():
    probabilities, _, _ = made_up(10, cap=0.75)
    for each in (probabilities.astype(np.float32), probabilities.round(6)):
        assert find_cap(each) == pytest.approx(0.75, abs=1e-3)
        assert stretched(each, None).dtype == each.dtype


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_other_models_are_left_alone(num_classes):
    sure, _, _ = made_up(num_classes)
    generator = np.random.Generator(np.random.PCG64(2))
    unsure = generator.dirichlet(np.full(num_classes, 5.0), 2000)
    leaves = generator.dirichlet(np.full(num_classes, 5.0), 8)[generator.integers(0, 8, 2000)]
    even = np.full((2000, num_classes), 1 / num_classes)
    for each in (sure, unsure, leaves, even):
        assert find_cap(each) is None
        assert stretched(each, None) is each


def test_the_order_of_classes_and_even_rows_are_kept():
    probabilities = np.array([[0.75, 0.15, 0.1], [1 / 3, 1 / 3, 1 / 3]])
    whole = stretched(probabilities, 0.8)
    assert whole[0].argsort().tolist() == probabilities[0].argsort().tolist()
    assert whole.sum(1) == pytest.approx(1)
    assert whole[1] == pytest.approx(1 / 3)


@pytest.mark.parametrize("cap", [0.5, 1.1, 0.7])
def test_a_cap_that_cannot_be_is_refused(cap):
    with pytest.raises(ArgumentError, match="cap"):
        stretched(np.array([[0.75, 0.25]]), cap)
