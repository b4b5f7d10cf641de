import math

import pytest
import torch
from torch.nn import functional

from imae.curves import IMAE
from imae.errors import ArgumentError
from imae.losses import bound_logits, cap_logits, curve_loss
from imae.methods import Facts, Rows, Trimmed

NUM_ROWS, NUM_CLASSES, NUM_EPOCHS = 14, 3, 6
INPUTS = torch.randn(NUM_ROWS, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LABELS = torch.arange(NUM_ROWS) % NUM_CLASSES
RATE = 0.5


def epoch_batches(epoch):
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(epoch))
    return order.split(5)


def started(network=None, facts=None, **options):
    method = Trimmed(**{"warm_up": 1 / 3, "every": 1 / 3, **options})
    method.start(
        Facts(
            labels=LABELS,
            num_classes=NUM_CLASSES,
            num_epochs=NUM_EPOCHS,
            seed=0,
            predict=None if network is None else lambda: (INPUTS @ network).detach(),
            **(facts or {}),
        )
    )
    return method


def train(method, network, epochs):
    """Gradient descent on a linear network; gives the rows kept after each epoch."""
    kept = []
    for epoch in epochs:
        method.start_epoch(epoch)
        for row in epoch_batches(epoch):
            losses = method(Rows(INPUTS[row] @ network, LABELS[row], row))
            (gradient,) = torch.autograd.grad(losses.mean(), network)
            with torch.no_grad():
                network -= RATE * gradient
        method.share()
        method.end_epoch(epoch)
        kept.append(method.is_kept.nonzero().flatten().tolist())
    return kept


def reference(network, keep):
    """The algorithm in plain loops, with cross entropy and its gradient written out."""
    chosen, kept = list(range(NUM_ROWS)), []

    def probabilities(i):
        x = INPUTS[i].tolist()
        scores = [sum(a * w[j] for a, w in zip(x, network, strict=True)) for j in range(3)]
        total = sum(math.exp(score) for score in scores)
        return [math.exp(score) / total for score in scores]

    for epoch in range(NUM_EPOCHS):
        for batch in epoch_batches(epoch):
            rows = [i for i in batch.tolist() if i in chosen]
            gradient = [[0.0] * NUM_CLASSES for _ in range(4)]
            for i in rows:
                p = probabilities(i)
                for j in range(NUM_CLASSES):
                    for d in range(4):
                        slope = p[j] - (j == int(LABELS[i]))
                        gradient[d][j] += slope * float(INPUTS[i, d]) / len(rows)
            for d in range(4):
                for j in range(NUM_CLASSES):
                    network[d][j] -= RATE * gradient[d][j]
        if epoch + 1 in (2, 4):
            loss = [-math.log(probabilities(i)[int(LABELS[i])]) for i in range(NUM_ROWS)]
            chosen = sorted(range(NUM_ROWS), key=lambda i: loss[i])[: int(keep * NUM_ROWS)]
        kept.append(sorted(chosen))
    return kept


@pytest.mark.parametrize("keep", [0.25, 0.6])
def test_it_is_the_algorithm_of_the_paper(keep):
    network = torch.zeros(4, NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    expected = network.tolist()
    expected_kept = reference(expected, keep)
    kept = train(started(network, keep=keep), network, range(NUM_EPOCHS))
    assert kept == expected_kept
    assert len(kept[1]) == int(keep * NUM_ROWS)
    torch.testing.assert_close(network.detach(), torch.tensor(expected, dtype=torch.float64))


def test_all_rows_count_in_the_warm_up():
    method = started(keep=0.1)
    logits = torch.randn(4, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    losses = method(Rows(logits, LABELS[:4], torch.arange(4)))
    torch.testing.assert_close(
        losses, functional.cross_entropy(logits, LABELS[:4], reduction="none")
    )


def test_any_curve_can_be_trimmed():
    method = started(loss="imae:T=4")
    method.is_kept[1] = False
    logits = torch.randn(4, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    losses = method(Rows(logits, LABELS[:4], torch.arange(4)))
    expected = curve_loss(logits, LABELS[:4], IMAE(4.0), reduction="none") * 4 / 3
    expected[1] = 0
    torch.testing.assert_close(losses, expected)


def test_normalised_the_mean_weight_of_the_kept_rows_is_one():
    method = started(loss="imae:T=8", normalize="batch", bound=5.0)
    method.is_kept[1] = False
    logits = torch.randn(4, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    logits = (9 * logits).requires_grad_()
    losses = method(Rows(method.output()(logits), LABELS[:4], torch.arange(4)))
    (gradient,) = torch.autograd.grad(losses.mean(), logits)
    kept = torch.tensor([0, 2, 3])
    expected = curve_loss(
        bound_logits(logits[kept], 5.0), LABELS[kept], IMAE(8.0), normalize="batch"
    )
    torch.testing.assert_close(losses.mean(), expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, logits)[0])
    assert gradient[1].tolist() == [0, 0, 0]


def test_the_limits_of_the_logits_are_steps_of_the_model():
    logits = torch.tensor([[2.0, 0.0, 0.0], [30.0, 27.0, 0.0]])
    assert torch.equal(Trimmed(bound=5.0).output()(logits), bound_logits(logits, 5.0))
    assert torch.equal(Trimmed(cap=0.7).output()(logits), cap_logits(logits, 0.7))
    assert Trimmed().output() is None


def test_the_weight_at_chance_is_one():
    method = started(loss="imae:T=8", normalize="chance")
    rows = Rows(torch.zeros(4, NUM_CLASSES, requires_grad=True), LABELS[:4], torch.arange(4))
    (gradient,) = torch.autograd.grad(method(rows).sum(), rows.logits)
    torch.testing.assert_close(gradient.abs().sum(1), torch.ones(4))


def test_the_mean_is_over_the_kept_rows_of_all_ranks():
    # Another rank has 3 rows of which 1 is kept.
    method = started(facts={"total": lambda sums: sums + torch.tensor([1.0, 3.0])})
    method.is_kept[0] = False
    logits = torch.zeros(2, NUM_CLASSES)
    losses = method(Rows(logits, LABELS[:2], torch.arange(2)))
    assert losses.tolist() == pytest.approx([0, math.log(3) * 5 / 2])


def test_the_mean_counts_rows_as_much_as_the_data_say():
    method = started()
    method.is_kept[1] = False
    logits = torch.zeros(2, NUM_CLASSES)
    weight = torch.tensor([3.0, 1.0])
    losses = method(Rows(logits, LABELS[:2], torch.arange(2), weight=weight))
    assert float((losses * weight).sum() / weight.sum()) == pytest.approx(math.log(3))


def test_a_batch_without_kept_rows_has_neither_loss_nor_gradient():
    method = started()
    method.is_kept[:2] = False
    logits = torch.randn(2, NUM_CLASSES, requires_grad=True)
    losses = method(Rows(logits, LABELS[:2], torch.arange(2)))
    losses.sum().backward()
    assert losses.tolist() == [0, 0]
    assert logits.grad.abs().sum() == 0


def test_rows_whose_loss_rounds_to_nothing_are_still_told_apart():
    method = Trimmed(keep=0.5, warm_up=0.5)
    logits = torch.tensor([[120.0, 0.0], [150.0, 0.0], [130.0, 0.0], [0.0, 0.0]])
    labels = torch.zeros(4, dtype=torch.int64)
    method.start(Facts(labels, 2, num_epochs=2, seed=0, predict=lambda: logits))
    method.end_epoch(0)
    assert method.is_kept.tolist() == [False, True, True, False]


def test_one_row_at_least_is_kept():
    network = torch.eye(4, NUM_CLASSES, dtype=torch.float64)
    method = started(network, keep=1e-3)
    method.end_epoch(1)
    assert method.is_kept.sum() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_give_finite_losses_and_gradients(dtype):
    method = started()
    method.is_kept[2] = False
    logits = torch.tensor(
        [[1e4, -1e4, 0.0], [1e4, -1e4, 0.0], [1e4, 0.0, -1e4]], dtype=dtype, requires_grad=True
    )
    losses = method(Rows(logits, LABELS[:3], torch.arange(3)))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()


def test_restored_it_goes_on_as_it_would_have():
    network = torch.zeros(4, NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    method = started(network)
    train(method, network, range(3))
    state = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    start = network.detach().clone().requires_grad_()
    expected = train(method, network, range(3, NUM_EPOCHS))
    other = started(start)
    other.load_state_dict(state)
    assert train(other, start, range(3, NUM_EPOCHS)) == expected
    assert torch.equal(start, network)


@pytest.mark.parametrize("option", ["keep", "warm_up", "every"])
def test_options_out_of_range_are_refused(option):
    for value in (0.0, 1.01):
        with pytest.raises(ArgumentError, match=f"{option} must be in"):
            Trimmed(**{option: value})
    for value in (1e-3, 1.0):
        Trimmed(**{option: value})
    with pytest.raises(ArgumentError, match="normalize must be one of"):
        Trimmed(normalize="epoch")
    with pytest.raises(ArgumentError, match="bound must be in"):
        Trimmed(bound=0.0)
    Trimmed(normalize="batch", bound=1e-3)
    with pytest.raises(ArgumentError, match="unknown loss 'cse'; did you mean gce or cce"):
        Trimmed(loss="cse")


def test_its_text_shows_the_options():
    assert "IMAE(T=4.0), keep=0.6, warm_up=0.111111, every=0.111111" in repr(
        Trimmed(loss="imae:T=4")
    )
