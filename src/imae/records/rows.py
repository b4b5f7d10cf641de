"""What a run keeps of every row it trained on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RunLabels:
    """Labels of the rows a run trained on, in training order.

    Args:
        row_ids: Id of every row, shape (N,), strings.
        given: Given labels, shape (N,), integers in [0, C).
        class_names: Names of the classes, shape (C,), strings.
        clean: True labels where they are known, shape (N,).
    """

    row_ids: NDArray[np.str_]
    given: NDArray[np.int64]
    class_names: NDArray[np.str_]
    clean: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class EpochDynamics:
    """What the training pass of one epoch showed of every row, in the order of the labels.

    Args:
        margin: Log-odds of the given label, float32, shape (N,); NaN for a row not seen.
        predicted: Most likely class, int32, shape (N,); -1 for a row not seen.
        weight: L1 norm of the gradient of the row's loss with respect to its logits, float32,
            shape (N,); NaN for a row not seen.
    """

    margin: NDArray[np.float32]
    predicted: NDArray[np.int32]
    weight: NDArray[np.float32]
