import math

import mpmath
import pytest
import torch

from imae.curves import CCE
from imae.errors import ArgumentError
from imae.losses import curve_loss
from imae.methods import ELR, Facts, Rows

LABELS = torch.tensor([0, 2, 1, 2])


def started(total=lambda tensor: tensor, **options):
    method = ELR(**options)
    method.start(Facts(labels=LABELS, num_classes=3, num_epochs=2, seed=0, total=total))
    return method


def batches(epochs=3, dtype=torch.float64):
    """Rows two by two, in an order of its own in each epoch, with new logits each time."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(epochs):
        for row in torch.randperm(4, generator=generator).split(2):
            logits = 3 * torch.randn(2, 3, generator=generator, dtype=dtype)
            yield Rows(logits, LABELS[row], row)


def softmax(logits):
    top = max(logits)
    powers = [math.exp(z - top) for z in logits]
    return [power / sum(powers) for power in powers]


def test_losses_and_gradients_are_those_of_a_loop():
    beta, strength = 0.6, 2.5
    method = started(beta=beta, strength=strength)
    targets = [[0.0] * 3 for _ in LABELS]
    for rows in batches():
        logits = rows.logits.requires_grad_()
        losses = method(rows)
        losses.sum().backward()
        for place, row in enumerate(rows.row.tolist()):
            p, y = softmax(logits[place].tolist()), int(rows.target[place])
            t = [beta * t + (1 - beta) * p for t, p in zip(targets[row], p, strict=True)]
            targets[row] = t
            left = 1 - sum(t[k] * p[k] for k in range(3))
            assert losses[place].item() == pytest.approx(
                -math.log(p[y]) + strength * math.log(left), rel=1e-5
            )
            for k in range(3):
                pull = p[k] / left * sum((t[j] - t[k]) * p[j] for j in range(3))
                expected = p[k] - (k == y) + strength * pull
                assert logits.grad[place, k].item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_without_strength_it_is_cross_entropy():
    rows = next(batches(dtype=torch.float32))
    expected = curve_loss(rows.logits, rows.target, CCE(), reduction="none")
    torch.testing.assert_close(started(strength=0.0)(rows), expected)


def test_confident_rows_keep_their_exact_loss():
    """Where p rounds to 1 in float32: 1 - t comes from the memory, not from a difference."""
    method = started()
    logits = torch.tensor([[18.0, 0.0, 0.0]])
    for _ in range(60):
        loss = method(Rows(logits, LABELS[:1], torch.tensor([0])))
    with mpmath.workdps(60):
        others = mpmath.exp(-18) / (1 + 2 * mpmath.exp(-18))
        p, t = [1 - 2 * others, others, others], [mpmath.mpf(0)] * 3
        for _ in range(60):
            t = [mpmath.mpf(0.7) * t + mpmath.mpf(0.3) * p for t, p in zip(t, p, strict=True)]
        left = 1 - sum(t * p for t, p in zip(t, p, strict=True))
        expected = float(-mpmath.log(p[0]) + 3 * mpmath.log(left))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    method = started()
    for step in range(400):
        logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype=dtype)
        if step % 7 == 0:
            logits = -logits
        logits = logits.requires_grad_()
        losses = method(Rows(logits, LABELS[:2], torch.tensor([0, 1])))
        losses.sum().backward()
        assert losses.dtype == torch.float32
        assert losses.isfinite().all()
        assert logits.grad.isfinite().all()
    assert method.remainder.values.isfinite().all()


def test_a_restored_run_goes_on_as_before():
    whole, broken = started(), started()
    for step, rows in enumerate(batches()):
        if step == 3:
            state = broken.state_dict()
            broken = started()
            broken.load_state_dict(state)
        assert torch.equal(whole(rows), broken(rows))


def test_two_ranks_do_what_one_does(two_ranks):
    alone = started()
    expected = [alone(rows) for rows in batches()]

    def work(rank, total, _gather):
        method, losses = started(total), []
        for step, rows in enumerate(batches()):
            mine = slice(rank, rank + 1)
            losses.append(method(Rows(rows.logits[mine], rows.target[mine], rows.row[mine])))
            if step % 2 == 1:
                method.share()
        return losses, method.remainder.values

    (first, memory), (second, other) = two_ranks.run(work)
    for whole, *parts in zip(expected, first, second, strict=True):
        torch.testing.assert_close(torch.cat(parts), whole)
    assert torch.equal(memory, other)
    torch.testing.assert_close(memory, alone.remainder.values)


def test_options_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="beta must be in"):
        ELR(beta=1.0)
    with pytest.raises(ArgumentError, match="beta must be in"):
        ELR(beta=-1e-3)
    ELR(beta=0.0)
    ELR(beta=0.999)
    with pytest.raises(ArgumentError, match="strength must be in"):
        ELR(strength=-1e-3)
    assert repr(ELR(strength=0.0)) == "ELR(beta=0.7, strength=0.0)"
