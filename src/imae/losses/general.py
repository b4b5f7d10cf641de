"""Losses that need the whole distribution, and so are not curves."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from imae._checks import check_interval
from imae.curves.classic import MAE
from imae.curves.curve import Curve, Scale
from imae.losses.arguments import Labels, as_class_weight, reduce_rows
from imae.losses.margin import margin, value_at_margin


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
        return -beta * _of_label(log_p, labels) + (1 - beta) * own_view

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def normalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    scale: float = 1.0,
    passive: Curve | None = None,
    weight: Tensor | Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy divided by its sum over all labels, optionally plus a passive loss.

    Formula:

        scale log p_y / sum_k log p_k + phi(m), phi the passive curve

    The active-passive pairs of the paper are ``passive=MAE()`` and, for reverse cross entropy
    with log 0 := A, ``passive=reverse_cross_entropy(A=-4.0)``; both with factors of their own.

    Args:
        logits: Unnormalised scores, shape (C), (N, C) or (N, C, d1, ..., dK), any float dtype.
        target: Classes, as for ``imae.curve_loss``.
        scale: Factor of the normalised cross entropy, not negative.
        passive: Curve to add; None for none.
        weight: Factor of each class, shape (C).
        ignore_index: Class whose rows do not count.
        reduction: "none", "mean" or "sum".

    Returns:
        A scalar, or with ``reduction="none"`` the shape of ``target``.

    Examples:
        >>> normalized_cross_entropy(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)

    Reference:
        Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020.
    """
    check_interval("scale", scale, low=0)

    def rows(log_p: Tensor, labels: Labels) -> Tensor:
        total = log_p.sum(1)
        # With one class both are 0, and the loss is 0 as cross entropy is.
        share = _of_label(log_p, labels) / total.masked_fill(total == 0, 1)
        if passive is None:
            return scale * share
        assert labels.index is not None
        return scale * share + value_at_margin(margin(labels.logits, labels.index), passive)

    return reduce_rows(
        logits, target, rows, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def reverse_cross_entropy(*, A: float = -4.0, factor: float = 1.0) -> Curve:  # noqa: N803
    """The curve of cross entropy with label and prediction exchanged, a multiple of MAE.

    Formula:

        phi(m) = -factor A (1 - p)

    Args:
        A: The value used for log 0, negative.
        factor: Factor of the loss, not negative.

    Examples:
        >>> reverse_cross_entropy(A=-4.0).weight(torch.tensor([0.5]))
        tensor([2.])

    Reference:
        Wang et al., "Symmetric cross entropy for robust learning with noisy labels", ICCV 2019.
    """
    check_interval("A", A, high=0, open_high=True)
    return Scale(MAE(), -A / 2 * factor)


def _of_label(log_p: Tensor, labels: Labels) -> Tensor:
    assert labels.index is not None
    return log_p.gather(1, labels.index.unsqueeze(1)).squeeze(1)


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


class NormalizedCELoss(DistributionLoss):
    """Normalised cross entropy; see ``imae.losses.normalized_cross_entropy``."""

    function = staticmethod(normalized_cross_entropy)
