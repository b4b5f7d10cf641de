import pytest
import torch
from torch.nn.functional import cross_entropy

from imae._draws import torch_generator
from imae.errors import ArgumentError
from imae.methods import Facts, Masking, Rows

C, N = 3, 12
LABELS = torch.tensor([0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 1, 2])
BATCH = torch.tensor([7, 2, 11, 0, 5])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


PREDICTED = draw(N, C, seed=9)


def started(structure="tridiagonal", *, gather=lambda tensor: tensor, num_epochs=4, **options):
    method = Masking(structure, **{"warm_up": 0.5, **options})
    facts = Facts(
        labels=LABELS,
        num_classes=C,
        num_epochs=num_epochs,
        seed=5,
        predict=lambda: PREDICTED,
        gather=gather,
    )
    method.start(facts)
    return method


def playing(**options):
    method = started(**options)
    method.start_epoch(2)
    return method


def rows(logits=None, row=BATCH):
    logits = draw(len(row), C, seed=1) if logits is None else logits
    return Rows(logits, LABELS[row], row)


class Reference:
    """The three players, written out step by step."""

    def __init__(self, method):
        self.generator = [method.generator.get_buffer(f"value_{k}").clone() for k in range(6)]
        self.critic = [method.critic.get_buffer(f"value_{k}").clone() for k in range(4)]
        self.squares = {}
        self.steps = {}
        self.mask = torch.tensor([1.0, 1, 0, 1, 1, 1, 0, 1, 1])
        self.step_number = 0

    def matrices(self, noise, g):
        hidden = torch.relu(noise @ g[0] + g[1])
        hidden = torch.relu(hidden @ g[2] + g[3])
        scores = hidden @ g[4] + g[5]
        return torch.stack([row.view(C, C).softmax(1) for row in scores])

    def judge(self, structure, d):
        return (torch.sigmoid(structure @ d[0] + d[1]) @ d[2] + d[3]).squeeze(1)

    def structure(self, matrices):
        return torch.stack([1 / (1 + torch.exp(-(s - 0.05) / 0.005)) for s in matrices.flatten(1)])

    def explained(self, logits, matrices, target):
        p = logits.softmax(1)
        losses = []
        for row in range(len(logits)):
            chance = sum(p[row, i] * matrices[row, i, target[row]] for i in range(C))
            losses.append(-torch.log(chance))
        return torch.stack(losses)

    def rmsprop(self, name, values, loss, rate):
        leaves = [value.clone().requires_grad_() for value in values]
        loss(leaves).backward()
        squares = self.squares.setdefault(name, [torch.zeros_like(value) for value in values])
        self.steps[name] = self.steps.get(name, 0) + 1
        for value, square, leaf in zip(values, squares, leaves, strict=True):
            square.mul_(0.9).add_(0.1 * leaf.grad**2)
            seen = 1 - 0.9 ** self.steps[name]
            value.sub_(rate * leaf.grad / (square / seen + 1e-10).sqrt())

    def step(self, logits, target, rate):
        noise = torch.randn(
            7, len(logits), 10, generator=torch_generator(5, "masking", 5 * self.step_number)
        )

        def of_generator(g):
            matrices = self.matrices(noise[0], g)
            judged = self.judge(self.structure(matrices), self.critic)
            return self.explained(logits, matrices, target).mean() - judged.mean()

        self.rmsprop("generator", self.generator, of_generator, rate)
        for k in range(1, 6):
            made = self.structure(self.matrices(noise[k], self.generator))
            self.rmsprop(
                "critic",
                self.critic,
                lambda d, made=made: (
                    self.judge(made, d).mean() - self.judge(self.mask.view(1, -1), d).mean()
                ),
                rate,
            )
        self.step_number += 1
        return self.explained(logits, self.matrices(noise[6], self.generator), target)


def assert_players_are(method, reference):
    for k, value in enumerate(reference.generator):
        torch.testing.assert_close(
            method.generator.get_buffer(f"value_{k}"), value, rtol=1e-4, atol=1e-5
        )
    for k, value in enumerate(reference.critic):
        torch.testing.assert_close(
            method.critic.get_buffer(f"value_{k}"), value, rtol=1e-4, atol=1e-5
        )


def test_the_game_is_played_as_written_out():
    method = playing(rate=0.004)
    reference = Reference(method)
    # Two of four epochs are game, a batch is 5 of 12 rows.
    rate = 0.004 * 5 / (12 * 2)
    for step in range(4):
        batch = rows(draw(5, C, seed=20 + step))
        expected = reference.step(batch.logits, batch.target, rate)
        torch.testing.assert_close(method(batch), expected, rtol=1e-4, atol=1e-5)
        assert_players_are(method, reference)


def test_a_short_game_takes_small_steps():
    method = playing(rate=1.5)
    before = method.generator.value_5.clone()
    method(rows())
    # The fit takes steps of 0.001; one of 1.5 * 5 / 24 would undo it.
    assert 0 < float((method.generator.value_5 - before).abs().max()) < 0.0011


def test_rows_of_weight_0_do_not_count_in_the_game():
    counted, repeated = playing(), playing()
    extra = torch.tensor([7, 2, 11, 3])
    logits = draw(4, C, seed=1)
    noisy = logits.clone()
    noisy[3] += 100 * draw(C, seed=2)
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0])
    counted(Rows(logits, LABELS[extra], extra, weight=weight))
    repeated(Rows(noisy, LABELS[extra], extra, weight=weight))
    for k in range(6):
        name = f"value_{k}"
        assert torch.equal(counted.generator.get_buffer(name), repeated.generator.get_buffer(name))


def test_the_network_is_trained_only_by_the_drawn_matrices():
    method, logits = playing(), draw(5, C, seed=1).requires_grad_()
    reference = Reference(method)
    method(rows(logits)).sum().backward()
    other = logits.detach().clone().requires_grad_()
    reference.step(other.detach(), LABELS[BATCH], 1e-3)
    noise = torch.randn(7, 5, 10, generator=torch_generator(5, "masking", 0))
    matrices = reference.matrices(noise[6], reference.generator)
    reference.explained(other, matrices, LABELS[BATCH]).sum().backward()
    torch.testing.assert_close(logits.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_two_ranks_do_what_one_does(two_ranks):
    logits = draw(5, C, seed=1)
    alone = playing()
    whole = alone(rows(logits))
    shares = (slice(0, 3), slice(3, 5))

    def work(rank, _, gather):
        method, own = playing(gather=gather), shares[rank]
        return method, method(rows(logits[own], BATCH[own]))

    (first, some), (second, others) = two_ranks.run(work)
    torch.testing.assert_close(torch.cat([some, others]), whole)
    for method in (first, second):
        for name, value in alone.named_buffers():
            torch.testing.assert_close(method.get_buffer(name), value)


def test_warm_up_then_a_generator_that_gives_the_estimated_matrix():
    method, batch = started(rate=0.0), rows()
    plain = cross_entropy(batch.logits, batch.target, reduction="none")
    for epoch in range(2):
        method.start_epoch(epoch)
        torch.testing.assert_close(method(batch), plain)
        method.end_epoch(epoch)
    p = PREDICTED.softmax(1)
    estimate = torch.stack([p[p[:, i].argmax()] for i in range(C)])
    method.start_epoch(2)
    made = method(batch).detach()
    expected = -(batch.logits.softmax(1) @ estimate).log().gather(1, batch.target.unsqueeze(1))
    torch.testing.assert_close(made, expected.squeeze(1), rtol=0.05, atol=0.05)
    assert not torch.allclose(made, plain, rtol=0.05, atol=0.05)


def test_the_critic_makes_the_generator_keep_to_the_structure():
    # Of the rows of class 0, 6% are labelled 2: just enough to count as a transition.
    given = torch.tensor([0] * 40 + [1] * 7 + [2] * 3 + [1] * 50 + [2] * 40 + [1] * 7 + [0] * 3)
    clean = torch.arange(3).repeat_interleave(50)
    batch = Rows(8 * torch.eye(3)[clean], given, torch.arange(150))
    corner = {}
    for structure in ("open", "tridiagonal"):
        method = Masking(structure, warm_up=0.5, rate=1.0)
        method.start(Facts(labels=given, num_classes=C, num_epochs=1000, seed=1))
        method.start_epoch(500)
        for _ in range(100):
            method(batch)
        log_s = method._log_transitions(draw(64, 10, seed=3))
        corner[structure] = float(log_s.exp()[:, 0, 2].mean())
    assert corner["tridiagonal"] < 0.03
    assert corner["open"] > 0.06


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("epoch", [0, 2])
def test_extreme_logits_give_finite_losses_and_gradients(dtype, epoch):
    method = started()
    method.start_epoch(epoch)
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype=dtype).requires_grad_()
    for _ in range(3):
        losses = method(rows(logits, torch.tensor([1, 0])))
        losses.sum().backward()
        assert losses.dtype == torch.float32
        assert losses.isfinite().all()
    assert logits.grad.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in method.buffers())


def test_half_precision_does_not_reach_the_game():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = playing()(rows())
    assert torch.equal(half, playing()(rows()))


def test_the_game_rests_in_evaluation():
    method = playing().eval()
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    assert torch.equal(method(rows()), method(rows()))
    assert all(torch.equal(before[name], buffer) for name, buffer in method.named_buffers())


def test_a_restored_method_goes_on_as_it_was():
    method = playing()
    for _ in range(3):
        method(rows())
    other = playing()
    other.load_state_dict(method.state_dict())
    for _ in range(2):
        assert torch.equal(other(rows()), method(rows()))


def test_it_has_no_parameters_for_the_optimiser_of_the_run():
    assert list(started().parameters()) == []


@pytest.mark.parametrize(
    ("epochs", "warm_up", "border"), [(2, 0.01, 1), (2, 0.99, 1), (20, 0.3, 6), (40, 0.5, 20)]
)
def test_both_parts_have_an_epoch_at_least(epochs, warm_up, border):
    method, batch = started(num_epochs=epochs, warm_up=warm_up), rows()
    method.start_epoch(border - 1)
    before = method(batch)
    method.start_epoch(border)
    assert not torch.equal(method(batch), before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"warm_up": 0.0}, r"warm_up must be in \(0, 1\)"),
        ({"warm_up": 1.0}, r"warm_up must be in \(0, 1\)"),
        ({"threshold": 0.0}, r"threshold must be in \(0, 1\)"),
        ({"threshold": 1.0}, r"threshold must be in \(0, 1\)"),
        ({"rate": -0.01}, "rate must be in"),
        ({"structure": "diagonal"}, "structure must be one of"),
        ({"structure": "column"}, "columns must be given"),
    ],
)
def test_options_out_of_range_are_refused(options, says):
    with pytest.raises(ArgumentError, match=says):
        Masking(**options)


def test_options_at_the_edge_are_taken():
    for options in ({"warm_up": 0.001}, {"warm_up": 0.999}, {"threshold": 0.001}, {"rate": 0.0}):
        Masking(**options)
    with pytest.raises(ArgumentError, match="needs at least 2 epochs"):
        started(num_epochs=1)


def test_its_text_shows_the_options():
    text = repr(Masking("column", columns=[1]))
    assert text == "Masking(structure='column', warm_up=0.25, rate=1.5)"
