"""The interface of every network, networks by name, and networks of the user's own."""

import copy
import importlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from imae.errors import ArgumentError, check_integer, check_interval, in_one_line
from imae.models.catalog import MODELS


def he_normal(network: nn.Module) -> None:
    """Draws every convolution's weights from a normal of variance 2 / fan-in; biases become 0.

    Fan-in rather than fan-out, because PyTorch's fan-out ignores groups and would start a
    depthwise convolution with weights near 0. Linear layers keep PyTorch's own start.

    Args:
        network: Changed in place.

    Examples:
        >>> layer = nn.Conv2d(64, 128, kernel_size=3)
        >>> he_normal(layer)
        >>> round(layer.weight.detach().var().item() * 64 * 9, 1)
        2.0

    Reference:
        He et al., "Delving deep into rectifiers", ICCV 2015, Eq. (10).
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class Network(nn.Module, ABC):
    """A classifier that ends in a linear layer: ``logits = classifier(features)``.

    A leaf class implements ``features`` and ``classifier``; calling the network returns logits, as
    for any PyTorch module. A training loop that needs both calls ``features_and_logits``, which
    is one pass. Networks have no dropout: the same weights and the same batch give the same
    numbers, and no random number is drawn outside of the initial weights.

    Examples:
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


@final
class CustomNetwork(Network):
    """Any module that returns logits, with its features read at its last linear layer.

    The last layer is the last registered ``nn.Linear`` with as many outputs as classes. A module
    without one still returns logits, but its features are an error. Subclass ``Network``
    instead to define the features yourself.

    Args:
        module: Takes a batch and returns logits, shape (N, C).
        num_classes: Number of classes C.

    Examples:
        >>> body = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> CustomNetwork(body, num_classes=3).features(torch.zeros(2, 2, 2)).shape
        torch.Size([2, 8])
    """

    def __init__(self, module: nn.Module, *, num_classes: int) -> None:
        super().__init__()
        self.module = module
        # Its name and not the layer, which would be in the state dict a second time.
        self._classifier_name: str | None = None
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Linear) and layer.out_features == num_classes:
                self._classifier_name = name

    @property
    def classifier(self) -> nn.Linear:
        """The last linear layer with as many outputs as classes.

        Raises:
            ArgumentError: If the module has none.
        """
        if self._classifier_name is None:
            raise ArgumentError(
                f"{type(self.module).__name__} has no nn.Linear with one output for each class, "
                "so its features are not known; subclass imae.models.Network to give them"
            )
        layer = self.module.get_submodule(self._classifier_name)
        assert isinstance(layer, nn.Linear)
        return layer

    def features(self, x: Tensor) -> Tensor:
        """Input of the last linear layer, shape (N, E), for a batch of shape (N, ...)."""
        return self.features_and_logits(x)[0]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the module, shape (N, C), for a batch of shape (N, ...)."""
        logits: Tensor = self.module(x)
        return logits

    def features_and_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, E) and logits (N, C) of a batch, from one pass.

        Raises:
            ArgumentError: If the last linear layer is not found, or not used once on (N, E).
        """
        seen: list[Tensor] = []
        handle = self.classifier.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            logits = self(x)
        finally:
            handle.remove()
        if len(seen) != 1 or seen[0].ndim != 2 or len(seen[0]) != len(x):
            shapes = ", ".join(str(tuple(each.shape)) for each in seen) or "nothing"
            raise ArgumentError(
                f"layer {self._classifier_name!r} of {type(self.module).__name__} must be called "
                f"once with features of shape ({len(x)}, E), got {shapes}; "
                "subclass imae.models.Network to give them"
            )
        return seen[0], logits


def as_network(module: nn.Module, num_classes: int) -> Network:
    """A copy of a module that returns logits, as a network."""
    module = copy.deepcopy(module)
    return module if isinstance(module, Network) else CustomNetwork(module, num_classes=num_classes)


def build(name: str, *, num_classes: int, seed: int = 0, **options: Any) -> Network:
    """A network with initial weights drawn from ``seed``.

    The global random state is neither read nor changed.

    Args:
        name: Name in the catalog, or ``package.module:function`` for a function of the user's
            that takes ``num_classes`` and returns a module.
        num_classes: Number of classes C, at least 2.
        seed: Seed of the initial weights, in [0, 2**64).
        options: Further keywords of the network: `input_options` gives those that follow from the
            data.

    Raises:
        ArgumentError: If the name is unknown, a number is out of range, the network takes no
            such option, or the function is not found or returns no module.

    Examples:
        >>> network = build("resnet20", num_classes=10, seed=1)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    check_integer("num_classes", num_classes, low=2)
    check_integer("seed", seed, low=0)
    check_interval("seed", seed, low=0, high=2**64, open_high=True)
    # Layers draw from the global generator when they are made. Only the generator of the CPU is
    # seeded: the block would not restore those of other devices.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(seed))
        if ":" in name:
            return build_custom(name, num_classes=num_classes, **options)
        return MODELS.build(name, num_classes=num_classes, **options)


def input_options(name: str, input_shape: Sequence[int]) -> dict[str, int]:
    """Options of a network that follow from the shape of one input.

    Args:
        name: Name in the catalog; a user's own function has no such options.
        input_shape: (channels, height, width) of an image, or (F,) for a row of F numbers.

    Returns:
        Keywords for `build`.

    Raises:
        ArgumentError: If the network does not take inputs of this shape.

    Examples:
        >>> input_options("small_cnn", (1, 8, 8)), input_options("mlp", (1, 8, 8))
        ({'in_channels': 1}, {'in_features': 64})
    """
    if ":" in name:
        return {}
    takes = MODELS.find(name).defaults
    if "in_features" in takes:
        return {"in_features": math.prod(input_shape)}
    if len(input_shape) != 3:
        raise ArgumentError(
            f"model {name!r} takes images and the inputs have shape {tuple(input_shape)}; use mlp"
        )
    channels, height, width = input_shape
    if "image_size" not in takes:
        return {"in_channels": channels}
    if height != width:
        raise ArgumentError(f"model {name!r} takes square images, got {height} x {width}")
    return {"in_channels": channels, "image_size": height}


_SMALL_IMAGE = 24
_PHOTO = 96
_WIDE_ROW = 4096  # numbers in a row, such as words of texts
_WIDE_FEATURES, _ROWS_PER_FEATURE = 256, 5


def model_for(shape: Sequence[int], num_rows: int) -> str:
    """Name of a network that suits this many inputs of this shape.

    A network with hidden layers memorises words of texts, and features of a few thousand photos:
    with 3,068 photos and 30% symmetric noise it ended at 50.2% of the held-out given labels, a
    linear one at 58.3%.

    Examples:
        >>> [model_for(shape, 5000) for shape in ((64,), (1, 8, 8), (3, 32, 32), (3, 227, 227))]
        ['mlp', 'small_cnn', 'resnet20', 'resnet50']
        >>> model_for((8192,), 50_000), model_for((1280,), 3000), model_for((1280,), 50_000)
        ('linear', 'linear', 'mlp')
    """
    if len(shape) != 3:
        width = max(shape)
        has_few_rows = width >= _WIDE_FEATURES and num_rows < _ROWS_PER_FEATURE * width
        return "linear" if width > _WIDE_ROW or has_few_rows else "mlp"
    if max(shape[1:]) < _SMALL_IMAGE:
        return "small_cnn"
    return "resnet20" if max(shape[1:]) < _PHOTO else "resnet50"


def build_custom(path: str, *, num_classes: int, **options: Any) -> Network:
    """The network that the user's function at ``package.module:function`` returns.

    Args:
        path: Where the function is.
        num_classes: Number of classes C; the function gets it as a keyword.
        options: Further keywords for the function.

    Returns:
        What the function returned if it is a ``Network``; any other module wrapped into one.

    Raises:
        ArgumentError: If the function is not found, does not take these keywords or returns no
            module.

    Examples:
        >>> network = build_custom("imae.models.small:MLP", num_classes=3, in_features=4)
        >>> network.classifier
        Linear(in_features=256, out_features=3, bias=True)
    """
    function = _import_function(path)
    keywords = {"num_classes": num_classes, **options}
    try:
        inspect.signature(function).bind(**keywords)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"model {path!r} cannot be called with {', '.join(keywords)}: {error}"
        ) from error
    network = function(**keywords)
    if isinstance(network, Network):
        return network
    if isinstance(network, nn.Module):
        return CustomNetwork(network, num_classes=num_classes)
    raise ArgumentError(
        f"model {path!r} must return a torch.nn.Module, got {type(network).__name__}"
    )


def _import_function(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    try:
        function: object = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:  # the user's module runs here and may fail in any way
        reason = in_one_line(error)
        raise ArgumentError(
            f"model {path!r}: cannot import {module_name!r} ({reason}); it must be installed or "
            "in a folder named in PYTHONPATH"
        ) from error
    if not callable(function):
        raise ArgumentError(f"model {path!r}: {module_name!r} has no function {name!r}")
    return function
