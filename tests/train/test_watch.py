import math

import numpy as np
import pytest
import torch

from imae.errors import DataError, ImaeError
from imae.train.dynamics import Watch, remedies

IDS = np.array(["a", "b"])
INPUTS = torch.ones(2, 1, 2, 2)


def watching(losses, largest=1.0):
    watch = Watch(torch.device("cpu"), remedies(0.1, {"window_high": None}))
    watch.update(torch.tensor(losses), torch.tensor([[largest, 0.0], [0.0, -1.0]]))
    return watch


def test_finite_losses_pass():
    watching([1.0, -2.0]).check_finite(3, INPUTS, IDS)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_others_name_the_row_or_the_remedies(bad):
    with pytest.raises(ImaeError, match=r"not finite after 3 steps; try a smaller optimizer\.lr"):
        watching([1.0, bad]).check_finite(3, INPUTS, IDS)
    inputs = INPUTS.clone()
    inputs[1, 0, 1, 1] = bad
    with pytest.raises(DataError, match="row 'b' holds a number that is not finite"):
        watching([1.0, bad]).check_finite(3, inputs, IDS)
    with pytest.raises(ImaeError, match="not finite"):
        watching([1.0, bad]).check_finite(3)


@pytest.mark.parametrize(("largest", "is_said"), [(1e4, False), (-1.1e4, True)])
def test_growth_is_said_once(largest, is_said):
    watch = watching([1.0, 1.0], largest)
    first = watch.growth()
    assert (first is not None) == is_said
    if is_said:
        assert "window_high" in first
        assert watch.growth() is None
