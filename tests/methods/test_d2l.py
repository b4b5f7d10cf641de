import math
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

from imae.errors import ArgumentError
from imae.methods import D2L, Facts, Rows
from imae.methods.targets import intrinsic_dimensions

LABELS = torch.arange(200) % 3
# Of the features before each epoch; the jump is before epoch 9, after a warm-up of 2 and 5 more.
PLANNED = [9, 4, 5, 3, 4, 3, 4, 3, 3, 8, 4, 6]
TURN = 9


class Run:
    """A network whose features have the dimensions that are planned, and whose weights move."""

    def __init__(self, planned=PLANNED, **options):
        self.network = nn.Linear(2, 3)
        self.planned = planned
        self.epoch = 0
        self.asked = []
        self.method = D2L(**{"warm_up": 0.17} | options)
        self.method.start(
            Facts(
                LABELS,
                3,
                num_epochs=len(planned),
                seed=1,
                networks=(self.network,),
                features=self.features,
            )
        )

    def features(self, rows):
        self.asked.append(rows.tolist())
        generator = torch.Generator().manual_seed(self.epoch)
        points = torch.rand(len(LABELS), 12, generator=generator)
        return points[rows, : self.planned[self.epoch]]

    def weights(self):
        return self.network.weight.detach().clone()

    def train(self, epochs):
        """Weights before and after each epoch, and the part that labels have in it."""
        for self.epoch in epochs:
            self.method.start_epoch(self.epoch)
            alpha, before = self.method.alpha, self.weights()
            with torch.no_grad():
                self.network.weight += 1
            self.epoch += 1
            self.method.end_epoch(self.epoch - 1)
            yield alpha, before, self.weights()


def dimension_by_loop(points, place, number):
    distances = sorted(math.dist(points[place], each) for each in points)[1 : number + 1]
    return -len(distances) / sum(math.log(r / distances[-1]) for r in distances)


def test_dimensions_are_those_of_a_loop():
    points = torch.rand(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for number in (5, 29, 40):
        expected = [dimension_by_loop(points.tolist(), place, number) for place in range(30)]
        assert intrinsic_dimensions(points, number).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_dimensions_are_near_those_of_the_space(dimension):
    points = torch.rand(800, dimension, generator=torch.Generator().manual_seed(0))
    embedded = points @ torch.ones(dimension, 9).triu()
    assert intrinsic_dimensions(embedded, 20).mean().item() == pytest.approx(dimension, rel=0.2)


def test_points_that_coincide_have_no_dimension():
    assert intrinsic_dimensions(torch.zeros(5, 3), 2).tolist() == [0] * 5
    pairs = torch.tensor([[0.0], [0.0], [3.0], [3.0]])
    assert intrinsic_dimensions(pairs, 2).tolist() == [0] * 4
    assert intrinsic_dimensions(torch.eye(4), 3).tolist() == [math.inf] * 4
    assert intrinsic_dimensions(torch.zeros(1, 3), 2).isnan().all()


def test_the_turning_point_and_the_labels_part_are_those_of_a_loop():
    run = Run()
    steps = list(run.train(range(12)))
    measured = run.method.dimensions
    assert len(measured) == 12  # none after the last epoch
    turn, expected = None, []
    for epoch in range(12):
        window = measured[max(0, epoch - 5) : epoch]
        is_late = epoch + 1 > 2 + 5
        if turn is None and is_late:
            rise = measured[epoch] - statistics.fmean(window)
            turn = epoch if rise > 2 * statistics.pstdev(window) else None
        lowest = min(measured[: epoch + 1])
        part = 1.0 if turn is None else math.exp(-epoch / 12 * measured[epoch] / lowest)
        expected.append(part)
    assert run.method.turning_point == turn == TURN
    assert [alpha for alpha, _, _ in steps] == pytest.approx(expected)


def test_at_the_turning_point_the_network_goes_back_an_epoch():
    run = Run()
    for epoch, (_, before, after) in enumerate(run.train(range(12))):
        assert torch.equal(after, before if epoch == TURN - 1 else before + 1)


def test_a_run_that_is_lengthened_measures_every_epoch():
    whole, run = Run(), Run()
    list(whole.train(range(12)))
    run.method.facts = replace(run.method.facts, num_epochs=8)
    list(run.train(range(8)))
    assert len(run.method.dimensions) == 8  # none after the last epoch
    run.method.facts = replace(run.method.facts, num_epochs=12)
    list(run.train(range(8, 12)))
    assert run.method.dimensions == whole.method.dimensions
    assert run.method.turning_point == whole.method.turning_point == TURN


def test_an_early_rise_is_no_turning_point():
    planned = [3, 3, 4, 3, 3, 3, 9, 3, 3, 3]
    run = Run(planned, warm_up=0.2)
    list(run.train(range(10)))
    assert run.method.turning_point is None
    run = Run(planned, warm_up=0.1)
    list(run.train(range(10)))
    assert run.method.turning_point == 6


def test_labels_are_mixed_with_the_most_likely_class():
    run = Run()
    list(run.train(range(11)))
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)
    alpha = run.method.alpha
    assert 0.1 < alpha < 0.7
    losses = run.method(Rows(logits, torch.tensor([0, 2]), torch.arange(2)))
    for loss, row, label in zip(losses, logits.tolist(), (0, 2), strict=True):
        log_p = [z - math.log(sum(map(math.exp, row))) for z in row]
        expected = -alpha * log_p[label] - (1 - alpha) * max(log_p)
        assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    run = Run()
    list(run.train(range(11)))
    logits = torch.tensor([[1e4, -1e4, 0], [-1e4, 1e4, 1e4]], dtype=dtype).requires_grad_()
    losses = run.method(Rows(logits, LABELS[:2], torch.arange(2)))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()


def test_rows_are_drawn_by_seed_and_epoch():
    one, two = Run(), Run()
    list(one.train(range(3)))
    list(two.train(range(3)))
    assert one.asked == two.asked
    assert sorted(one.asked[0]) == list(range(200))
    assert one.asked[0] != one.asked[1]


def test_points_that_coincide_are_left_out_of_the_mean():
    one, other = Run([3, 3]), Run([3, 3])
    features = other.features

    def with_twins(rows):
        return torch.where((rows < 4).unsqueeze(1), 0.5, features(rows))

    other.method.facts = replace(other.method.facts, features=with_twins)
    for run in (one, other):
        list(run.train(range(1)))
    plain, twins = one.method.dimensions[-1], other.method.dimensions[-1]
    parts = torch.tensor(other.asked[-1]).split(128)
    found = [intrinsic_dimensions(with_twins(part), other.method.neighbours) for part in parts]
    known = torch.cat(found)
    assert (known == 0).any()
    assert twins == pytest.approx(float(known[known > 0].mean()))
    assert twins != plain


def test_features_without_an_estimate_repeat_the_last_one():
    run = Run([0, 0, 3, 0])  # features in no dimension all coincide
    list(run.train(range(4)))
    first, second, third, last = run.method.dimensions
    assert (first, second) == (1, 1)
    assert last == third > 1


@pytest.mark.parametrize("stop", [1, 5, TURN - 1, TURN, 10])
def test_a_restored_run_goes_on_as_before(stop, tmp_path):
    whole, broken, resumed = Run(), Run(), Run()
    list(whole.train(range(12)))
    list(broken.train(range(stop)))
    torch.save(broken.method.state_dict(), tmp_path / "state.pt")
    resumed.network.load_state_dict(broken.network.state_dict())
    resumed.method.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    before = resumed.weights()
    list(resumed.train(range(stop, 12)))
    assert resumed.method.dimensions == whole.method.dimensions
    assert resumed.method.turning_point == whole.method.turning_point
    moved = 12 - stop - (stop < TURN)
    torch.testing.assert_close(resumed.weights(), before + moved)


def test_entering_an_epoch_again_changes_nothing():
    run = Run()
    list(run.train(range(2)))
    run.method.start_epoch(0)
    run.method.start_epoch(2)
    assert len(run.method.dimensions) == 3


def test_options_out_of_range_are_refused():
    for name, outside, inside in [
        ("neighbours", 1, 2),
        ("warm_up", -1e-3, 0.0),
        ("warm_up", 1.001, 1.0),
        ("window", 1, 2),
    ]:
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            D2L(**{name: outside})
        assert f"{name}={inside!r}" in repr(D2L(**{name: inside}))
