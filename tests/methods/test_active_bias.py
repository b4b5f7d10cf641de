import math
import statistics

import pytest
import torch

from imae.curves import CCE
from imae.errors import ArgumentError
from imae.losses import curve_loss
from imae.methods import ActiveBias, Facts, Rows

LABELS = torch.tensor([0, 2, 1, 2, 1])
NUM_EPOCHS = 6


def started(total=lambda tensor: tensor, **options):
    method = ActiveBias(**{"warm_up": 0.5} | options)
    method.start(Facts(LABELS, 3, num_epochs=NUM_EPOCHS, seed=0, total=total))
    return method


def batches(epoch):
    """All rows, in batches of three and two, in an order and with logits of this epoch."""
    generator = torch.Generator().manual_seed(epoch)
    for row in torch.randperm(5, generator=generator).split(3):
        logits = 3 * torch.randn(len(row), 3, generator=generator)
        yield Rows(logits.requires_grad_(), LABELS[row], row)


def run(method, epochs=range(NUM_EPOCHS), part=slice(None)):
    """Losses and gradients of each step, as the loop calls a method."""
    for epoch in epochs:
        method.start_epoch(epoch)
        for rows in batches(epoch):
            losses = method(Rows(rows.logits[part], rows.target[part], rows.row[part]))
            losses.sum().backward()
            yield losses.detach(), rows.logits.grad[part]
        method.share()
        method.end_epoch(epoch)


def probability(logits, label):
    return math.exp(logits[label]) / sum(math.exp(z) for z in logits)


def uncertainty(history, kind):
    if kind == "threshold":
        mean = statistics.fmean(history)
        return mean * (1 - mean)
    variance = statistics.pvariance(history)
    return math.sqrt(variance + variance**2 / (len(history) - 1))


@pytest.mark.parametrize("kind", ["variance", "threshold"])
@pytest.mark.parametrize("smoothness", [0.1, None])
def test_losses_are_those_of_a_loop(kind, smoothness):
    histories, expected = [[] for _ in LABELS], []
    mean = None
    for epoch in range(NUM_EPOCHS):
        for rows in batches(epoch):
            numbers = rows.row.tolist()
            weights = [1.0] * len(numbers)
            if epoch >= 3:
                constant = mean if smoothness is None else smoothness
                weights = [uncertainty(histories[row], kind) + constant for row in numbers]
                weights = [weight * len(weights) / sum(weights) for weight in weights]
            for row, logits, weight in zip(numbers, rows.logits.tolist(), weights, strict=True):
                p = probability(logits, int(LABELS[row]))
                expected.append(-weight * math.log(p))
                histories[row].append(p)
        if epoch > 0:
            mean = statistics.fmean(uncertainty(each, kind) for each in histories)
    steps = run(started(uncertainty=kind, smoothness=smoothness))
    assert torch.cat([losses for losses, _ in steps]).tolist() == pytest.approx(expected, rel=1e-3)


def test_weights_are_constants_for_the_gradient():
    method = started()
    list(run(method, range(4)))
    method.start_epoch(4)
    rows = next(iter(batches(4)))
    plain = curve_loss(rows.logits, rows.target, CCE(), reduction="none")
    losses = method(rows)
    weights = (losses / plain).detach()
    assert weights.mean().item() == pytest.approx(1, rel=1e-5)
    assert weights.std() > 0.01
    losses.sum().backward()
    gradient, rows.logits.grad = rows.logits.grad, None
    (weights * plain).sum().backward()
    torch.testing.assert_close(gradient, rows.logits.grad)


def test_two_ranks_do_what_one_does(two_ranks):
    alone = started()
    expected = list(run(alone))

    def work(rank, total, _gather):
        method = started(total)
        # One row and two, and then one row each.
        return list(run(method, part=slice(1, None) if rank else slice(0, 1))), method

    (first, method), (second, other) = two_ranks.run(work)
    for (losses, gradient), one, two in zip(expected, first, second, strict=True):
        torch.testing.assert_close(torch.cat([one[0], two[0]]), losses)
        torch.testing.assert_close(torch.cat([one[1], two[1]]), gradient)
    assert torch.equal(method.mean_uncertainty, other.mean_uncertainty)
    torch.testing.assert_close(method.history.values, alone.history.values)


@pytest.mark.parametrize("kind", ["variance", "threshold"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(kind, dtype):
    method = started(uncertainty=kind, warm_up=0.0)
    for epoch in range(6):
        method.start_epoch(epoch)
        logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, -1e4]], dtype=dtype).requires_grad_()
        losses = method(Rows(logits, LABELS[:2], torch.tensor([0, 1])))
        losses.sum().backward()
        assert losses.dtype == torch.float32
        assert losses.isfinite().all()
        assert logits.grad.isfinite().all()
        method.end_epoch(epoch)


def test_rows_of_which_nothing_is_known_weigh_one():
    method = started(warm_up=0.0)
    method.start_epoch(0)
    rows = next(iter(batches(0)))
    expected = curve_loss(rows.logits, rows.target, CCE(), reduction="none")
    torch.testing.assert_close(method(rows), expected)


def test_a_restored_run_goes_on_as_before():
    whole, broken = started(), started()
    list(run(whole, range(4)))
    list(run(broken, range(4)))
    state = broken.state_dict()
    broken = started()
    broken.load_state_dict(state)
    rest = range(4, NUM_EPOCHS)
    for (losses, _), (again, _) in zip(run(whole, rest), run(broken, rest), strict=True):
        assert torch.equal(losses, again)


def test_options_out_of_range_are_refused():
    for name, outside, inside in [
        ("uncertainty", "entropy", "threshold"),
        ("warm_up", 1.001, 1.0),
        ("warm_up", -1e-3, 0.0),
        ("smoothness", 0.0, 1e-3),
    ]:
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            ActiveBias(**{name: outside})
        assert f"{name}={inside!r}" in repr(ActiveBias(**{name: inside}))


def test_the_mean_weight_counts_rows_as_much_as_the_data_say():
    method = started()
    list(run(method, epochs=range(2)))
    method.start_epoch(NUM_EPOCHS - 1)
    (rows, _) = batches(9)
    weight = torch.tensor([2.0, 0.0, 1.0])
    history = method.history.read(rows.row)
    found = method._weights(history, weight)
    assert float((found * weight).sum() / weight.sum()) == pytest.approx(1)
