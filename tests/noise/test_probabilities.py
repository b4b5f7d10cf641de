import numpy as np
import pytest
import torch

from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.rate_curve import as_probabilities


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.5, 0.5], r"shape \(N, C\)"),
        ([[1.0], [1.0]], r"shape \(N, C\)"),
        (np.empty((0, 3)), r"shape \(N, C\)"),
        ([[1, 0]], "floats, got int64"),
        ([[1.0, 0.0], [1.1, -0.1]], "row 1 has minimum -0.1"),
        ([[1.0, 0.0], [0.5, 0.511]], "row 1 .* sum 1.011"),
        ([[1.0, 0.0], [0.5, 0.489]], "row 1 .* sum 0.989"),
        ([[float("nan"), 1.0]], "row 0"),
        ([[3.0, -2.0]], "row 0"),  # logits
    ],
)
def test_what_is_not_a_probability_is_refused(probabilities, message):
    with pytest.raises(ArgumentError, match=message):
        as_probabilities(probabilities)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_softmax_of_any_float_type_is_let_pass(dtype):
    logits = torch.from_numpy(4 * seeded(2).standard_normal((50, 100)))
    probabilities = as_probabilities(logits.to(dtype).softmax(1))
    assert probabilities.dtype == (np.float64 if dtype == torch.float64 else np.float32)
