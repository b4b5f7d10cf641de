"""What every network gives: features, and logits that are linear in them."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Network(nn.Module, ABC):
    """A classifier that ends in a linear layer: ``logits = classifier(features)``.

    A leaf class writes ``features`` and names its last layer; calling the network gives logits, as
    any PyTorch module does. A training loop that needs both takes ``features_and_logits``, which
    is one pass. Networks hold no dropout: the same weights and the same batch give the same
    numbers, and no random number is drawn outside of the start weights.

    Examples:
        >>> import torch
        >>> class Probe(Network):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = nn.Linear(4, 3)
        ...
        ...     @property
        ...     def classifier(self):
        ...         return self.fc
        ...
        ...     def features(self, x):
        ...         return x.flatten(1)
        >>> features, logits = Probe().features_and_logits(torch.zeros(2, 1, 2, 2))
        >>> features.shape, logits.shape
        (torch.Size([2, 4]), torch.Size([2, 3]))
    """

    @property
    @abstractmethod
    def classifier(self) -> nn.Linear:
        """The last layer, from E features to C logits."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Input of the last layer, shape (N, E), for a batch of shape (N, ...)."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits, shape (N, C), for a batch of shape (N, ...)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits

    def features_and_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, E) and logits (N, C) of a batch, from one pass."""
        features = self.features(x)
        return features, self.classifier(features)
