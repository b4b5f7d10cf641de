"""The noise model: what it recovers of noise that is known, and what it says of clean rows."""

import numpy as np
import pytest

from imae._draws import seeded
from imae.audit.evidence import likely_classes
from imae.audit.noise_model import (
    NoiseModel,
    contradicted_again,
    fit_noise_model,
    fit_row_noise,
    noise_rate,
    surest_rows,
    trusted_part,
)


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


def labelled(level, slope, alike, *, num_rows=6000, num_classes=5):
    """Shares of classes, given labels drawn as `RowNoise` says, and which of these are wrong."""
    draws = seeded(1)
    q = draws.dirichlet(np.full(num_classes, 0.15), num_rows)
    rows = np.arange(num_rows)
    clean = np.array([draws.choice(num_classes, p=each) for each in q])
    hardness = -(q * np.log(np.maximum(q, 1e-300))).sum(1) / np.log(num_classes)
    others = np.where(draws.random((num_rows, 1)) < alike, q, 1.0)
    others[rows, clean] = 0
    others /= others.sum(1, keepdims=True)
    mistaken = np.array([draws.choice(num_classes, p=each) for each in others])
    is_wrong = draws.random(num_rows) < 1 / (1 + np.exp(-level - slope * hardness))
    return q, np.where(is_wrong, mistaken, clean), is_wrong


@pytest.mark.parametrize(
    ("level", "slope", "alike"), [(-0.8, 0, 0), (-1.2, 2.5, 0.5), (-3, 3, 0.3), (-20, 0, 0)]
)
def test_noise_that_depends_on_the_row_is_recovered(level, slope, alike):
    q, given, is_wrong = labelled(level, slope, alike)
    classes, rows = likely_classes(q), np.arange(len(q))
    model = fit_row_noise(classes, classes, given, rows)
    found = model.wrong(classes, classes, given)
    assert found.mean() == pytest.approx(is_wrong.mean(), abs=0.03)
    for part in np.array_split(np.argsort(found), 5):
        assert found[part].mean() == pytest.approx(is_wrong[part].mean(), abs=0.06)
    if slope and alike == 0.5:  # a matrix of classes takes such mistakes for overlap
        assert fit_noise_model(classes, given).rate < is_wrong.mean() - 0.05


def test_a_large_set_is_fitted_to_a_part_of_its_rows():
    probabilities = np.full((30_000, 100), 0.01, np.float32)
    model = fit_noise_model(likely_classes(probabilities), np.zeros(30_000, np.int64))
    assert model.num_rows == 20_000


def test_few_rows_of_a_class_have_one_rate_for_all_pairs():
    sure = np.eye(3)[np.arange(300) % 3]
    given = np.where(np.arange(300) % 15 == 0, 1, np.arange(300) % 3)
    off = fit_noise_model(likely_classes(sure), given).transition[~np.eye(3, dtype=bool)]
    np.testing.assert_allclose(off, off[0])


def test_the_rate_leaves_memorised_rows_out():
    given = np.zeros(300, np.int64)
    is_unseen = np.arange(300) >= 200
    shares = np.full((300, 2), [0.98, 0.02])
    shares[200:230] = [0.02, 0.98]  # contradicted, of unseen rows only
    classes = likely_classes(shares)
    model = fit_noise_model(likely_classes(shares[200:]), given[200:])
    nothing = np.zeros(300, bool)
    assert noise_rate(model, classes, given, is_unseen, nothing) == pytest.approx(0.29, abs=0.03)
    shares[:60] = [0.02, 0.98]
    both = noise_rate(model, likely_classes(shares), given, is_unseen, nothing)
    assert both == pytest.approx(0.29, abs=0.03)


def test_a_network_that_learned_nothing_for_other_rows_is_believed_by_half():
    given, is_unseen = np.zeros(400, np.int64), np.arange(400) >= 300
    differs = np.arange(400) % 10 < np.where(is_unseen, 4, 1)
    classes = likely_classes(np.eye(2)[differs.astype(int)])
    again = contradicted_again(classes, given, is_unseen)
    assert again == pytest.approx(0.25)
    assert trusted_part(0.4, 0.0, again) == pytest.approx(0.625)
    assert trusted_part(0.4, 0.3, again) == 1  # the surest rows have wrong labels too
    assert contradicted_again(classes, given, np.ones(400, bool)) == 1
    assert contradicted_again(likely_classes(np.eye(2)[given]), given, is_unseen) == 1
    assert trusted_part(0.0, 0.0, 1.0) == 1


def test_pairs_decide_where_one_mistake_is_likely():
    def weight(chance, *, has_pairs=True):
        transition = np.array([[1 - chance, chance], [0.0, 1.0]])
        return NoiseModel(transition, 500, 0.1, has_pairs, 0.2, 0.0).pair_weight()

    assert [weight(0.1), weight(0.3), weight(0.4)] == pytest.approx([0, 0.5, 1])
    assert weight(0.4, has_pairs=False) == 0


@pytest.mark.parametrize("num_rows", [60, 200, 1000])
def test_the_range_of_clean_classes_that_overlap_begins_at_none(make_overlapping, num_rows):
    p, given, _ = make_overlapping(0.0, num_rows=num_rows, separation=1.3)
    sure = p**4 / (p**4).sum(1, keepdims=True)  # of a model that is too sure
    model = fit_noise_model(likely_classes(sure), given)
    assert model.rate > 0.05
    assert model.interval(model.rate)[0] == pytest.approx(0, abs=0.01)


def test_the_floor_of_plain_rows_is_below_the_rate_and_not_by_much(make_overlapping):
    p, given, is_wrong = make_overlapping(0.2, separation=5)
    found = surest_rows(likely_classes(p), given)
    assert 0.1 < found.floor < is_wrong.mean()
