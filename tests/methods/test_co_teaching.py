import math

import pytest
import torch
from torch.nn import functional

from imae.errors import ArgumentError
from imae.methods import CoTeaching, Facts, Rows

NUM_ROWS, NUM_CLASSES, NUM_EPOCHS = 20, 3, 10
INPUTS = torch.randn(NUM_ROWS, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LABELS = torch.arange(NUM_ROWS) % NUM_CLASSES
RATE = 0.3


def start_weights():
    generator = torch.Generator().manual_seed(8)
    return [
        torch.randn(4, NUM_CLASSES, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(2)
    ]


def epoch_batches(epoch):
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(epoch))
    return order.split(8)


def started(gather=lambda tensor: tensor, total=lambda tensor: tensor, **options):
    method = CoTeaching(**options)
    method.start(Facts(LABELS, NUM_CLASSES, NUM_EPOCHS, seed=0, gather=gather, total=total))
    return method


def train(method, networks, epochs):
    for epoch in epochs:
        method.start_epoch(epoch)
        for row in epoch_batches(epoch):
            logits, other = (INPUTS[row] @ network for network in networks)
            losses = method(Rows(logits, LABELS[row], row, other_logits=(other,)))
            gradients = torch.autograd.grad(losses.mean(), networks)
            with torch.no_grad():
                for network, gradient in zip(networks, gradients, strict=True):
                    network -= RATE * gradient
        method.share()
        method.end_epoch(epoch)


def reference(networks, rate, num_gradual, exponent):
    """Algorithm 1 of the paper in plain loops; each network has a step of its own."""

    def loss_and_slopes(network, i):
        x, y = INPUTS[i].tolist(), int(LABELS[i])
        scores = [sum(a * w[j] for a, w in zip(x, network, strict=True)) for j in range(3)]
        total = sum(math.exp(score) for score in scores)
        p = [math.exp(score) / total for score in scores]
        return -math.log(p[y]), [p[j] - (j == y) for j in range(NUM_CLASSES)]

    def step(network, rows):
        slopes = {i: loss_and_slopes(network, i)[1] for i in rows}
        for d in range(4):
            for j in range(NUM_CLASSES):
                total = sum(slopes[i][j] * float(INPUTS[i, d]) for i in rows)
                network[d][j] -= RATE * total / len(rows)

    for epoch in range(NUM_EPOCHS):
        forget = rate * min((epoch / num_gradual) ** exponent, 1)
        for batch in epoch_batches(epoch):
            number = round((1 - forget) * len(batch))
            chosen = [
                sorted(batch.tolist(), key=lambda i, w=network: loss_and_slopes(w, i)[0])[:number]
                for network in networks
            ]
            step(networks[0], chosen[1])
            step(networks[1], chosen[0])


@pytest.mark.parametrize(("rate", "gradual", "exponent"), [(0.4, 0.5, 1.0), (0.7, 0.2, 2.0)])
def test_it_is_the_algorithm_of_the_paper(rate, gradual, exponent):
    networks = start_weights()
    expected = [network.tolist() for network in networks]
    reference(expected, rate, gradual * NUM_EPOCHS, exponent)
    method = started(rate=rate, gradual=gradual, exponent=exponent)
    train(method, networks, range(NUM_EPOCHS))
    for network, each in zip(networks, expected, strict=True):
        torch.testing.assert_close(network.detach(), torch.tensor(each, dtype=torch.float64))


def batch(row=None):
    generator = torch.Generator().manual_seed(1)
    logits, other = torch.randn(2, 10, NUM_CLASSES, generator=generator)
    row = torch.arange(10) if row is None else row
    return Rows(logits[row], LABELS[row], row + 5, other_logits=(other[row],))


def test_all_rows_count_in_the_first_epoch():
    rows = batch()
    method = started(rate=0.9)
    method.start_epoch(0)
    expected = [
        functional.cross_entropy(logits, rows.target, reduction="none")
        for logits in (rows.logits, *rows.other_logits)
    ]
    torch.testing.assert_close(method(rows), sum(expected))


def test_each_mean_counts_rows_as_much_as_the_data_say():
    rows = Rows(
        torch.zeros(4, 3),
        LABELS[:4],
        torch.arange(4),
        other_logits=(torch.zeros(4, 3),),
        weight=torch.tensor([3.0, 1.0, 5.0, 1.0]),
    )
    method = started(rate=0.5)
    method.start_epoch(9)  # keeps the first two rows
    mean = float((method(rows) * rows.weight).sum() / rows.weight.sum())
    assert mean == pytest.approx(2 * math.log(3))  # for each network that of its kept rows


def test_two_ranks_do_what_one_does_with_the_whole_batch():
    alone = started(rate=0.5)
    alone.start_epoch(9)
    expected = alone(batch())
    assert 0 < (expected > 0).sum() < 10
    found = []
    shares = torch.arange(10).split([7, 3])
    for share in shares:
        # What all ranks send, in the order of the calls of each step.
        whole = batch()
        losses = [
            functional.cross_entropy(logits, whole.target, reduction="none")
            for logits in (whole.logits, *whole.other_logits)
        ]
        answers = iter([torch.stack(losses, 1), whole.row])
        sums = iter([torch.tensor([5.0, 5.0]), torch.tensor(10.0)])
        method = started(
            rate=0.5,
            gather=lambda _, answers=answers: next(answers),
            total=lambda _, sums=sums: next(sums),
        )
        method.start_epoch(9)
        found.append(method(batch(share)))
    torch.testing.assert_close(torch.cat(found), expected)


def test_rows_of_one_loss_are_taken_in_the_order_of_the_batch():
    method = started(rate=0.5)
    method.start_epoch(9)
    rows = Rows(torch.zeros(4, 3), LABELS[:4], torch.arange(4), other_logits=(torch.zeros(4, 3),))
    assert (method(rows) > 0).tolist() == [True, True, False, False]


def test_one_row_at_least_is_kept():
    method = started(rate=0.99)
    method.start_epoch(9)
    assert (method(batch()) > 0).any()


def test_entering_an_epoch_twice_is_entering_it_once():
    method = started(gradual=1.0)
    method.start_epoch(4)
    once = method(batch())
    method.start_epoch(4)
    assert torch.equal(method(batch()), once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_give_finite_losses_and_gradients(dtype):
    method = started(rate=0.5)
    method.start_epoch(9)
    values = [[1e4, -1e4, 0.0], [1e4, -1e4, 0.0], [1e4, 0.0, -1e4]]
    logits = torch.tensor(values, dtype=dtype, requires_grad=True)
    other = torch.tensor(values, dtype=dtype, requires_grad=True)
    losses = method(Rows(logits, LABELS[:3], torch.arange(3), other_logits=(other,)))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert other.grad.isfinite().all()


def test_restored_it_goes_on_as_it_would_have():
    networks, method = start_weights(), started(gradual=1.0)
    train(method, networks, range(4))
    others = [network.detach().clone().requires_grad_() for network in networks]
    train(method, networks, range(4, NUM_EPOCHS))
    other = started(gradual=1.0)
    other.load_state_dict(method.state_dict())
    train(other, others, range(4, NUM_EPOCHS))
    assert all(torch.equal(a, b) for a, b in zip(networks, others, strict=True))


@pytest.mark.parametrize(
    ("option", "outside", "inside"),
    [
        ("rate", [-0.01, 1.0], [0.0, 0.99]),
        ("gradual", [0.0, 1.01], [1e-3, 1.0]),
        ("exponent", [0.0, math.inf], [1e-3, 100.0]),
    ],
)
def test_options_out_of_range_are_refused(option, outside, inside):
    for value in outside:
        with pytest.raises(ArgumentError, match=f"{option} must be in"):
            CoTeaching(**{option: value})
    for value in inside:
        CoTeaching(**{option: value})


def test_its_text_shows_the_options():
    assert "rate=0.2, gradual=0.25, exponent=1.0" in repr(CoTeaching(rate=0.2))


def test_rows_of_weight_0_are_neither_chosen_nor_counted():
    method = CoTeaching(rate=0.5, gradual=1.0)
    target = torch.zeros(4, dtype=torch.int64)
    method.start(Facts(target, 2, num_epochs=2, seed=0))
    method.start_epoch(2)  # half of the rows is kept
    logits = torch.tensor([[9.0, 0.0], [8.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    weight = torch.tensor([0.0, 0.0, 1.0, 1.0])  # the easiest two do not count
    losses = method(Rows(logits, target, torch.arange(4), other_logits=(logits,), weight=weight))
    own = torch.nn.functional.cross_entropy(logits[2:3], target[:1])
    assert losses.tolist() == pytest.approx([0, 0, 4 * own.item(), 0])
