"""Losses that need the whole distribution, and so are not curves."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from imae._checks import check_interval
from imae.losses.arguments import Labels, as_class_weight, of_label, reduce_rows


def label_smoothing_loss(
    logits: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy with labels smoothed towards the uniform distribution.

    Formula, with e the smoothing:

        -(1 - e) log p_y - e / C sum_k log p_k

    It is ``torch.nn.functional.cross_entropy(..., label_smoothing=e)`` under the name by which
    the paper compares with it.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes or probabilities, as for ``imae.curve_loss``.
        smoothing: Part of the label spread evenly over all classes, in [0, 1].
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of the class targets.

    Examples:
        >>> label_smoothing_loss(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)

    Reference:
        Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016.
    """
    check_interval("smoothing", smoothing, low=0, high=1)
    return torch.nn.functional.cross_entropy(
        logits,
        target,
        weight=as_class_weight(weight),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=smoothing,
    )


def bootstrap_loss(
    logits: Tensor,
    target: Tensor,
    *,
    beta: float = 0.95,
    hard: bool = False,
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy against a mixture of the label and the network's own prediction.

    Formula, with t the one-hot label:

        soft: -sum_k (beta t_k + (1 - beta) p_k) log p_k, differentiated through p_k too
        hard: -sum_k (beta t_k + (1 - beta) [k = argmax p]) log p_k

    The paper's settings: beta = 0.95 soft, beta = 0.8 hard.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        beta: Trust in the label, in [0, 1].
        hard: Whether the prediction enters as its most likely class.
        weight: Factor of each class of the label, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> bootstrap_loss(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)

    Reference:
        Reed et al., "Training deep neural networks on noisy labels with bootstrapping",
        ICLR workshop 2015.
    """
    check_interval("beta", beta, low=0, high=1)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        if hard:
            own_view = -log_p.amax(1)
        else:
            # A class that is impossible adds 0 to the entropy, not 0 * inf.
            impossible = log_p == -torch.inf
            own_view = -(log_p.exp() * log_p.masked_fill(impossible, 0)).sum(1)
        return -beta * of_label(log_p, labels) + (1 - beta) * own_view

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def eps_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    m: float = 1e5,
    alpha: float = 0.01,
    beta: float = 5.0,
    A: float = -18.420680743952367,  # noqa: N803
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of predictions pushed towards a one-hot vector, plus MAE.

    Formula, with t the most likely class:

        -alpha max(A, log((p_y + m [y = t]) / (1 + m))) + 2 beta (1 - p_y)

    The larger m, the less the first term says of rows that are predicted as labelled, and the
    less a row counts whose label is another class: below A it sends no gradient there. Defaults
    are those of the authors' code for CIFAR-10 with symmetric noise; A is their log(1e-8).

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        m: What is added to the largest probability, not negative; 0 for cross entropy plus MAE.
        alpha: Factor of the cross entropy, not negative.
        beta: Factor of the mean absolute error, not negative.
        A: Smallest logarithm of a probability, negative.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> eps_softmax_loss(logits, torch.tensor([0]), m=0.0, alpha=1.0, beta=0.0)
        tensor(0.1269)

    Reference:
        Wang et al., "Epsilon-softmax: approximating one-hot vectors for mitigating label noise",
        NeurIPS 2024.
    """
    check_interval("m", m, low=0)
    check_interval("alpha", alpha, low=0)
    check_interval("beta", beta, low=0)
    check_interval("A", A, high=0, open_high=True)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        own = of_label(log_p, labels)
        rest = -torch.expm1(own)  # 1 - p_y
        assert labels.index is not None
        is_top = log_p.argmax(1) == labels.index
        pushed = torch.where(is_top, torch.log1p(-rest / (1 + m)), own - math.log1p(m))
        return -alpha * pushed.clamp(min=A) + 2 * beta * rest

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


class DistributionLoss(nn.Module):
    """A loss function as a module; a leaf class names the function.

    The module takes the function's arguments, with its defaults, in its order. Tensors among them
    are buffers: they move with the module and are saved with it.
    """

    function: ClassVar[Callable[..., Tensor]]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        parameters = list(inspect.signature(cls.function).parameters.values())[2:]
        # The first argument may be given by position: ``BootstrapLoss(0.8)``.
        parameters[0] = parameters[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        bound = type(self).__signature__.bind(*arguments, **options)
        bound.apply_defaults()
        self._names = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            value = as_class_weight(value) if name == "weight" else value
            if isinstance(value, Tensor) or name == "weight":
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of ``logits``, shape (N, C, ...), for ``target``, shape (N, ...)."""
        options = {name: getattr(self, name) for name in self._names}
        return type(self).function(logits, target, **options)


class LabelSmoothingLoss(DistributionLoss):
    """Smoothed cross entropy; see ``imae.losses.label_smoothing_loss``."""

    function = staticmethod(label_smoothing_loss)


class BootstrapLoss(DistributionLoss):
    """Bootstrapped cross entropy; see ``imae.losses.bootstrap_loss``."""

    function = staticmethod(bootstrap_loss)


class EpsSoftmaxLoss(DistributionLoss):
    """Cross entropy after epsilon-softmax, plus MAE; see ``imae.losses.eps_softmax_loss``."""

    function = staticmethod(eps_softmax_loss)
