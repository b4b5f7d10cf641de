"""Masking: a transition matrix learned under a known structure, by a game of small networks."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from imae._draws import torch_generator
from imae.errors import ArgumentError, check_interval
from imae.losses.margin import precise
from imae.methods.matrix import Structure
from imae.methods.method import Facts, Method, Rows, first_stage
from imae.noise.estimate import estimate_transition_from_anchors

_DECAY = 0.9
_DELTA = 1e-10


class Player(nn.Module):
    """A fully connected network with an RMSProp of its own, one side of an adversarial game.

    Weights and the optimiser's running squares are buffers: they are saved with the method, and
    the optimiser of the run does not change them.

    Args:
        sizes: Units of each layer, the input first.
        activation: Between layers; the last one is linear.
        generator: Source of the initial weights (Glorot's uniform ones; biases are 0).

    Examples:
        >>> player, x = Player((2, 3, 1), torch.relu, torch.Generator()), torch.ones(1, 2)
        >>> for _ in range(300):
        ...     player.improve(lambda values: (player(x, values) - 5).square().mean(), 0.05)
        >>> player(x).round(decimals=1)
        tensor([[5.]])
    """

    num_steps: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Callable[[Tensor], Tensor],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self._activation = activation
        self._num_values = 2 * (len(sizes) - 1)
        for layer, (before, after) in enumerate(itertools.pairwise(sizes)):
            limit = math.sqrt(6 / (before + after))
            weight = (2 * torch.rand(before, after, generator=generator) - 1) * limit
            self._register(2 * layer, weight)
            self._register(2 * layer + 1, torch.zeros(after))

    def forward(self, inputs: Tensor, values: Sequence[Tensor] | None = None) -> Tensor:
        """Outputs (B, last size) for inputs (B, first size), by given weights and biases if any."""
        values = self._values("value") if values is None else values
        for layer in range(0, self._num_values, 2):
            if layer > 0:
                inputs = self._activation(inputs)
            inputs = torch.addmm(values[layer + 1], inputs, values[layer])
        return inputs

    def improve(self, loss: Callable[[Sequence[Tensor]], Tensor], rate: float) -> None:
        """One step of RMSProp; the first step is as long as any other.

        The running squares start from 0 and are corrected for it, as in Adam. The publication's
        start from 1: until they have decayed, in 50 steps, a player with small gradients hardly
        moves, which is nothing in 150,000 steps and everything in 50.

        Args:
            loss: The loss of given weights and biases.
            rate: Learning rate.
        """
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in self._values("value")]
            gradients = torch.autograd.grad(loss(leaves), leaves)
        with torch.no_grad():
            self.num_steps += 1
            seen = 1 - _DECAY**self.num_steps
            squares = self._values("square")
            for value, square, gradient in zip(leaves, squares, gradients, strict=True):
                square.lerp_(gradient.square(), 1 - _DECAY)
                value.sub_(rate * gradient / (square / seen + _DELTA).sqrt())

    def _register(self, index: int, start: Tensor) -> None:
        self.register_buffer(f"value_{index}", start)
        self.register_buffer(f"square_{index}", torch.zeros_like(start))

    def _values(self, kind: str) -> list[Tensor]:
        return [self.get_buffer(f"{kind}_{index}") for index in range(self._num_values)]


# As published.
_NOISE_SIZE = 10
_GENERATOR_HIDDEN = 50
_CRITIC_HIDDEN = 20
_CRITIC_STEPS = 5
_FIT_DRAWS = 128
# The publication fits 10,000 steps at a rate of 1e-4: as far, in fewer steps.
_FIT_STEPS = 1000
_FIT_RATE = 1e-3
# Larger steps would undo the fit at once, and the loss would jump.
_LARGEST_RATE = 1e-3


@final
class Masking(Method):
    """Cross entropy of the given label after a random transition matrix of known structure.

    Formula, with S a draw of the transition matrix for the row:

        -log sum_i p_i S[i, y],   S = softmax over j of G(noise)

    G is a generator of matrices in a game of three players. It learns to explain the
    given labels and to match the structure; a critic D learns to tell its structure from
    the mask; the network is trained on the formula above:

        G: mean(-log sum_i p_i S[i, y]) - mean(D(f(S)))
        D: mean(D(f(S))) - D(mask),   f(s) = sigmoid((s - threshold) / (threshold / 10))

    In each step G takes one step of RMSProp, D five, then the network its own. A warm-up trains
    the network on cross entropy; a transition matrix is read from its most certain row of each
    class, G is fitted to that, and the network continues from its weights.

    Differences from the authors' code: the warm-up is a quarter of the epochs and not half,
    because a longer one memorises wrong labels where data are few, and the matrix then shows no
    noise; the learning rate continues its schedule after it; the rate of G and D is given for the
    whole run, so that it suits any number of steps (theirs: 1e-5 in each of 150,000), and is at
    most 0.001 in a step; their running squares start from 0 (see ``Player``); G and the network
    see one batch and not two; G's step does not change the network (theirs also moved it, by a
    rate 10,000 times smaller than its own); G is fitted in 1,000 steps at a tenfold rate instead
    of 10,000. Like their code, and unlike its comments, it does not clip the critic's weights.

    Keeps about 140 C * C numbers, B * C * C in a batch of B rows, N * C once after the warm-up.

    Args:
        structure: Where the matrix may differ from 0: "open" (everywhere), "column" (the diagonal
            and ``columns``), "tridiagonal", "block" (``groups``), or a matrix of zeros and ones
            as nested lists or as a path (``.csv`` or ``.npy``).
        columns: For "column", the classes whose label is given to rows of any class.
        groups: For "block", the classes of each group.
        warm_up: Share of the epochs on cross entropy before the game, in (0, 1).
        threshold: Smallest chance at which a transition counts as present, in (0, 1).
        rate: Sum of the learning rates of G and D over all steps, not negative.

    Raises:
        ArgumentError: If an option is out of its range.
        DataError: If the file cannot be read.

    Examples:
        >>> method = Masking("tridiagonal")
        >>> method.start(Facts(torch.tensor([0, 1, 2]), num_classes=3, num_epochs=4, seed=0))
        >>> method.mask.int()
        tensor([[1, 1, 0],
                [1, 1, 1],
                [0, 1, 1]], dtype=torch.int32)

    Reference:
        Han et al., "Masking: a new perspective of noisy supervision", NeurIPS 2018.
    """

    mask: Tensor
    generator: Player
    critic: Player

    def __init__(
        self,
        structure: str | Sequence[Sequence[float]] = "open",
        *,
        columns: Sequence[int] | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        warm_up: float = 0.25,
        threshold: float = 0.05,
        rate: float = 1.5,
    ) -> None:
        super().__init__()
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True, open_high=True)
        check_interval("threshold", threshold, low=0, high=1, open_low=True, open_high=True)
        check_interval("rate", rate, low=0)
        self.structure = Structure(structure, columns=columns, groups=groups)
        self.warm_up = warm_up
        self.threshold = threshold
        self.rate = rate
        self._is_playing = False

    @property
    def has_stages(self) -> bool:
        """Whether the length of a run decides what is trained when: the warm-up is a part of it."""
        return True

    def start(self, facts: Facts) -> None:
        """Creates the players, and the mask for these classes."""
        super().start(facts)
        if facts.num_epochs < 2:
            raise ArgumentError("masking has a warm-up and needs at least 2 epochs")
        size = facts.num_classes
        self.register_buffer("mask", torch.from_numpy(self.structure.mask(size)))
        draws = torch_generator(facts.seed, "masking start")
        sizes = (_NOISE_SIZE, _GENERATOR_HIDDEN, _GENERATOR_HIDDEN, size * size)
        self.generator = Player(sizes, torch.relu, draws)
        self.critic = Player((size * size, _CRITIC_HIDDEN, 1), torch.sigmoid, draws)
        self.to(facts.labels.device)

    def start_epoch(self, epoch: int) -> None:
        """Begins the game once the warm-up is over."""
        self._is_playing = epoch >= self._warm_up_epochs()

    def end_epoch(self, epoch: int) -> None:
        """At the end of the warm-up, fits the generator to an estimated matrix."""
        if epoch == self._warm_up_epochs() - 1:
            assert self.facts.predict is not None
            logits = self.facts.of_counted(self.facts.predict())
            probabilities = logits.double().softmax(1).numpy()
            estimate = estimate_transition_from_anchors(probabilities, quantile=1.0)
            self._fit(torch.from_numpy(estimate).float().to(self.facts.labels.device))

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        logits = precise(rows.logits)
        if not self._is_playing:
            return functional.cross_entropy(logits, rows.target, reduction="none")
        log_p = logits.log_softmax(1)
        with torch.autocast(log_p.device.type, enabled=False), torch.no_grad():
            log_s = self._log_transitions(self._play(log_p.detach().float(), rows))
        return _explained(log_p, log_s.to(log_p.dtype), rows.target)

    def _play(self, log_p: Tensor, rows: Rows) -> Tensor:
        """One step of the game, the same on all ranks; returns the noise of this rank's rows."""
        # All ranks see the whole batch, so each takes the step that a single process would take.
        whole, counts = self.facts.gather(torch.column_stack([log_p, rows.counts()])).split(
            [log_p.shape[1], 1], dim=1
        )
        target, place = self.facts.gather(torch.stack([rows.target, rows.row], dim=1)).unbind(1)
        # The steps so far decide the draws, so a resumed run draws what it would have drawn.
        draws = torch_generator(self.facts.seed, "masking", int(self.critic.num_steps))
        size = (_CRITIC_STEPS + 2, len(whole), _NOISE_SIZE)
        noise = torch.randn(size, generator=draws).to(log_p.device)
        if self.training:
            num_epochs = self.facts.num_epochs - self._warm_up_epochs()
            num_steps = len(self.facts.labels) * num_epochs / len(whole)
            rate = min(self.rate / num_steps, _LARGEST_RATE)
            self._improve_generator(noise[0], whole, target, counts.squeeze(1), rate)
            for each in noise[1:-1]:
                self._improve_critic(each, rate)
        order = place.argsort()
        return noise[-1][order[torch.searchsorted(place[order], rows.row)]]

    def _improve_generator(
        self, noise: Tensor, log_p: Tensor, target: Tensor, counts: Tensor, rate: float
    ) -> None:
        share = counts / counts.sum().clamp(min=torch.finfo(counts.dtype).tiny)
        # A row that does not count may be anything, NaN included.
        log_p = log_p.masked_fill((counts == 0).unsqueeze(1), 0)

        def loss(values: Sequence[Tensor]) -> Tensor:
            log_s = self._log_transitions(noise, values)
            judged: Tensor = self.critic(self._extracted(log_s.exp()))
            return (_explained(log_p, log_s, target) * share).sum() - judged.mean()

        self.generator.improve(loss, rate)

    def _improve_critic(self, noise: Tensor, rate: float) -> None:
        with torch.no_grad():
            made = self._extracted(self._log_transitions(noise).exp())
        real = self.mask.to(made.dtype).view(1, -1)
        judged = self.critic
        judged.improve(lambda at: judged(made, at).mean() - judged(real, at).mean(), rate)

    def _fit(self, estimate: Tensor) -> None:
        draws = torch_generator(self.facts.seed, "masking fit")
        for _ in range(_FIT_STEPS):
            noise = torch.randn(_FIT_DRAWS, _NOISE_SIZE, generator=draws).to(estimate.device)

            def loss(values: Sequence[Tensor], noise: Tensor = noise) -> Tensor:
                log_s = self._log_transitions(noise, values)
                return -(estimate * log_s).sum((1, 2)).mean()

            self.generator.improve(loss, _FIT_RATE)

    def _log_transitions(self, noise: Tensor, values: Sequence[Tensor] | None = None) -> Tensor:
        """Logarithms of transition matrices, shape (B, C, C), one for each draw of noise."""
        size = self.facts.num_classes
        scores: Tensor = self.generator(noise, values)
        return scores.view(-1, size, size).log_softmax(2)

    def _extracted(self, transitions: Tensor) -> Tensor:
        """How much each transition counts as present, in [0, 1], shape (B, C * C)."""
        return torch.sigmoid((transitions - self.threshold) / (self.threshold / 10)).flatten(1)

    def _warm_up_epochs(self) -> int:
        return first_stage(self.warm_up, self.facts.num_epochs)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"structure={self.structure.kind!r}, warm_up={self.warm_up}, rate={self.rate}"


def _explained(log_p: Tensor, log_s: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of given labels (B,) by classes (B, C) and transitions (B, C, C)."""
    index = target.view(-1, 1, 1).expand(-1, log_s.shape[1], 1)
    return -torch.logsumexp(log_p + log_s.gather(2, index).squeeze(2), 1)
