"""IMAE whose T follows the training: no search, no clean labels, no noise rate."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C import _current_graph_task_id, _functorch
from typing_extensions import Self

from imae.losses.arguments import is_plain, is_transformed
from imae.losses.kernel import CAPPED_PIECE, rows_of
from imae.losses.margin import precise

# T is at most the first number, and with what it gains from memorised labels at most the second.
_LARGEST_T, _LARGEST_T_IN_ALL = 24.0, 40.0
# What T gains for each part of the labels that is uninformative and memorised.
_PER_MEMORISED = 200.0
# It gains nothing from a model that predicts less than this share of the right unseen labels.
_KNOWN_UNSEEN = 0.72
# Running means over about this many steps; over all of them before.
_DECAY = 0.98
_WARM_UP_STEPS = 20
# Steps whose plain mean varies as much as a running mean.
_STEPS_IN_MEANS = 99
# Agreement this much above chance counts in full.
_FULL_AGREEMENT = 0.05
# Keeps the mean over a few rows, and over none, from being one of noise.
_PRIOR_ROWS = 0.005
# Nothing is concluded from a model that predicts this share of the right labels, all from one that
# predicts the second.
_NOT_LEARNED, _LEARNED = 0.3, 0.7
# T is at most this for a model that predicts the first share of the right labels, and has no such
# limit for one that predicts the second.
_CAUTIOUS_T = 4.0
_PARTLY_LEARNED, _MOSTLY_LEARNED = 0.68, 0.78


class Step(NamedTuple):
    """The state of ``AutoT`` after a step."""

    T: float
    means: list[float]
    num_steps: int
    peak: float


class AutoT(nn.Module):
    """The T of IMAE, chosen by how sure the model is where it contradicts the given labels.

    Formula, with running means over the rows of the training batches, for C classes:

        q   = (largest probability - 1/C) / (cap - 1/C)     0 at chance, 1 at the cap
        a   = how often the most likely class is the given label, d = 1 - a
        s   = mean of q where they differ, s_a = mean of q where they agree
        r   = min(1, s / s_a)
        g   = (a - 1/C) / (1 - 1/C) / 0.05, within [0, 1]
        u   = C / floor(C/2) times how often the label is in the less likely half of the classes
        e   = 1 / (2 sqrt(N)), the largest standard error of a share of the N rows in the means
        l   = ((a - u/C - e) / (1 - u + 2 e) - 0.3) / 0.4, within [0, 1]; 1 for two classes
        k   = (a - u/C) / (1 - u), 0 if u is 1 or more
        m   = 4 + 20 (k - 0.68) / 0.1, within [4, 24]; 24 for two classes
        v   = u of rows that are not trained on, less its standard error
        x   = v - u when those rows were last seen, at least 0; 0 for two classes, without such
              rows, and if k of them is under 0.72
        T   = the highest min(24 l r sqrt(s d g), m) so far, + 200 x, at most 40

    Where labels are wrong, the model is as sure on the rows that contradict it as on the others,
    and r is near 1 from the first epoch, at any rate of noise. Where a problem is hard, it is
    unsure exactly there: r is small, and so is T. As wrong labels are memorised d falls, hence the
    highest value so far; g keeps a model that is no better than chance from counting. The maximum
    begins after 20 steps. The running means are those of all steps, then decay by 0.98 a step.

    A model that is trained from scratch is sure before it is right, and contradicts labels because
    it has not learned them. The factor l tells: a label that was drawn evenly is as likely in the
    less likely half of the classes as in the other, a right one hardly ever is, so u estimates the
    share of labels that say nothing, and (a - u/C) / (1 - u) how many of the others are predicted.
    It does not depend on how many labels are wrong, and e keeps a few rows from deciding. Labels
    that are mistaken for similar classes look like a model that has not learned them; they make l
    smaller, not larger. A T above 4 in a model that has learned a part of the labels keeps it from
    learning the rest at a high learning rate, and does less harm once it has learned most: hence
    the limit m.

    Labels that say nothing can only be memorised: then they leave the less likely half where the
    model was trained on them, and nowhere else. ``observe_unseen`` takes in rows that are not
    trained on, and T rises with x, the share of the labels that is memorised, until it falls again.
    A model that predicts few of the right labels there is learning right labels by heart too, and
    should go on. ``imae train`` shows it held-out rows after each epoch.

    In evaluation mode nothing changes, nor where ``torch.utils.checkpoint`` repeats a forward pass.
    The state is saved with the module. The transforms of ``torch.func`` change no state and so
    refuse a module in training mode that was made outside of them: switch it to evaluation mode
    first.

    Args:
        cap: Largest probability that the model outputs; 1 if it has no cap.

    Examples:
        >>> auto = AutoT(cap=0.75)
        >>> float(auto.T)
        0.0
        >>> sure = torch.tensor([[2.5, 0.1, 0.0]]).repeat(80, 1)
        >>> labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 2]).repeat(10)  # a quarter is contradicted
        >>> round(float(auto.observe(sure, labels)), 1)
        13.1

    Reference:
        Ours; ``docs/losses.md`` says how it was found and what it was tested on.
    """

    T: Tensor
    means: Tensor
    num_steps: Tensor
    peak: Tensor
    gained: Tensor

    def __init__(self, cap: float = 1.0) -> None:
        super().__init__()
        self.cap = cap
        self.register_buffer("T", torch.zeros(()))
        # Of a, of q where contradicted and where not, and of labels in the less likely half.
        self.register_buffer("means", torch.zeros(4))
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("peak", torch.zeros(()))  # T without what it gains
        self.register_buffer("gained", torch.zeros(()))

    @torch.no_grad()
    def observe(
        self,
        logits: Tensor,
        target: Tensor,
        counts: Tensor | None = None,
        total: Callable[[Tensor], Tensor] = lambda sums: sums,
        *,
        limit: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> Tensor:
        """Takes in a batch of training and returns the T for it, a scalar.

        Args:
            logits: What the model outputs, shape (N, C, ...), with its cap.
            target: Given labels, shape (N, ...).
            counts: How much each row counts, shape (N, ...); None for 1.
            total: Sum of a tensor over all processes that share the batch.
            limit: What puts the cap on rows of the logits, if they have none.
        """
        if not self._learns() or logits.shape[1] < 2:  # one class is never contradicted
            return self._present()
        device = logits.device
        if device != self.T.device:
            if logits.is_meta:  # has no numbers to learn from, and the state would be lost there
                return self._present()
            self.to(device)
        chance = 1 / logits.shape[1]
        step = rows_of(logits, CAPPED_PIECE) if is_plain(logits) else None
        if step is None or len(logits) <= step:
            sums = self._sums(limit(logits), target, counts)
        else:  # a softmax of all rows need not be held
            weights = [None] * len(logits) if counts is None else counts.split(step)
            parts = zip(logits.split(step), target.split(step), weights, strict=False)
            sums = torch.stack([self._sums(limit(z), y, v) for z, y, v in parts]).sum(0)
        sums = total(sums)
        if sums.is_cpu and is_plain(sums):
            self._follow(sums, chance)
        else:
            self._follow_tensors(sums, chance)
        return self._present()

    @torch.no_grad()
    def observe_unseen(self, num_likelier: Tensor, num_classes: int) -> None:
        """Takes in rows with given labels like those of training, which are not trained on.

        To be called now and then, for example after each epoch, with all of them. Rows whose
        labels are right more often than those of training change nothing.

        Args:
            num_likelier: How many classes are likelier than the given label, shape (M,).
            num_classes: Number of classes C.
        """
        if num_classes < 3 or len(num_likelier) == 0:
            return
        chance, even_share = 1 / num_classes, _even_share(1 / num_classes)
        low = (num_likelier >= (num_classes + 1) // 2).to(self.means).mean()
        agreement = (num_likelier == 0).to(self.means).mean()
        even = low * even_share
        is_known = agreement - even * chance >= _KNOWN_UNSEEN * (1 - even)
        error = (low * (1 - low) / len(num_likelier)).sqrt()
        memorised = (low - error - self.means[3].to(low)) * even_share
        gained = _PER_MEMORISED * memorised.clamp(min=0)
        self.gained.copy_(torch.where(is_known & (even < 1), gained, 0))

    def _learns(self) -> bool:
        # While gradients are computed, checkpointing repeats a forward pass that was seen before.
        is_repeated = not torch.compiler.is_compiling() and _current_graph_task_id() != -1
        return self.training and not is_repeated

    def _present(self) -> Tensor:
        if not is_transformed():
            return self.T.clone()
        # A transform wraps a copy, and what is made inside of it. Inner levels cannot take that
        # apart; T is a constant to them.
        T = self.T
        while _functorch.is_gradtrackingtensor(T):
            T = _functorch.get_unwrapped(T)
        return T

    def _sums(self, logits: Tensor, target: Tensor, counts: Tensor | None) -> Tensor:
        """What ``after`` takes, of some rows."""
        logits = precise(logits)
        top, predicted = logits.softmax(1).max(1)
        num_classes = logits.shape[1]
        chance = 1 / num_classes
        label = target.long().clamp(0, num_classes - 1).unsqueeze(1)
        num_likelier = (logits > logits.gather(1, label)).sum(1)
        is_low = (num_likelier >= (num_classes + 1) // 2).to(self.means.dtype)
        sure = ((top - chance) / (self.cap - chance)).to(self.means.dtype)
        agrees = (predicted == target).to(self.means.dtype)
        counts = torch.ones_like(sure) if counts is None else counts.to(sure.dtype)
        ones = torch.ones_like(sure)
        terms = torch.stack([agrees, sure * (1 - agrees), sure * agrees, is_low, ones])
        # A row that does not count may be anything, NaN included.
        counted = torch.where(counts > 0, terms * counts, torch.zeros_like(terms))
        sums = counted.flatten(1).sum(1)
        return torch.cat([sums, counts.square().sum().unsqueeze(0)])

    def _follow(self, sums: Tensor, chance: float) -> None:
        """As ``_follow_tensors`` with numbers, which take a tenth of the time."""
        self.take(self.after(sums.tolist(), chance))

    def after(self, sums: Sequence[float], chance: float) -> Step:
        """The state after a batch, in evaluation mode the present one.

        Args:
            sums: Over the rows: of those that agree, of q where they differ, of q where they
                agree, of those whose label is in the less likely half of the classes, how much all
                of them count, and the squares of that.
            chance: 1 / C.
        """
        T, peak, steps = self.T.item(), self.peak.item(), int(self.num_steps.item())
        means: list[float] = self.means.tolist()
        *parts, number, squares = sums
        is_usable = number > 0 and math.isfinite(sum(parts))
        if not (is_usable and self._learns()):
            return Step(T, means, steps, peak)
        steps += 1
        kept = min(1 - 1 / steps, _DECAY)
        part = (1 - kept) / number
        means = [kept * old + part * new for old, new in zip(means, parts, strict=True)]
        # A row that counts twice is two rows; rows that all count little are still as many.
        num_rows = max(number, number**2 / squares) if squares > 0 else number
        now = _rule(means, chance, num_rows * min(steps, _STEPS_IN_MEANS))
        is_remembered = steps > _WARM_UP_STEPS + 1
        peak = max(peak, now) if is_remembered else now
        return Step(min(peak + self.gained.item(), _LARGEST_T_IN_ALL), means, steps, peak)

    def take(self, step: Step) -> None:
        """Changes the state, of a module on the CPU."""
        # By numpy, in a third of the time that copies of tensors take.
        self.T.numpy()[()] = step.T
        self.means.numpy()[:] = step.means
        self.num_steps.numpy()[()] = step.num_steps
        self.peak.numpy()[()] = step.peak

    def _follow_tensors(self, sums: Tensor, chance: float) -> None:
        """Takes the sums over a batch into the means, and T from them, without a look at either."""
        *parts, number, squares = sums.unbind()
        has_rows = number > 0
        batch = torch.stack(parts) / torch.where(has_rows, number, torch.ones_like(number))
        is_usable = has_rows & batch.isfinite().all()
        steps = self.num_steps + 1
        kept = torch.clamp(1 - 1 / steps.to(batch.dtype), max=_DECAY)
        means = torch.where(is_usable, torch.lerp(batch, self.means, kept), self.means)
        share = number / torch.where(squares > 0, squares, torch.ones_like(squares))
        num_rows = torch.maximum(number, number * share)  # a square of large numbers is infinite
        now = self._rule(means, chance, num_rows * steps.clamp(max=_STEPS_IN_MEANS))
        is_remembered = steps > _WARM_UP_STEPS + 1
        peak = torch.where(is_remembered, torch.maximum(self.peak, now), now)
        T = (peak + self.gained).clamp(max=_LARGEST_T_IN_ALL)
        self.T.copy_(torch.where(is_usable, T, self.T))
        self.peak.copy_(torch.where(is_usable, peak, self.peak))
        self.means.copy_(means)
        self.num_steps.copy_(torch.where(is_usable, steps, self.num_steps))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves to another device, but stays in float32: half precision has no running means."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("T", "means", "peak", "gained"):
            buffer = self.get_buffer(name)
            if buffer.dtype in (torch.float16, torch.bfloat16):
                self.register_buffer(name, buffer.float())
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Takes the state of earlier versions too: three means, and no gain."""
        means, T = (state_dict.get(prefix + name) for name in ("means", "T"))
        if means is not None and means.shape == (3,):
            state_dict[prefix + "means"] = torch.cat([means, means.new_zeros(1)])
        if T is not None:
            state_dict.setdefault(prefix + "peak", T.clone())
            state_dict.setdefault(prefix + "gained", torch.zeros_like(T))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _rule(self, means: Tensor, chance: float, num_rows: Tensor) -> Tensor:
        agreement, sure_against, sure_with, low = means.unbind()
        difference = 1 - agreement
        against = sure_against.clamp(min=0) / (difference + _PRIOR_ROWS)
        agreeing = sure_with.clamp(min=0) / (agreement + _PRIOR_ROWS)
        ratio = torch.where(against < agreeing, against / agreeing, torch.ones_like(against))
        gate = ((agreement - chance) / (1 - chance) / _FULL_AGREEMENT).clamp(0, 1)
        even = low * _even_share(chance)
        error = 0.5 * num_rows.clamp(min=1).rsqrt()
        known = (agreement - even * chance - error) / (1 - even.clamp(max=1) + 2 * error)
        learned = ((known - _NOT_LEARNED) / (_LEARNED - _NOT_LEARNED)).clamp(0, 1)
        learned = learned if chance < 0.5 else torch.ones_like(learned)
        wanted = _LARGEST_T * learned * ratio * (against * difference * gate).sqrt()
        if chance >= 0.5:
            return wanted
        is_known = even < 1
        predicted = (agreement - even * chance) / torch.where(is_known, 1 - even, 1)
        share = (predicted - _PARTLY_LEARNED) / (_MOSTLY_LEARNED - _PARTLY_LEARNED)
        share = torch.where(is_known, share, 0).clamp(0, 1)
        return torch.minimum(wanted, _CAUTIOUS_T + (_LARGEST_T - _CAUTIOUS_T) * share)

    def extra_repr(self) -> str:
        """The cap, for ``repr``."""
        return f"cap={self.cap}"


def _rule(means: Sequence[float], chance: float, num_rows: float) -> float:
    """``AutoT._rule`` for numbers."""
    agreement, sure_against, sure_with, low = means
    difference = 1 - agreement
    against = max(sure_against, 0.0) / (difference + _PRIOR_ROWS)
    agreeing = max(sure_with, 0.0) / (agreement + _PRIOR_ROWS)
    ratio = against / agreeing if against < agreeing else 1.0
    gate = min(max((agreement - chance) / (1 - chance) / _FULL_AGREEMENT, 0.0), 1.0)
    even = low * _even_share(chance)
    error = 0.5 / math.sqrt(max(num_rows, 1.0))
    known = (agreement - even * chance - error) / (1 - min(even, 1.0) + 2 * error)
    learned = min(max((known - _NOT_LEARNED) / (_LEARNED - _NOT_LEARNED), 0.0), 1.0)
    learned = learned if chance < 0.5 else 1.0
    wanted = _LARGEST_T * learned * ratio * math.sqrt(against * difference * gate)
    if chance >= 0.5:
        return wanted
    predicted = (agreement - even * chance) / (1 - even) if even < 1 else 0.0
    share = (predicted - _PARTLY_LEARNED) / (_MOSTLY_LEARNED - _PARTLY_LEARNED)
    return min(wanted, _CAUTIOUS_T + (_LARGEST_T - _CAUTIOUS_T) * min(max(share, 0.0), 1.0))


def _even_share(chance: float) -> float:
    """Labels that are drawn evenly, for each of them in the less likely half of the classes."""
    num_classes = round(1 / chance)
    return num_classes / max(num_classes // 2, 1)
