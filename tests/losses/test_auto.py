"""T that follows the training, against the rule written out in plain Python."""

import copy
import math
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import imae
from imae.curves import IMAE
from imae.errors import ArgumentError
from imae.losses import AutoT, IMAELoss, cap_logits, curve_loss

C = 4


class Reference:
    """The rule, a row and a step at a time."""

    def __init__(self, cap):
        self.cap, self.n = cap, 0
        self.a = self.against = self.agreeing = self.low = self.peak = self.gained = 0.0

    def unseen(self, logits, target):
        low = [
            float(y in sorted(range(C), key=lambda each: -z[each])[C // 2 :])
            for z, y in zip(logits.tolist(), target.tolist(), strict=True)
        ]
        share = sum(low) / len(low)
        error = math.sqrt(share * (1 - share) / len(low))
        agreement = (logits.argmax(1) == target).double().mean().item()
        known = (agreement - 2 * share / C) / (1 - 2 * share)
        memorised = 2 * (share - error) - 2 * self.low
        self.gained = 200 * max(0.0, memorised) if known >= 0.72 else 0.0

    def step(self, logits, target):
        hits, against, agreeing, low = [], [], [], []
        for z, y in zip(logits.tolist(), target.tolist(), strict=True):
            exponentials = [math.exp(each - max(z)) for each in z]
            p = [each / sum(exponentials) for each in exponentials]
            q = (max(p) - 1 / C) / (self.cap - 1 / C)
            hit = p.index(max(p)) == y
            hits.append(float(hit))
            against.append(0.0 if hit else q)
            agreeing.append(q if hit else 0.0)
            low.append(float(y in sorted(range(C), key=lambda each: -z[each])[C // 2 :]))
        self.n += 1
        k = min(0.98, 1 - 1 / self.n)
        self.a = k * self.a + (1 - k) * sum(hits) / len(hits)
        self.against = k * self.against + (1 - k) * sum(against) / len(hits)
        self.agreeing = k * self.agreeing + (1 - k) * sum(agreeing) / len(hits)
        self.low = k * self.low + (1 - k) * sum(low) / len(hits)
        d = 1 - self.a
        s = max(0.0, self.against) / (d + 0.005)
        s_a = max(0.0, self.agreeing) / (self.a + 0.005)
        r = min(1.0, s / max(s_a, 1e-6))
        g = min(1.0, max(0.0, 20 * (self.a - 1 / C) / (1 - 1 / C)))
        u = 2 * self.low
        e = 0.5 / math.sqrt(len(hits) * min(self.n, 99))
        predicted = (self.a - u / C - e) / (1 - min(u, 1) + 2 * e)
        learned = min(1.0, max(0.0, (predicted - 0.3) / 0.4))
        share = (self.a - u / C) / (1 - u) if u < 1 else 0.0
        limit = min(24.0, max(4.0, 4 + 20 * (share - 0.68) / 0.1))
        now = min(24 * learned * r * math.sqrt(s * d * g), limit)
        self.peak = max(self.peak, now) if self.n > 21 else now
        return min(40.0, self.peak + self.gained)


def batches(number, size=16):
    """Logits that grow sharper, and labels of which a third is wrong."""
    generator = torch.Generator().manual_seed(3)
    for step in range(number):
        truth = torch.randint(C, (size,), generator=generator)
        wrong = torch.rand(size, generator=generator) < 1 / 3
        other = (truth + torch.randint(1, C, (size,), generator=generator)) % C
        logits = torch.randn(size, C, generator=generator)
        logits[torch.arange(size), truth] += 3 + 0.1 * step
        yield logits, torch.where(wrong, other, truth)


@pytest.mark.parametrize("cap", [1.0, 0.75])
def test_it_is_the_rule_written_out(cap):
    auto, reference = AutoT(cap).double(), Reference(cap)
    seen = []
    for logits, target in batches(60):
        logits = logits if cap == 1.0 else cap_logits(logits, cap)
        seen.append(float(auto.observe(logits, target)))
        assert seen[-1] == pytest.approx(reference.step(logits, target), rel=1e-4, abs=1e-6)
    assert seen[20:] == sorted(seen[20:])  # never falls after the warm-up
    assert seen[:20] != sorted(seen[:20])
    assert 0 < seen[-1] < 20


def likelier(logits, target):
    """How many classes are likelier than the label."""
    return (logits > logits.gather(1, target.unsqueeze(1))).sum(1)


@pytest.mark.parametrize("is_by_numbers", [True, False])
def test_what_it_gains_from_memorised_labels_is_the_rule_written_out(is_by_numbers):
    auto, reference = AutoT().double(), Reference(1.0)
    if not is_by_numbers:
        auto._follow = auto._follow_tensors
    gained = []
    for step, (logits, target) in enumerate(batches(60)):
        is_memorised = torch.arange(len(target)) % 2 < step // 20  # none, a half, a half
        logits[is_memorised, target[is_memorised]] += 20
        found = float(auto.observe(logits, target))
        assert found == pytest.approx(reference.step(logits, target), rel=1e-4, abs=1e-6)
        if step % 10 == 9:
            unseen = next(batches(1, size=400))
            auto.observe_unseen(likelier(*unseen), C)
            reference.unseen(*unseen)
            gained.append(float(auto.gained))
            assert gained[-1] == pytest.approx(reference.gained, rel=1e-4, abs=1e-5)
    assert gained[1] < gained[-1]
    assert gained[-1] > 2


def test_t_rises_while_labels_are_memorised_and_falls_again():
    auto = AutoT()
    honest = [drawn(2000, 10, accuracy=0.8, rate=0.4, seed=seed) for seed in range(30)]
    for logits, target in honest:
        auto.observe(logits, target)
    before, unseen = auto.T.item(), likelier(*drawn(9000, 10, accuracy=0.8, rate=0.4, seed=99))
    auto.observe_unseen(unseen, 10)
    assert auto.observe(*honest[0]).item() == pytest.approx(before, abs=0.1)  # nothing memorised
    for logits, target in honest:
        logits = logits.clone()
        logits[::3, :].scatter_(1, target[::3, None], 40.0)
        auto.observe(logits, target)
    auto.observe_unseen(unseen, 10)
    assert auto.observe(*honest[0]).item() > before + 5
    assert auto.T.item() <= 40
    for _ in range(9):
        for logits, target in honest:
            auto.observe(logits, target)
    auto.observe_unseen(unseen, 10)
    assert auto.observe(*honest[0]).item() == pytest.approx(before, abs=0.5)


def test_two_classes_no_rows_and_right_labels_change_nothing():
    auto = AutoT()
    auto.observe_unseen(torch.ones(50), 2)
    auto.observe_unseen(torch.ones(0), 10)
    assert auto.gained.item() == 0
    auto.observe_unseen(torch.tensor([9, 0, 0, 0]).repeat(20), 10)
    assert auto.gained.item() > 0
    auto.observe_unseen(torch.zeros(50), 10)  # such as rows whose labels were checked
    assert auto.gained.item() == 0


def test_a_model_that_has_not_learned_unseen_rows_gains_nothing():
    learned, new = AutoT(), AutoT()
    for seed in range(30):  # by heart: right labels too
        logits, target = drawn(2000, 10, accuracy=0.8, rate=0.4, seed=seed)
        logits[::2].scatter_(1, target[::2, None], 40.0)
        learned.observe(logits, target)
        new.observe(logits, target)
    learned.observe_unseen(likelier(*drawn(9000, 10, accuracy=0.8, rate=0.4, seed=99)), 10)
    new.observe_unseen(likelier(*drawn(9000, 10, accuracy=0.5, rate=0.4, seed=99)), 10)
    assert learned.gained.item() > 10
    assert new.gained.item() == 0


def test_the_state_of_a_version_without_a_gain_is_taken():
    auto = AutoT()
    old = {"T": torch.tensor(7.0), "means": torch.zeros(4), "num_steps": torch.tensor(30)}
    auto.load_state_dict(old)
    assert (auto.peak.item(), auto.gained.item()) == (7.0, 0.0)


def test_labels_that_agree_and_chance_give_no_weight_to_uncertain_rows():
    right, random = AutoT(), AutoT()
    target = torch.arange(C).repeat(4)
    sharp = 9.0 * torch.nn.functional.one_hot(target, C)
    for _ in range(30):
        right.observe(sharp, target)
        random.observe(torch.roll(sharp, 1, 1), target)  # sure, and always contradicted
    assert right.T.item() == pytest.approx(0, abs=0.05)
    assert random.T.item() == 0


def drawn(num_rows, num_classes, accuracy, rate, seed=0):
    """Sure predictions that are right this often, ranked by closeness, and labels drawn evenly."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(num_classes, (num_rows,), generator=generator)
    # The truth is the first class with this probability, else the second or third.
    place = torch.where(
        torch.rand(num_rows, generator=generator) < accuracy,
        torch.zeros_like(truth),
        torch.randint(1, 3, (num_rows,), generator=generator),
    )
    logits = torch.linspace(6, 0, num_classes).repeat(num_rows, 1)
    logits[:, 0] += 20
    order = torch.rand(num_rows, num_classes, generator=generator).argsort(1)
    order = torch.where(order == truth[:, None], order.gather(1, place[:, None]), order)
    order[torch.arange(num_rows), place] = truth
    logits = torch.zeros_like(logits).scatter(1, order, logits)
    even = torch.randint(num_classes, (num_rows,), generator=generator)
    is_drawn = torch.rand(num_rows, generator=generator) < rate
    return logits, torch.where(is_drawn, even, truth)


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.8])
def test_a_model_that_has_not_learned_yet_is_told_from_wrong_labels(rate):
    learned, new = AutoT(), AutoT()
    for seed in range(30):
        learned.observe(*drawn(2000, 10, accuracy=0.8, rate=rate, seed=seed))
        new.observe(*drawn(2000, 10, accuracy=0.25, rate=rate, seed=seed))
    assert learned.T.item() > 8
    assert new.T.item() < 1


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6])
def test_a_model_that_has_learned_a_part_of_the_labels_has_a_t_of_at_most_four(rate):
    auto = AutoT()
    for seed in range(30):
        auto.observe(*drawn(2000, 10, accuracy=0.6, rate=rate, seed=seed))
    assert 3 < auto.T.item() <= 4


@pytest.mark.parametrize("seed", [1000, 2000, 3000])
def test_a_few_rows_do_not_decide_that_a_model_has_learned(seed):
    auto = AutoT()
    for step in range(60):  # hardly better than chance, in small batches
        auto.observe(*drawn(32, 10, accuracy=0.25, rate=0.9, seed=seed + step))
    assert auto.T.item() < 1


def test_two_classes_have_no_less_likely_half_to_judge_by():
    auto = AutoT()
    for seed in range(30):
        truth = torch.randint(2, (500,), generator=torch.Generator().manual_seed(seed))
        target = torch.where(torch.arange(500) % 5 == 0, 1 - truth, truth)
        auto.observe(8.0 * torch.nn.functional.one_hot(truth, 2), target)
    assert auto.T.item() > 8


def test_the_state_of_an_earlier_version_is_read():
    auto = AutoT()
    old = {
        "T": torch.tensor(7.0),
        "means": torch.tensor([0.5, 0.2, 0.4]),
        "num_steps": torch.tensor(9),
    }
    auto.load_state_dict(old)
    assert auto.T.item() == 7
    assert auto.means.tolist() == pytest.approx([0.5, 0.2, 0.4, 0])


def test_evaluation_changes_nothing():
    auto = AutoT()
    for logits, target in batches(5):
        auto.observe(logits, target)
    before = copy.deepcopy(auto.state_dict())
    auto.eval()
    logits, target = next(batches(1))
    assert auto.observe(logits, target) == before["T"]
    assert all(torch.equal(before[name], value) for name, value in auto.state_dict().items())


def test_it_continues_from_its_state():
    whole, first, second = AutoT(), AutoT(), AutoT()
    for step, (logits, target) in enumerate(batches(40)):
        whole.observe(logits, target)
        (first if step < 25 else second).observe(logits, target)
        if step == 24:
            second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert torch.equal(whole.T, second.T)
    assert torch.equal(whole.means, second.means)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_do_not_reach_the_state(bad):
    auto = AutoT()
    for logits, target in batches(30):
        auto.observe(logits, target)
    before = auto.T.clone()
    logits = torch.full((2, C), bad)
    assert auto.observe(logits, torch.tensor([0, 1])).item() == before.item()
    assert auto.means.isfinite().all()
    # A row that does not count may be anything.
    auto.observe(
        torch.cat([logits, torch.zeros(1, C)]), torch.zeros(3).long(), torch.tensor([0.0, 0.0, 1.0])
    )
    assert auto.num_steps.item() == 31
    assert auto.T.isfinite()


def test_rows_count_as_much_as_they_are_said_to():
    plain, counted = AutoT(), AutoT()
    for logits, target in batches(30):
        plain.observe(logits[:8], target[:8])
        counted.observe(logits, target, torch.cat([torch.full((8,), 2.0), torch.zeros(8)]))
    torch.testing.assert_close(plain.T, counted.T, rtol=0.05, atol=0)  # twice the rows: surer
    twice, small = AutoT(), AutoT()
    for logits, target in batches(30):
        twice.observe(logits[:8].repeat(2, 1), target[:8].repeat(2))
        small.observe(logits, target, torch.cat([torch.full((8,), 1e-3), torch.zeros(8)]))
    torch.testing.assert_close(twice.T, counted.T)
    torch.testing.assert_close(small.T, plain.T)
    compiled, large = AutoT(), torch.full((16,), 1e20)
    for logits, target in batches(30):
        compiled._follow_tensors(compiled._sums(logits, target, large), 1 / C)
    assert 0 < compiled.T.item() < 20
    empty = AutoT()
    empty.observe(logits, target, torch.zeros(16))
    assert empty.num_steps.item() == 0


def test_one_class_and_extreme_logits_are_finite():
    auto = AutoT(0.75)
    auto.observe(torch.zeros(3, 1), torch.zeros(3).long())
    auto.observe(torch.tensor([[1e38, -1e38], [-math.inf, 0.0]]), torch.tensor([1, 1]))
    assert auto.T.isfinite()


def test_half_precision_keeps_the_state_in_float32():
    for dtype in (torch.bfloat16, torch.float16):
        loss = IMAELoss(T="auto", cap=0.75).to(dtype)
        for logits, target in batches(25):
            loss(logits.to(dtype), target)
        assert loss.auto.T.dtype == loss.auto.means.dtype == torch.float32
        assert loss.auto.T.item() > 0


@pytest.mark.parametrize("cap", [None, 0.75])
def test_the_module_is_imae_with_the_t_of_the_moment(cap):
    loss, auto = IMAELoss(T="auto", cap=cap, normalize="half"), AutoT(cap or 1.0)
    for logits, target in batches(25):
        T = auto.observe(logits if cap is None else cap_logits(logits, cap), target)
        expected = curve_loss(logits, target, IMAE(float(T)), cap=cap, normalize="half")
        torch.testing.assert_close(loss(logits, target), expected)
    assert float(loss.curve.T) == loss.auto.T.item() > 0
    loss.eval()
    again = loss(logits, target)
    torch.testing.assert_close(loss(logits, target), again)


def test_gradients_of_earlier_batches_keep_their_t():
    loss = IMAELoss(T="auto", label_smoothing=0.1)  # the slope is taken in the backward pass
    pairs = list(batches(30))
    leaves = [logits.clone().requires_grad_() for logits, _ in pairs]
    losses = [loss(leaf, target) for leaf, (_, target) in zip(leaves, pairs, strict=True)]
    sum(losses).backward()
    auto = AutoT()
    for leaf, (logits, target) in zip(leaves, pairs, strict=True):
        T = float(auto.observe(logits, target))
        other = logits.clone().requires_grad_()
        curve_loss(other, target, IMAE(T), label_smoothing=0.1).backward()
        torch.testing.assert_close(leaf.grad, other.grad)


def test_targets_of_every_kind():
    loss = IMAELoss(T="auto", cap=0.75)
    loss(torch.randn(2, C, 3), torch.tensor([[0, -100, 1], [2, 3, 0]]))
    loss(torch.randn(C), torch.tensor(1))
    loss(torch.randn(2, C), torch.full((2, C), 1 / C))
    assert loss.auto.num_steps.item() == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode
@pytest.mark.parametrize("cap", [None, 0.75])
def test_transforms_take_it_in_evaluation_mode_and_leave_it_as_it_was(cap):
    loss = IMAELoss(T="auto", cap=cap)
    for logits, target in batches(5):
        loss(logits, target)
    loss.eval()
    expected = IMAELoss(T=loss.auto.T.item(), cap=cap)

    def total(criterion):
        return lambda z: criterion(z, target)

    each = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)))
    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd):
        torch.testing.assert_close(
            transform(total(loss))(logits), transform(total(expected))(logits)
        )
    torch.testing.assert_close(
        each(logits, target).sum(0) / len(logits), torch.func.grad(total(loss))(logits).sum(0)
    )
    assert pickle.loads(pickle.dumps(copy.deepcopy(loss))).curve == loss.curve


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode
@pytest.mark.parametrize("training", [True, False])
def test_it_may_be_made_inside_a_transform(training):
    logits, target = next(batches(1, 64))
    loss = IMAELoss(T="auto", cap=0.75).train(training)
    loss(logits, target)
    expected = IMAELoss(T=loss.auto.T.item(), cap=0.75)
    assert (expected.curve.T > 0) == training

    def made_inside(z):
        return IMAELoss(T="auto", cap=0.75).train(training)(z, target)

    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        torch.testing.assert_close(
            transform(made_inside)(logits), transform(lambda z: expected(z, target))(logits)
        )


@pytest.mark.parametrize("size", [16, 4000], ids=["small batch", "large batch"])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_shows_it_every_batch_once(use_reentrant, size):
    plain, repeated = IMAELoss(T="auto", cap=0.75), IMAELoss(T="auto", cap=0.75)
    for logits, target in batches(3, size):
        one, other = (logits.clone().requires_grad_() for _ in range(2))
        plain(one, target).backward()
        checkpoint(repeated, other, target, use_reentrant=use_reentrant).backward()
        torch.testing.assert_close(other.grad, one.grad)
    assert repeated.auto.num_steps.item() == 3
    torch.testing.assert_close(repeated.state_dict(), plain.state_dict())
    assert plain.auto.T > 0


def test_a_refused_call_changes_nothing():
    loss = IMAELoss(T="auto", cap=0.75)
    logits, target = next(batches(1))
    loss(logits, target)
    before = copy.deepcopy(loss.state_dict())
    for wrong in (target + C, target.int(), target[:1], target.bool()):
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            loss(logits, wrong)
        assert all(torch.equal(before[name], value) for name, value in loss.state_dict().items())


def test_an_empty_batch_is_nan_and_changes_nothing():
    loss = IMAELoss(T="auto", cap=0.75)
    assert loss(torch.randn(0, C), torch.zeros(0, dtype=torch.int64)).isnan()
    assert loss.auto.num_steps.item() == 0


@pytest.mark.parametrize("kind", ["classes", "probabilities"])
def test_rows_of_classes_without_weight_do_not_count(kind):
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0])
    weighted, plain = IMAELoss(T="auto", weight=weight), IMAELoss(T="auto")
    for logits, target in batches(5):
        shown = target.clone()
        shown[0] = -100
        counts = (target != 3) & (shown != -100)
        if kind == "probabilities":
            counts = target != 3
            shown = torch.nn.functional.one_hot(target, C).float()
        weighted(logits, shown)
        plain(logits[counts], target[counts])
    assert weighted.auto.T.item() > 0
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(weighted.state_dict()[name], value)


def test_rows_without_a_class_do_not_count():
    some, plain = IMAELoss(T="auto"), IMAELoss(T="auto")
    for logits, target in batches(5):
        shown = torch.nn.functional.one_hot(target, C).float()
        shown[::4] = 0  # as where sequences are filled up
        some(logits, shown)
        counts = shown.any(1)
        plain(logits[counts], target[counts])
    assert plain.auto.T.item() > 0
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(some.state_dict()[name], value)


def test_labels_may_be_bytes():
    loss, bytes_loss = IMAELoss(T="auto"), IMAELoss(T="auto")
    logits = torch.randn(8, 200, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([156] * 4 + [3] * 4)  # -100 as a byte is 156
    loss(logits, target)
    bytes_loss(logits, target.to(torch.uint8))
    torch.testing.assert_close(bytes_loss.auto.means, loss.auto.means)


def _train_one_of_two(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=(folder / "meeting").as_uri(), rank=rank, world_size=2
    )
    loss = IMAELoss(T="auto", cap=0.75)
    for logits, target in batches(40, size=32):
        half = slice(rank, None, 2)
        loss(logits[half].requires_grad_(), target[half])
    loss.eval()
    if rank == 0:  # an evaluation may be made by one process alone
        loss(logits, target)
    torch.save(loss.state_dict(), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_t_of_one_that_sees_all_rows(tmp_path):
    torch.multiprocessing.spawn(_train_one_of_two, (tmp_path,), nprocs=2)
    alone = IMAELoss(T="auto", cap=0.75)
    for logits, target in batches(40, size=32):
        alone(logits.requires_grad_(), target)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert first["auto.T"] > 1
    for name, value in alone.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-5, atol=1e-6)


def test_the_weight_curve_of_a_loss_leaves_it_as_it_was():
    loss = IMAELoss(T="auto")
    for logits, target in batches(5):
        loss(logits, target)
    before = copy.deepcopy(loss.state_dict())
    p, weights = imae.weight_curve(loss)
    torch.testing.assert_close(weights, loss.curve.weight(p))
    assert all(torch.equal(before[name], value) for name, value in loss.state_dict().items())
    assert loss.training
    assert loss.auto.training


def test_the_recommended_form_is_one_line():
    loss = imae.IMAELoss(T="auto", cap=0.75, normalize="half")
    twin = pickle.loads(pickle.dumps(loss))
    assert repr(twin) == repr(loss)
    assert twin.state_dict().keys() == {
        f"auto.{name}" for name in ("T", "means", "num_steps", "peak", "gained")
    }


def test_other_words_are_refused():
    with pytest.raises(ArgumentError, match="T must be a number or 'auto', got 'Auto'"):
        IMAELoss(T="Auto")


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
def test_numbers_and_tensors_give_the_same(num_classes, generator):
    quick, slow = AutoT(0.75), AutoT(0.75)
    slow._follow = slow._follow_tensors
    for step in range(60):
        logits = 2 * torch.randn(16, num_classes, generator=generator)
        other = torch.randint(num_classes, (16,), generator=generator)
        is_right = torch.rand(16, generator=generator) < 0.6
        target = torch.where(is_right, logits.argmax(1), other)
        counts = None if step % 2 else torch.rand(16, generator=generator).round()
        if step == 30:
            logits[0, 0], counts = math.nan, None
        torch.testing.assert_close(
            quick.observe(logits, target, counts), slow.observe(logits, target, counts)
        )
        if step % 20 == 19:
            for auto in (quick, slow):
                auto.observe_unseen(torch.arange(40) % num_classes, num_classes)
    for name, value in quick.state_dict().items():
        torch.testing.assert_close(value, slow.state_dict()[name])


def test_the_state_moves_once_to_the_device_of_the_logits(monkeypatch):
    criterion = IMAELoss(T="auto", cap=0.75, normalize="half").to("meta")
    moves = []

    def moved(auto, device):  # stands in for a move from a device that the machine may not have
        moves.append(device.type)
        auto.to_empty(device=device)
        for each in auto.buffers():
            each.zero_()

    monkeypatch.setattr(AutoT, "to", moved)
    logits, target = torch.randn(6, C, requires_grad=True), torch.arange(6) % C
    for _ in range(2):
        criterion(logits, target).backward()
    assert moves == ["cpu"]
    assert int(criterion.auto.num_steps) == 2


def test_logits_without_numbers_leave_the_state_as_it_is():
    criterion = IMAELoss(T="auto", cap=0.75, normalize="half")
    criterion.auto.T.fill_(6.0)
    before = copy.deepcopy(criterion.state_dict())
    logits = torch.randn(6, C, device="meta", requires_grad=True)
    criterion(logits, torch.zeros(6, dtype=torch.int64, device="meta")).backward()
    torch.testing.assert_close(criterion.state_dict(), before)
    assert criterion.auto.T.device.type == "cpu"
