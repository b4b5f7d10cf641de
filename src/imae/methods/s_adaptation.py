"""A layer after the network that learns how labels go wrong."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from imae.errors import ArgumentError, check_choice, check_interval
from imae.losses.margin import precise
from imae.methods.method import Facts, Method, Rows, first_stage
from imae.models.network import Network

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

    As published, but for the end of the warm-up: there early stopping on held-out rows, here a
    share of the epochs. A quarter, because a longer one memorises wrong labels where data
    are few, and the layer then starts from too little noise. Keeps C * C numbers, the complex
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

    def start(self, facts: Facts) -> None:
        """Makes the layer, at first without knowledge: every label equally likely."""
        super().start(facts)
        if facts.num_epochs < 2:
            raise ArgumentError("s_adaptation has a warm-up, and so takes 2 epochs or more")
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
            assert self.facts.predict is not None
            labels = self.facts.labels.cpu()
            start = log_confusion(self.facts.predict(), labels, self.facts.num_classes)
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


def log_confusion(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Logarithm of the chance of each given label, by the class that a network sees.

    Formula, over rows t:

        log(sum_t [y_t = j] p_i(x_t) / sum_t p_i(x_t))

    Summed as logarithms, so that a class which the network never sees still has a finite row. A
    label that no row has gets the lowest number there is.

    Args:
        logits: Of all rows, shape (N, C).
        labels: Given labels, shape (N,).
        num_classes: Number of classes C.

    Returns:
        Shape (C, C), class by label, float32.

    Examples:
        >>> logits = torch.tensor([[9.0, -9.0], [9.0, -9.0], [-9.0, 9.0]])
        >>> log_confusion(logits, torch.tensor([0, 1, 1]), 2).exp()
        tensor([[5.0000e-01, 5.0000e-01],
                [1.5230e-08, 1.0000e+00]])
    """
    log_p = logits.double().log_softmax(1)
    columns = [log_p[labels == label].logsumexp(0) for label in range(num_classes)]
    joint = torch.stack(columns, dim=1) - log_p.logsumexp(0).unsqueeze(1)
    return joint.float().clamp(min=torch.finfo(torch.float32).min)
