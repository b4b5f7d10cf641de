import numpy as np
import pytest
import torch

from imae._draws import seeded
from imae.errors import ArgumentError
from imae.noise.estimate import as_probabilities, confident_classes


def test_confidence_is_that_of_a_plain_loop():
    generator = seeded(1)
    weights = generator.random((300, 5)) ** 3
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    labels = (generator.random(300) * 4).astype(np.int64)  # class 4 is never given
    classes, is_confident = confident_classes(probabilities, labels)
    for row in range(300):
        likely = [
            label
            for label in range(4)
            if probabilities[row, label] >= np.mean(probabilities[labels == label, label])
        ]
        assert is_confident[row] == bool(likely)
        if likely:
            assert classes[row] == max(likely, key=lambda label: probabilities[row, label])
    assert 0 < is_confident.sum() < 300


def test_a_class_given_once_has_the_threshold_of_its_row():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    _, is_confident = confident_classes(probabilities, np.array([0, 1, 0]))
    assert is_confident.tolist() == [True, True, False]


def test_equal_numbers_reach_their_own_mean():
    probabilities = np.tile(np.array([0.7, 0.2, 0.1], dtype=np.float32), (1001, 1))
    _, is_confident = confident_classes(probabilities, np.zeros(1001, dtype=np.int64))
    assert is_confident.all()


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
