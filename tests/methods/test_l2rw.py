from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from imae.errors import ArgumentError
from imae.methods import Facts, LearningToReweight, Rows, TrustedRows

NUM_ROWS, NUM_CLASSES, NUM_TRUSTED = 12, 3, 7
GENERATOR = torch.Generator().manual_seed(3)
INPUTS = torch.randn(NUM_ROWS, 4, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.arange(NUM_ROWS) % NUM_CLASSES
TRUSTED = TrustedRows(
    torch.randn(NUM_TRUSTED, 4, generator=GENERATOR, dtype=torch.float64),
    torch.arange(NUM_TRUSTED) % NUM_CLASSES,
)


class Network(nn.Module):
    """Two layers with batch normalisation between, and initial weights from a seed."""

    def __init__(self, seed=1, has_norm=True):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5) if has_norm else nn.Identity()
        self.last = nn.Linear(5, NUM_CLASSES)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())


def started(network, *, seed=0, trusted=TRUSTED, facts=None, **options):
    method = LearningToReweight(**options)
    method.start(
        Facts(
            LABELS,
            NUM_CLASSES,
            num_epochs=2,
            seed=seed,
            networks=(network,),
            trusted=trusted,
            **(facts or {}),
        )
    )
    return method


def batch(network, row):
    return Rows(network(INPUTS[row]), LABELS[row], row, INPUTS[row])


def mean_loss(network, inputs, labels, weights=None):
    losses = functional.cross_entropy(network(inputs), labels, reduction="none")
    return losses.mean() if weights is None else (weights * losses).sum()


def literal_weights(network, inputs, labels, step=1e-3, change=1e-4):
    """Weights by the paper's definition: differences of the trusted loss after a real step."""
    start = {name: each.detach().clone() for name, each in network.named_parameters()}

    def trusted_loss_after_step(epsilon):
        loss = mean_loss(network, inputs, labels, epsilon)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter -= step * gradient
            after = float(mean_loss(network, TRUSTED.inputs, TRUSTED.labels))
            for name, parameter in network.named_parameters():
                parameter.copy_(start[name])
        return after

    slopes = []
    for i in range(len(labels)):
        epsilon = torch.zeros(len(labels), dtype=torch.float64)
        epsilon[i] = change
        down = trusted_loss_after_step(-epsilon)
        slopes.append((trusted_loss_after_step(epsilon) - down) / (2 * change))
    useful = [max(-slope, 0.0) for slope in slopes]
    total = sum(useful) or 1.0
    return [each / total for each in useful]


@pytest.mark.parametrize("has_norm", [False, True])
def test_it_is_the_algorithm_of_the_paper_over_several_steps(has_norm):
    network, twin = Network(has_norm=has_norm), Network(has_norm=has_norm)
    method = started(network)
    is_useful = []
    for row in torch.arange(NUM_ROWS).split(5):
        losses = method(batch(network, row))
        expected = literal_weights(twin, INPUTS[row], LABELS[row])
        is_useful += [weight > 0 for weight in expected]
        loss = mean_loss(
            twin, INPUTS[row], LABELS[row], torch.tensor(expected, dtype=torch.float64)
        )
        torch.testing.assert_close(losses.mean(), loss, rtol=1e-5, atol=0)
        for each, value in ((network, losses.mean()), (twin, loss)):
            gradients = torch.autograd.grad(value, list(each.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(each.parameters(), gradients, strict=True):
                    parameter -= 0.5 * gradient
    assert 3 < sum(is_useful) < NUM_ROWS
    for mine, literal in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, literal, rtol=1e-4, atol=1e-7)


def test_running_statistics_and_gradients_are_left_alone():
    network = Network()
    method = started(network)
    rows = batch(network, torch.arange(6))
    before = {name: each.clone() for name, each in network.named_buffers()}
    method.weights(rows)
    assert all(torch.equal(before[name], each) for name, each in network.named_buffers())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert network.training


def test_a_network_with_frozen_parameters_is_weighted_by_the_others():
    network = Network(has_norm=False)
    network.first.requires_grad_(False)
    row = torch.arange(6)
    weights = started(network).weights(batch(network, row))
    features = network.first(INPUTS).tanh()
    trusted = network.first(TRUSTED.inputs).tanh()
    errors = network.last(features).softmax(1) - functional.one_hot(LABELS)
    of_trusted = network.last(trusted).softmax(1) - functional.one_hot(TRUSTED.labels)
    # Of a linear layer: inner product of features (and the bias's 1) times that of errors.
    agreement = ((features @ trusted.T + 1) * (errors @ of_trusted.T)).mean(1)[:6].relu()
    torch.testing.assert_close(weights, (agreement / agreement.sum()).detach())


def test_a_label_against_the_trusted_rows_counts_for_nothing():
    network = nn.Linear(4, 2).double()
    inputs = torch.ones(1, 4, dtype=torch.float64)
    trusted = TrustedRows(inputs, torch.tensor([0]))
    method = started(network, trusted=trusted)
    target = torch.tensor([1, 0, 1])
    rows = Rows(network(inputs.expand(3, 4)), target, torch.arange(3), inputs.expand(3, 4))
    assert method.weights(rows).tolist() == pytest.approx([0, 1, 0])
    only_wrong = Rows(rows.logits, torch.ones_like(target), rows.row, rows.inputs)
    losses = method(only_wrong)
    losses.sum().backward()
    assert losses.tolist() == [0, 0, 0]
    assert network.weight.grad.abs().sum() == 0


def test_the_batch_of_trusted_rows_follows_from_seed_and_step():
    network = Network()
    rows = batch(network, torch.arange(6))

    def weights(seed=0, steps=0):
        method = started(network, seed=seed, batch_size=3)
        for _ in range(steps):
            method(rows)
        return method.weights(rows)

    assert torch.equal(weights(), weights())
    assert not torch.equal(weights(), weights(steps=1))
    assert not torch.equal(weights(), weights(seed=1))


def test_two_ranks_do_what_one_does_with_the_whole_batch():
    network = Network(has_norm=False)
    whole = started(network)(batch(network, torch.arange(NUM_ROWS)))
    shares = torch.arange(NUM_ROWS).split([5, 7])
    useful = []
    for share in shares:  # what each rank has to add up: its useful rows, and how many it has

        def note(tensor):
            useful.append(float(tensor))
            return tensor

        started(network, facts={"total": note})(batch(network, share))
    sums = [useful[0] + useful[2], useful[1] + useful[3]]
    assert sums[1] == NUM_ROWS
    found = []
    for share in shares:
        answers = iter(sums)
        facts = {"total": lambda tensor, answers=answers: torch.full_like(tensor, next(answers))}
        found.append(started(network, facts=facts)(batch(network, share)))
    torch.testing.assert_close(torch.cat(found), whole)


def test_restored_it_goes_on_as_it_would_have():
    network = Network()
    method = started(network, batch_size=2)
    for _ in range(3):
        method(batch(network, torch.arange(5)))
    other = started(network, batch_size=2)
    other.load_state_dict(method.state_dict())
    row = torch.arange(5, 10)
    for _ in range(2):
        assert torch.equal(other(batch(network, row)), method(batch(network, row)))


def test_extreme_logits_give_finite_losses_and_gradients():
    network = Network(has_norm=False).float()
    with torch.no_grad():
        network.last.weight.mul_(1e4)
    trusted = TrustedRows(TRUSTED.inputs.float(), TRUSTED.labels)
    method = started(network, trusted=trusted)
    rows = Rows(network(INPUTS.float()), LABELS, torch.arange(NUM_ROWS), INPUTS.float())
    assert rows.logits.abs().max() > 1e4
    losses = method(rows)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_under_autocast_the_weights_are_computed_in_full_precision():
    network = Network().float()
    trusted = TrustedRows(TRUSTED.inputs.float(), TRUSTED.labels)
    inputs = INPUTS.float()
    plain = Rows(network(inputs), LABELS, torch.arange(NUM_ROWS), inputs)
    expected = started(network, trusted=trusted).weights(plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = Rows(network(inputs), LABELS, torch.arange(NUM_ROWS), inputs)
        losses = started(network, trusted=trusted)(rows)
        weights = started(network, trusted=trusted).weights(rows)
    assert rows.logits.dtype == torch.bfloat16
    assert losses.dtype == torch.float32
    assert torch.equal(weights, expected)


def test_without_trusted_rows_it_says_what_to_set():
    for trusted in (None, TrustedRows(TRUSTED.inputs[:0], TRUSTED.labels[:0])):
        with pytest.raises(ArgumentError, match=r"set data\.trusted to their number"):
            started(Network(), trusted=trusted)
    assert LearningToReweight.needs_trusted


def test_options_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="batch_size must be at least 1, got 0"):
        LearningToReweight(batch_size=0)
    with pytest.raises(ArgumentError, match="batch_size must be an integer"):
        LearningToReweight(batch_size=1.5)
    LearningToReweight(batch_size=1)


def test_its_text_shows_the_options():
    assert "LearningToReweight(batch_size=7)" in repr(LearningToReweight(batch_size=7))


def test_rows_count_as_much_as_the_data_say():
    network = Network(has_norm=False)  # its statistics would be those of other rows
    row = torch.arange(4)
    rows = batch(network, row)
    counts = torch.tensor([2.0, 0.0, 1.0, 1.0])
    weighted = replace(rows, weight=counts)
    found = started(network).weights(weighted)
    assert float((found * counts).sum()) == pytest.approx(1)
    repeated = started(network).weights(batch(network, row[[0, 0, 2, 3]]))
    torch.testing.assert_close(found[[0, 2, 3]], repeated[[0, 2, 3]])
