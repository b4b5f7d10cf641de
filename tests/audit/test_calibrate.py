"""Probabilities of being wrong: the noise model, the monotone map, planted rows, flags."""

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit.calibrate import fit_noise_model, flag_count, monotone, planted_probability
from imae.audit.evidence import likely_classes
from imae.errors import ArgumentError


def test_the_noise_model_recovers_a_pair_transition():
    draws = seeded(1)
    clean = draws.integers(0, 3, 3000)
    flips = draws.random(3000) < np.array([0.0, 0.3, 0.0])[clean]
    given = np.where(flips, 2, clean)
    sure = np.eye(3)[clean] * 0.97 + 0.01
    model = fit_noise_model(likely_classes(sure), given)
    assert model.num_rows == 3000
    np.testing.assert_allclose(model.transition, [[1, 0, 0], [0, 0.7, 0.3], [0, 0, 1]], atol=0.04)
    low, high = model.interval(model.rate)
    assert low <= flips.mean() <= high
    wrong = model.wrong(likely_classes(sure), given)
    assert wrong.mean() == pytest.approx(model.rate, abs=1e-6)
    assert wrong[flips].min() > 0.9 > 0.1 > wrong[~flips].max()


def test_a_large_set_is_fitted_to_a_part_of_its_rows():
    probabilities = np.full((30_000, 100), 0.01, np.float32)
    model = fit_noise_model(likely_classes(probabilities), np.zeros(30_000, np.int64))
    assert model.num_rows == 20_000


def test_few_rows_of_a_class_have_one_rate_for_all_pairs():
    sure = np.eye(3)[np.arange(300) % 3]
    given = np.where(np.arange(300) % 15 == 0, 1, np.arange(300) % 3)
    off = fit_noise_model(likely_classes(sure), given).transition[~np.eye(3, dtype=bool)]
    np.testing.assert_allclose(off, off[0])


def test_monotone_equals_the_best_non_falling_fit():
    from sklearn.isotonic import IsotonicRegression

    draws = seeded(1)
    score = draws.random(300).round(2)  # with ties
    values = score + 0.3 * draws.normal(size=300)
    reference = IsotonicRegression().fit(score, values)
    np.testing.assert_allclose(monotone(score, values, score), reference.predict(score), atol=1e-9)


def test_planted_rows_calibrate_uniform_noise():
    draws = seeded(1)
    wrong = draws.random(20_000) < 0.3
    score = draws.normal(size=20_000) + 2 * wrong
    planted = draws.normal(size=2_000) + 2
    found = planted_probability(score, planted, rate=0.3)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01)):
        inside = (found >= low) & (found < high)
        assert found[inside].mean() == pytest.approx(wrong[inside].mean(), abs=0.06)
    with pytest.raises(ArgumentError, match=r"data\.planted"):
        planted_probability(score, planted[:0], rate=0.3)


def test_flags_follow_the_rate_or_the_precision():
    suspicion = np.array([0.9, 0.8, 0.7, 0.1])
    wrong = np.array([1.0, 0.9, 0.5, 0.0])
    assert flag_count(suspicion, wrong, 0.5, None) == 2
    assert flag_count(suspicion, wrong, 0.5, 0.95) == 2
    assert flag_count(suspicion, wrong, 0.5, 0.79) == 3
    assert flag_count(suspicion, wrong * 0.5, 0.5, 0.8) == 0
