import math

import pytest
import torch

from imae.errors import ArgumentError
from imae.methods import Facts, Rows, TruncatedGCEMethod

NUM_ROWS, NUM_CLASSES, NUM_EPOCHS = 12, 3, 6
INPUTS = torch.randn(NUM_ROWS, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LABELS = torch.arange(NUM_ROWS) % NUM_CLASSES
RATE = 0.5


def epoch_batches(epoch):
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(epoch))
    return order.split(5)


def started(network, **options):
    method = TruncatedGCEMethod(warm_up=1 / 3, every=1 / 3, **options)
    method.start(
        Facts(
            labels=LABELS,
            num_classes=NUM_CLASSES,
            num_epochs=NUM_EPOCHS,
            seed=0,
            predict=lambda: (INPUTS @ network).detach(),
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
        kept.append(method.is_kept.tolist())
    return kept


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def reference(network, q, k):
    """Algorithm 1 of the paper in plain loops: fit with v fixed, then choose v."""
    v, kept = [True] * NUM_ROWS, []
    for epoch in range(NUM_EPOCHS):
        for batch in epoch_batches(epoch):
            gradient = [[0.0] * NUM_CLASSES for _ in range(4)]
            for i in batch.tolist():
                if not v[i]:
                    continue
                x, y = INPUTS[i].tolist(), int(LABELS[i])
                p = softmax(
                    [sum(a * w[j] for a, w in zip(x, network, strict=True)) for j in range(3)]
                )
                for j in range(NUM_CLASSES):
                    # d/dz_j of (1 - p_y^q) / q
                    slope = -(p[y] ** q) * ((j == y) - p[j])
                    for d in range(4):
                        gradient[d][j] += slope * x[d] / len(batch)
            network = [
                [w - RATE * g for w, g in zip(*pair, strict=True)]
                for pair in zip(network, gradient, strict=True)
            ]
        if epoch + 1 in (2, 4):
            for i in range(NUM_ROWS):
                x, y = INPUTS[i].tolist(), int(LABELS[i])
                p = softmax(
                    [sum(a * w[j] for a, w in zip(x, network, strict=True)) for j in range(3)]
                )
                v[i] = (1 - p[y] ** q) / q < (1 - k**q) / q
        kept.append(list(v))
    return network, kept


@pytest.mark.parametrize(("q", "k"), [(0.7, 0.4), (1.0, 0.4)])
def test_it_is_the_alternating_search_of_the_paper(q, k):
    network = torch.zeros(4, NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    expected, expected_kept = reference(network.tolist(), q, k)
    kept = train(started(network, q=q, k=k), network, range(NUM_EPOCHS))
    assert kept == expected_kept
    assert 0 < sum(kept[1]) < NUM_ROWS
    assert kept[1] != kept[3]
    torch.testing.assert_close(network.detach(), torch.tensor(expected, dtype=torch.float64))


def test_a_pruned_row_has_the_loss_of_the_threshold_and_no_gradient():
    method = started(torch.zeros(4, NUM_CLASSES, dtype=torch.float64), q=0.5, k=0.25)
    method.is_kept[3] = False
    logits = torch.zeros(2, NUM_CLASSES, requires_grad=True)
    losses = method(Rows(logits, torch.tensor([0, 0]), torch.tensor([2, 3])))
    losses.sum().backward()
    expected = [(1 - (1 / 3) ** 0.5) / 0.5, (1 - 0.25**0.5) / 0.5]
    assert losses.tolist() == pytest.approx(expected)
    assert logits.grad[0].abs().sum() > 0
    assert logits.grad[1].tolist() == [0, 0, 0]


def test_a_row_at_the_threshold_is_pruned_and_one_above_kept():
    method = TruncatedGCEMethod(k=0.5, warm_up=0.5, every=0.5)
    logits = torch.tensor([[1e-6, 0.0], [0.0, 0.0], [-1e-6, 0.0]])
    labels = torch.zeros(3, dtype=torch.int64)
    method.start(Facts(labels, 2, num_epochs=2, seed=0, predict=lambda: logits))
    method.end_epoch(0)
    assert method.is_kept.tolist() == [True, False, False]


def test_a_search_that_would_prune_every_row_changes_nothing():
    network = torch.zeros(4, NUM_CLASSES, dtype=torch.float64)
    method = started(network)
    method.end_epoch(1)
    assert method.is_kept.all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_give_finite_losses_and_gradients(dtype):
    method = started(torch.zeros(4, NUM_CLASSES, dtype=torch.float64))
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], dtype=dtype, requires_grad=True)
    losses = method(Rows(logits, torch.tensor([0, 0]), torch.tensor([0, 1])))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    extreme = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], dtype=dtype)
    labels = torch.tensor([0, 0])
    method.start(Facts(labels, 3, num_epochs=6, seed=0, predict=lambda: extreme))
    method.end_epoch(1)
    assert method.is_kept.tolist() == [True, False]


def test_restored_it_goes_on_as_it_would_have():
    network = torch.zeros(4, NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    method = started(network, k=0.4)
    train(method, network, range(3))
    state, start = method.state_dict(), network.detach().clone().requires_grad_()
    state = {name: tensor.clone() for name, tensor in state.items()}
    expected = train(method, network, range(3, NUM_EPOCHS))
    other = started(start, k=0.4)
    other.load_state_dict(state)
    assert train(other, start, range(3, NUM_EPOCHS)) == expected
    assert torch.equal(start, network)


@pytest.mark.parametrize(
    ("option", "outside", "inside"),
    [
        ("q", [0.0, 1.01], [1e-3, 1.0]),
        ("k", [0.0, 1.0], [1e-3, 0.999]),
        ("warm_up", [0.0, 1.01], [1e-3, 1.0]),
        ("every", [0.0, 1.01], [1e-3, 1.0]),
    ],
)
def test_options_out_of_range_are_refused(option, outside, inside):
    for value in outside:
        with pytest.raises(ArgumentError, match=f"{option} must be in"):
            TruncatedGCEMethod(**{option: value})
    for value in inside:
        TruncatedGCEMethod(**{option: value})


def test_its_text_shows_the_options():
    assert "GCE(q=0.7), k=0.5, warm_up=0.7, every=0.0833333" in repr(TruncatedGCEMethod())
