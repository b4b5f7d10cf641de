"""The bound on the precision of the flagged rows."""

import numpy as np
import pytest
from mpmath import binomial, mp, mpf

from imae.audit.correct import check, draw_sample, lower_bound, read_check, save_check
from imae.audit.decisions import Decision
from imae.errors import ArgumentError, DataError


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("wrong", "rows"), [(1, 1), (1, 50), (49, 50), (96, 100), (700, 2000)])
def test_at_the_bound_so_many_wrong_rows_have_the_stated_chance(wrong, rows, confidence):
    with mp.workdps(50):
        p = mpf(lower_bound(wrong, rows, confidence=confidence))
        counts = range(wrong, rows + 1)
        chance = sum(binomial(rows, k) * p**k * (1 - p) ** (rows - k) for k in counts)
    assert float(chance) == pytest.approx(1 - confidence, rel=1e-9)


def test_the_bound_of_extreme_samples():
    assert lower_bound(0, 30) == 0
    assert lower_bound(30, 30) == pytest.approx(0.05 ** (1 / 30), rel=1e-12)


def test_the_bound_holds_as_often_as_it_says():
    counts = np.random.Generator(np.random.PCG64(3)).binomial(40, 0.8, 4000)
    bounds = {count: lower_bound(int(count), 40) for count in np.unique(counts)}
    assert np.mean([bounds[count] <= 0.8 for count in counts]) >= 0.95


@pytest.mark.parametrize(("wrong", "rows"), [(3, 2), (-1, 2), (0, 0)])
def test_impossible_counts_are_refused(wrong, rows):
    with pytest.raises(ArgumentError):
        lower_bound(wrong, rows)


def test_the_sample_is_of_flagged_rows_and_follows_its_seed(make_audit):
    audit = make_audit(400)
    first, again, other = (draw_sample(audit, 30, seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert len(set(first.tolist())) == 30
    assert audit.is_flagged[first].all()
    assert sorted(draw_sample(audit, 1000)) == np.flatnonzero(audit.is_flagged).tolist()


def test_nothing_flagged_is_one_line(make_audit):
    audit = make_audit(8)
    audit.is_flagged[:] = False
    with pytest.raises(DataError, match="no row is flagged"):
        draw_sample(audit, 5)


def test_decisions_become_a_bound_and_survive_on_disk(make_audit, tmp_path):
    audit = make_audit(400)
    sample = draw_sample(audit, 20)
    kinds = ["accept"] * 12 + ["no_class", "relabel", "keep", "skip", "flag"] + ["accept"] * 2
    labels = (audit.given + 1) % 4
    decisions = {
        row: Decision(kind, int(labels[row]), by="person")
        for row, kind in zip(sample[:19].tolist(), kinds, strict=True)
    }
    unfinished = check(audit, decisions, num_rows=20)
    assert not unfinished.is_complete
    assert "judged 19 of 20" in unfinished.sentence()
    decisions[int(sample[19])] = Decision("keep", by="person")
    done = check(audit, decisions, num_rows=20)
    assert (done.num_wrong, done.num_sampled, done.num_flagged) == (16, 20, 100)
    assert done.precision_at_least == lower_bound(16, 20)
    save_check(done, tmp_path / "check.json")
    assert read_check(tmp_path / "check.json") == done
    assert done.is_about(audit)
    audit.is_flagged[[0, 399]] = [False, True]  # as many, and others
    assert not done.is_about(audit)
    (tmp_path / "check.json").write_text('{"num_flagged": "many"}')
    with pytest.raises(DataError, match="check again"):
        read_check(tmp_path / "check.json")


def test_the_given_label_once_more_says_that_it_is_right(make_audit):
    audit = make_audit(400)
    sample = draw_sample(audit, 20)
    decisions = {
        row: Decision("relabel", int(audit.given[row]), by="person") for row in sample.tolist()
    }
    assert check(audit, decisions, num_rows=20).num_wrong == 0


def test_what_the_program_decided_is_not_judged(make_audit):
    audit = make_audit(400)
    program, person = (
        Decision("accept", int(audit.suggested[0]), by=by) for by in ("program", "a@b.c")
    )
    decisions = dict.fromkeys(range(100), program)
    found = check(audit, decisions, num_rows=20)
    assert (found.num_judged, found.num_wrong) == (0, 0)
    assert "judged 0 of 20" in found.sentence()
    assert check(audit, dict.fromkeys(decisions, person), num_rows=20).is_complete


def test_of_all_flagged_rows_nothing_is_left_to_chance(make_audit):
    audit = make_audit(40)
    decisions = {
        row: Decision("no_class", by="person") for row in np.flatnonzero(audit.is_flagged).tolist()
    }
    found = check(audit, decisions, num_rows=100)
    assert found.precision_at_least == 1
    assert found.sentence() == "A person found 10 of all 10 flagged rows wrong: 100.0% of them."
