import math

import pytest
import torch

from imae.errors import ArgumentError
from imae.methods import Facts, JointOptim, Restart, Rows

LABELS = torch.tensor([0, 2, 1, 2, 1])
OPTIONS = {"first_stage": 0.7, "update_from": 0.4, "average_over": 0.3}
# The first 4 are the first stage; labels change from the end of the 3rd, by the mean of 2.
NUM_EPOCHS = 6


def started(num_epochs=NUM_EPOCHS, total=lambda tensor: tensor, gather=None, **options):
    method = JointOptim(**OPTIONS | options)
    gather = gather or (lambda tensor: tensor)
    method.start(Facts(LABELS, 3, num_epochs=num_epochs, seed=0, total=total, gather=gather))
    return method


def batches(epoch):
    """All rows, in batches of three and two, in an order and with logits of this epoch."""
    generator = torch.Generator().manual_seed(epoch)
    for row in torch.randperm(5, generator=generator).split(3):
        logits = 3 * torch.randn(len(row), 3, generator=generator, dtype=torch.float64)
        yield Rows(logits.requires_grad_(), LABELS[row], row)


def run(method, epochs=range(NUM_EPOCHS), part=slice(None)):
    """Losses and gradients of each step, as the loop calls a method."""
    for epoch in epochs:
        method.start_epoch(epoch)
        for rows in batches(epoch):
            mine = Rows(rows.logits[part], rows.target[part], rows.row[part])
            losses = method(mine)
            losses.sum().backward()
            yield losses.detach(), rows.logits.grad[part]
        method.share()
        method.end_epoch(epoch)


def softmax(logits):
    top = max(logits)
    powers = [math.exp(z - top) for z in logits]
    return [power / sum(powers) for power in powers]


def reference(*, alpha, beta, is_hard):
    """Mean loss of each step, and the labels at the end, from the equations of the paper."""
    labels = [[float(k == label) for k in range(3)] for label in LABELS.tolist()]
    past, means = [], []
    for epoch in range(NUM_EPOCHS):
        seen = {}
        for rows in batches(epoch):
            p = [softmax(logits) for logits in rows.logits.tolist()]
            mean = [sum(each[k] for each in p) / len(p) for k in range(3)]
            loss = 0.0
            for row, each in zip(rows.row.tolist(), p, strict=True):
                loss -= sum(labels[row][k] * math.log(each[k]) for k in range(3)) / len(p)
                if epoch < 4:
                    loss -= beta * sum(q * math.log(q) for q in each) / len(p)
                seen[row] = each
            if epoch < 4:
                loss -= alpha * sum(math.log(mean[k]) / 3 for k in range(3))
            means.append(loss)
        past.append(seen)
        if epoch in (2, 3):
            for row in range(5):
                average = [(past[-1][row][k] + past[-2][row][k]) / 2 for k in range(3)]
                top = max(range(3), key=average.__getitem__)
                labels[row] = [float(k == top) for k in range(3)] if is_hard else average
    return means, labels


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_losses_and_labels_are_those_of_a_loop(targets):
    method = started(alpha=0.8, beta=0.4, targets=targets)
    losses = [losses.mean().item() for losses, _ in run(method)]
    means, labels = reference(alpha=0.8, beta=0.4, is_hard=targets == "hard")
    assert losses == pytest.approx(means, rel=1e-5)
    torch.testing.assert_close(method.labels, torch.tensor(labels))


def test_the_gradient_is_that_of_the_mean_loss():
    def mean(logits):
        return started(alpha=0.8, beta=0.4)(Rows(logits, LABELS, torch.arange(5))).mean()

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mean, logits)


def test_two_ranks_do_what_one_does(two_ranks):
    alone = started()
    expected = list(run(alone))

    def work(rank, total, gather):
        method = started(total=total, gather=gather)
        # One row and two, and then one row each.
        return list(run(method, part=slice(1, None) if rank else slice(0, 1))), method

    (first, method), (second, other) = two_ranks.run(work)
    for (losses, gradient), one, two in zip(expected, first, second, strict=True):
        torch.testing.assert_close(torch.cat([one[0], two[0]]), losses)
        torch.testing.assert_close(torch.cat([one[1], two[1]]), gradient)
    assert torch.equal(method.labels, other.labels)
    torch.testing.assert_close(method.labels, alone.labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    method = started()
    logits = torch.tensor([[1e4, -1e4, 0], [1e4, -1e4, 0], [0, -1e4, 0]], dtype=dtype)
    logits = logits.requires_grad_()
    losses = method(Rows(logits, LABELS[:3], torch.arange(3)))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, 1] < 0).any()  # the class that no row has is asked for


def test_a_restored_run_goes_on_as_before():
    whole, broken = started(), started()
    list(run(whole, range(3)))
    list(run(broken, range(3)))
    state = broken.state_dict()
    broken = started()
    broken.load_state_dict(state)
    rest = range(3, NUM_EPOCHS)
    for (losses, _), (again, _) in zip(run(whole, rest), run(broken, rest), strict=True):
        assert torch.equal(losses, again)
    assert torch.equal(whole.labels, broken.labels)


def test_a_row_that_is_left_out_counts_as_it_was():
    method = started()
    for epoch in range(3):
        method.start_epoch(epoch)
        method(Rows(torch.zeros(1, 3), LABELS[:1], torch.tensor([0])))
        method.share()
        method.end_epoch(epoch)
    torch.testing.assert_close(method.labels[0], torch.full((3,), 1 / 3))
    assert method.labels[1].tolist() == [0, 0, 1]


def test_the_mean_is_over_the_epochs_that_have_passed():
    method = started(average_over=1.0, update_from=0.0)
    for epoch, logit in enumerate((0.0, 100.0)):
        method.start_epoch(epoch)
        method(Rows(torch.tensor([[logit, 0.0, 0.0]]), LABELS[:1], torch.tensor([0])))
        method.end_epoch(epoch)
    torch.testing.assert_close(method.labels[0], torch.tensor([2 / 3, 1 / 6, 1 / 6]))


@pytest.mark.parametrize(("num_epochs", "epoch"), [(320, 200), (20, 12), (2, 1), (3, 2)])
def test_the_second_stage_begins_after_a_part_of_the_run(num_epochs, epoch):
    restart = started(num_epochs, first_stage=0.625).restart()
    assert isinstance(restart, Restart)
    assert (restart.epoch, restart.is_rate_constant) == (epoch, True)


def test_a_run_of_one_epoch_has_one_stage():
    assert started(1).restart() is None
    assert len(list(run(started(1), range(1)))) == 2


def test_options_out_of_range_are_refused():
    for name, outside, inside in [
        ("alpha", -1e-3, 0.0),
        ("beta", -1e-3, 0.0),
        ("first_stage", 1.0, 0.999),
        ("update_from", -1e-3, 0.0),
        ("average_over", 0.0, 1e-3),
        ("average_over", 1.001, 1.0),
        ("targets", "sharp", "hard"),
    ]:
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            JointOptim(**{name: outside})
        assert f"{name}={inside!r}" in repr(JointOptim(**{name: inside}))
    with pytest.raises(ArgumentError, match="update_from must be under first_stage"):
        JointOptim(first_stage=0.5, update_from=0.5)
    JointOptim(first_stage=0.5, update_from=0.499)


def test_rows_of_weight_0_do_not_count_in_the_mean_prediction():
    labels = torch.tensor([0, 1, 2])
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(3))
    weight = torch.tensor([1.0, 2.0, 0.0])

    def gradient(given, counts, rows):
        method = JointOptim()
        method.start(Facts(labels, 3, num_epochs=100, seed=0))
        leaf = given.clone().requires_grad_()
        losses = method(Rows(leaf, labels[rows], rows, weight=counts))
        (losses * counts).sum().backward()
        return leaf.grad

    all_rows = gradient(logits, weight, torch.arange(3))
    written_out = torch.tensor([0, 1, 1])
    expected = gradient(logits[written_out], torch.ones(3), written_out)
    torch.testing.assert_close(all_rows[0], expected[0])
    torch.testing.assert_close(all_rows[1], expected[1] + expected[2])
    assert all_rows[2].abs().sum() == 0


@pytest.mark.parametrize("weight", [[0.0, 0.0], [1.0, 0.0]])
def test_extreme_rows_of_weight_0_leave_no_nan(weight):
    labels, weight = torch.tensor([0, 1]), torch.tensor(weight)
    method = JointOptim()
    method.start(Facts(labels, 2, num_epochs=100, seed=0))
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    losses = method(Rows(logits, labels, torch.arange(2), weight=weight))
    (losses * weight).sum().backward()
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
