"""Correction by a transition matrix: given, known, estimated in a first stage, or learned."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from imae.errors import ArgumentError, check_choice, check_interval
from imae.losses.general import LARGEST_CONDITION, forward_correction
from imae.losses.margin import log_probabilities, precise
from imae.methods.matrix import read_matrix
from imae.methods.method import Facts, Method, Restart, Rows, first_stage
from imae.models.network import Network
from imae.noise.by_class import check_transition
from imae.noise.estimate import estimate_transition_from_anchors

_QUANTILE = 0.97


class Correction(Method):
    """Common base of the two corrections: where the matrix comes from, and when.

    The matrix is a buffer of size C * C, so a resumed run has the one that it was trained with.
    Until there is a matrix, it is that of labels without noise, and the loss is cross entropy.

    Args:
        matrix: "estimate"; "known" for the matrix of the noise that the run adds or, if the true
            labels are known, the counted one; the matrix as nested lists; or a path to it
            (``.csv`` or ``.npy``). Entry (i, j) is the chance of given label j where the true
            one is i; rows sum to 1.
        warm_up: For "estimate", the first stage's share of the epochs, in (0, 1).
        quantile: For "estimate", the anchor's position in the order of the class's probability;
            None for 0.97, or 1 if there are so many classes that 3% of the rows are more than
            the average size of a class, as in the publication.

    Raises:
        ArgumentError: If an option is out of its range.
        DataError: If the file cannot be read.
    """

    transition: Tensor | None

    def __init__(
        self,
        matrix: str | Sequence[Sequence[float]] = "estimate",
        *,
        warm_up: float = 0.5,
        quantile: float | None = None,
    ) -> None:
        super().__init__()
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True, open_high=True)
        if quantile is not None:
            check_interval("quantile", quantile, low=0, high=1)
        self.warm_up = warm_up
        self.quantile = quantile
        is_named = isinstance(matrix, str) and matrix in ("estimate", "known")
        self.source = matrix if is_named else "given"
        self.register_buffer("transition", None)
        if self.source == "given":
            name = f"matrix ({matrix})" if isinstance(matrix, str) else "matrix"
            self.set_transition(check_transition(name, read_matrix("matrix", matrix)))

    @abstractmethod
    def corrected(self, logits: Tensor, target: Tensor) -> Tensor:
        """Corrected loss of every row, shape (B,), once there is a matrix."""

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        if self.transition is None:
            return functional.cross_entropy(precise(rows.logits), rows.target, reduction="none")
        return self.corrected(rows.logits, rows.target)

    def start(self, facts: Facts) -> None:
        """Takes the matrix that is known, or that of no noise until one is estimated."""
        super().start(facts)
        if self.source == "estimate":
            self.set_transition(np.eye(facts.num_classes))
        elif self.source == "known":
            if facts.transition is None:
                raise ArgumentError(
                    "matrix 'known' is for runs that add noise by a matrix, or "
                    "have the true labels; use 'estimate' or give the matrix"
                )
            known = facts.transition.detach().cpu().double().numpy()
            self.set_transition(check_transition("the known transition", known))
        assert self.transition is not None
        if len(self.transition) != facts.num_classes:
            shape = tuple(self.transition.shape)
            raise ArgumentError(f"matrix must be for {facts.num_classes} classes, got {shape}")
        self._check_possible(facts)
        self.to(facts.labels.device)

    def restart(self) -> Restart | None:
        """The first epoch after the estimate, from which new networks are trained."""
        if self.source != "estimate":
            return None
        if self.facts.num_epochs < 2:
            raise ArgumentError(
                "matrix 'estimate' has two stages and needs at least 2 epochs; "
                "train longer or give the matrix"
            )
        return Restart(self._stage_end())

    def end_epoch(self, epoch: int) -> None:
        """At the end of the first stage, estimates the matrix."""
        if self.source == "estimate" and epoch == self._stage_end() - 1:
            assert self.facts.predict is not None
            logits = self.facts.of_counted(self.facts.predict())
            probabilities = logits.double().softmax(1).numpy()
            self.set_transition(
                estimate_transition_from_anchors(probabilities, quantile=self._quantile())
            )
            self.to(self.facts.labels.device)

    def set_transition(self, matrix: NDArray[np.float64]) -> None:
        """Corrects by this matrix from now on, shape (C, C)."""
        self.register_buffer("transition", torch.from_numpy(matrix).float())

    def _check_possible(self, facts: Facts) -> None:
        assert self.transition is not None
        labels = facts.labels
        is_impossible = facts.of_counted((self.transition.amax(0) == 0).to(labels.device)[labels])
        if bool(is_impossible.any()):
            row = int(facts.counted[int(is_impossible.int().argmax())])
            raise ArgumentError(
                f"matrix gives label {int(labels[row])} no chance from any class, "
                f"but training row {row} has it"
            )

    def _stage_end(self) -> int:
        return first_stage(self.warm_up, self.facts.num_epochs)

    def _quantile(self) -> float:
        if self.quantile is not None:
            return self.quantile
        return _QUANTILE if (1 - _QUANTILE) * self.facts.num_classes <= 1 else 1.0

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"matrix={self.source!r}, warm_up={self.warm_up}, quantile={self.quantile}"


@final
class ForwardCorrection(Correction):
    """Cross entropy of the noisy label that the network and the noise together predict.

    Formula, with T the transition matrix:

        -log sum_i p_i T[i, y]

    With ``matrix="estimate"`` the run has two stages. The first trains on cross entropy; then T
    is read off the network's own probabilities, T[i, j] = p_j of the anchor of class i, a row
    that is almost surely of class i. The second trains new networks on the corrected loss.
    Needs the logits of all rows once, N * C numbers, and keeps C * C.

    One difference from the publication: the last network of the first stage is used, not
    the one with the lowest loss on held-out rows. By default each stage has half of the epochs.

    Args:
        matrix: "estimate", "known", nested lists or a path to ``.csv`` or ``.npy``.
        warm_up: For "estimate", the first stage's share of the epochs, in (0, 1).
        quantile: For "estimate", the place of an anchor; None for that of the publication.

    Raises:
        ArgumentError: If an option is out of its range.
        DataError: If the file cannot be read.

    Examples:
        >>> method = ForwardCorrection([[0.9, 0.1], [0.4, 0.6]])
        >>> method(Rows(torch.zeros(2, 2), torch.tensor([0, 1]), torch.arange(2)))
        tensor([0.4308, 1.0498])

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017, Th. 2 and Algorithm 1.
    """

    def corrected(self, logits: Tensor, target: Tensor) -> Tensor:
        """Corrected loss of every row, shape (B,)."""
        assert self.transition is not None
        return forward_correction(logits, target, self.transition, reduction="none")


@final
class BackwardCorrection(Correction):
    """Cross entropy made unbiased by the inverse of the noise; it may be negative.

    Formula, with T the transition matrix:

        -sum_j inverse(T)[y, j] log p_j

    Its mean over the noise is the cross entropy of the true label. But some entries of the inverse
    are negative, so the loss has no lower bound: a network that fits single rows can drive it down
    without learning. ``forward`` is the safer of the two, as the publication also finds. The
    stages and their cost are those of ``ForwardCorrection``; the inverse is kept as well.

    Args:
        matrix: "estimate", "known", nested lists or a path to ``.csv`` or ``.npy``; invertible.
        warm_up: For "estimate", the first stage's share of the epochs, in (0, 1).
        quantile: For "estimate", the place of an anchor; None for that of the publication.

    Raises:
        ArgumentError: If an option is out of its range, or the matrix has no inverse.
        DataError: If the file cannot be read.

    Examples:
        >>> method = BackwardCorrection([[0.9, 0.1], [0.4, 0.6]])
        >>> method(Rows(torch.tensor([[2.0, 0.0]]), torch.tensor([1]), torch.arange(1)))
        tensor([3.7269])

    Reference:
        Patrini et al., "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017, Th. 1 and Algorithm 1.
    """

    inverse: Tensor

    def set_transition(self, matrix: NDArray[np.float64]) -> None:
        """Corrects by this matrix from now on, shape (C, C); inverts it once, not every step."""
        if not np.linalg.cond(matrix) <= LARGEST_CONDITION:
            raise ArgumentError(
                f"the {self.source} transition matrix has no inverse; use the method forward"
            )
        super().set_transition(matrix)
        self.register_buffer("inverse", torch.from_numpy(np.linalg.inv(matrix)).float())

    def corrected(self, logits: Tensor, target: Tensor) -> Tensor:
        """Corrected loss of every row, shape (B,)."""
        log_p = log_probabilities(precise(logits))
        shares = self.inverse.to(log_p.dtype)[target]
        # A class that has no share adds 0, also where it is impossible, and not 0 * inf.
        return -(shares * log_p.masked_fill(shares == 0, 0)).sum(1)


VARIANTS = ("simple", "complex")


@final
class SAdaptation(Method):
    """Cross entropy of the given label after a second softmax layer that models the noise.

    Formula, with h the input of the network's last layer, z its logits and y the given label:

        -log sum_i p_i(z) t_iy,   t_i = softmax over j of   b_ij              (simple)
                                                            u_ij . h + b_ij   (complex)

    The layer is trained along with the network and predicts the *given* label; only the
    network is evaluated and kept. Without a good start the two could agree on any order of the
    classes, so a warm-up trains the network on cross entropy, and then, over all rows t with
    given label y_t,

        b_ij = log(sum_t [y_t = j] p_i(x_t) / sum_t p_i(x_t)),   u_ij = 0

    is the confusion matrix of the network. The network continues from its weights.

    As published, except for the end of the warm-up: there by early stopping on held-out rows, here
    after a share of the epochs. It is a quarter, because a longer one memorises wrong labels where
    data are few, and the layer then starts from too little noise. Keeps C * C numbers, the complex
    variant C * C * E (E features) and B * C * C for a batch of B rows; the start needs
    the logits of all rows once, N * C.

    Args:
        variant: "simple" for noise that depends only on the class, "complex" for noise that
            depends on the features too.
        warm_up: Share of the epochs on cross entropy before the layer is added, in (0, 1).

    Raises:
        ArgumentError: If an option is out of its range.

    Examples:
        >>> facts = Facts(labels=torch.tensor([0, 1]), num_classes=2, num_epochs=4, seed=0)
        >>> method = SAdaptation()
        >>> method.start(facts)
        >>> method.start_epoch(2)  # the warm-up is over; the layer here knows nothing
        >>> method(Rows(torch.tensor([[9.0, 0.0]]), torch.tensor([1]), torch.tensor([1])))
        tensor([0.6931], grad_fn=<NegBackward0>)

    Reference:
        Goldberger and Ben-Reuven, "Training deep neural-networks using a noise adaptation
        layer", ICLR 2017.
    """

    bias: nn.Parameter
    weight: nn.Parameter | None

    def __init__(self, variant: str = "simple", *, warm_up: float = 0.25) -> None:
        super().__init__()
        check_choice("variant", variant, VARIANTS)
        check_interval("warm_up", warm_up, low=0, high=1, open_low=True, open_high=True)
        self.variant = variant
        self.needs_features = variant == "complex"
        self.warm_up = warm_up
        self.register_parameter("weight", None)
        self._is_adapting = False

    @property
    def has_stages(self) -> bool:
        """Whether the length of a run decides what is trained when: the warm-up is a part of it."""
        return True

    def start(self, facts: Facts) -> None:
        """Creates the layer, with every label equally likely at first."""
        super().start(facts)
        if facts.num_epochs < 2:
            raise ArgumentError("s_adaptation has a warm-up and needs at least 2 epochs")
        size = (facts.num_classes, facts.num_classes)
        device = facts.labels.device
        self.bias = nn.Parameter(torch.zeros(size, device=device))
        if self.variant == "complex":
            network = facts.networks[0]
            assert isinstance(network, Network)
            num_features = network.classifier.in_features
            self.weight = nn.Parameter(torch.zeros(*size, num_features, device=device))

    def start_epoch(self, epoch: int) -> None:
        """Adds the layer once the warm-up is over."""
        self._is_adapting = epoch >= self._warm_up_epochs()

    def end_epoch(self, epoch: int) -> None:
        """At the end of the warm-up, starts the layer from the confusion matrix."""
        if epoch == self._warm_up_epochs() - 1:
            facts = self.facts
            assert facts.predict is not None
            logits, labels = map(facts.of_counted, (facts.predict(), facts.labels.cpu()))
            start = log_confusion(logits, labels, facts.num_classes, facts.counts)
            with torch.no_grad():
                self.bias.copy_(start)

    def forward(self, rows: Rows) -> Tensor:
        """Loss of every row, shape (B,)."""
        logits = precise(rows.logits)
        if not self._is_adapting:
            losses = functional.cross_entropy(logits, rows.target, reduction="none")
            # Ranks wait for a gradient of every parameter; in the warm-up it is 0.
            return losses + 0 * sum(each.sum() for each in self.parameters())
        to_label = self._log_transition(rows)
        return -torch.logsumexp(logits.log_softmax(1) + to_label, 1)

    def _log_transition(self, rows: Rows) -> Tensor:
        """Log-chance of the given label from each class, shape (B, C)."""
        if self.weight is None:
            return self.bias.log_softmax(1).t()[rows.target]
        assert rows.features is not None
        with torch.autocast(rows.logits.device.type, enabled=False):
            features = precise(rows.features)
            weight = self.weight.to(features.dtype)
            scores = torch.einsum("be,ije->bij", features, weight) + self.bias
        index = rows.target.view(-1, 1, 1).expand(-1, len(self.bias), 1)
        return scores.log_softmax(2).gather(2, index).squeeze(2)

    def _warm_up_epochs(self) -> int:
        return first_stage(self.warm_up, self.facts.num_epochs)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"variant={self.variant!r}, warm_up={self.warm_up}"


def log_confusion(
    logits: Tensor, labels: Tensor, num_classes: int, weights: Tensor | None = None
) -> Tensor:
    """Logarithm of the chance of each given label, for each class that a network predicts.

    Formula, over rows t of weight w_t:

        log(sum_t w_t [y_t = j] p_i(x_t) / sum_t w_t p_i(x_t))

    Summed as logarithms, so that a class that the network never predicts still has a finite row. A
    label that no row has gets the smallest finite number.

    Args:
        logits: Of all rows, shape (N, C).
        labels: Given labels, shape (N,).
        num_classes: Number of classes C.
        weights: How much each row counts, shape (N,), positive; None if all count 1.

    Returns:
        Shape (C, C), class by label, float32.

    Examples:
        >>> logits = torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 9.0]])
        >>> log_confusion(logits, torch.tensor([0, 1, 1]), 2).exp()
        tensor([[5.0000e-01, 5.0000e-01],
                [1.5230e-08, 1.0000e+00]])
    """
    log_p = logits.double().log_softmax(1)
    if weights is not None:
        log_p = log_p + weights.to(log_p).log().unsqueeze(1)
    columns = [log_p[labels == label].logsumexp(0) for label in range(num_classes)]
    joint = torch.stack(columns, dim=1) - log_p.logsumexp(0).unsqueeze(1)
    return joint.float().clamp(min=torch.finfo(torch.float32).min)
